package embed_test

import (
	"context"
	"log"
	"net/http"
	"testing"

	"github.com/example/sandbox/embed"
)

func TestASandboxWithAHookOnNetHTTPsOwnRequests(t *testing.T) {
	ctx := context.Background()
	vm, err := embed.Create(ctx, &embed.Config{
		Image: "standard",
		Network: embed.NetworkConfig{
			AllowedHosts: []string{"api.openai.com"},
			Hooks: embed.HTTPHooks{
				OnRequest: func(req *http.Request) (*http.Request, error) {
					log.Printf("Request: %s %s", req.Method, req.URL)
					return req, nil
				},
			},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer vm.Close()
	if result, err := vm.Exec(ctx, "echo hello"); err != nil || result.Stdout != "hello\n" {
		t.Errorf("%+v: %v", result, err)
	}
}
