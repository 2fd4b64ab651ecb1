// An AI agent's code in a sandbox: it may talk to a few hosts, uses a key it never sees, and everything it does is told.
package main

import (
	"context"
	"log"
	"os"
	"time"

	"github.com/example/sandbox"
)

var agentCode = []byte(`
import json, os
key = os.environ["OPENAI_API_KEY"]
with open("/workspace/output.json", "w") as file:
    json.dump({"status": "ok", "key_is_a_placeholder": not key.startswith("sk-")}, file)
print("agent finished")
`)

func main() {
	ctx := context.Background()

	vm, err := sandbox.Create(ctx, &sandbox.Config{
		Image: "standard",
		Resources: sandbox.Resources{
			CPUs:     2,
			MemoryMB: 2048,
			Timeout:  5 * time.Minute,
		},

		Network: sandbox.NetworkConfig{
			AllowedHosts: []string{
				"api.openai.com",
				"api.anthropic.com",
				"packages.example.org",
				"files.example.org",
			},
			Secrets: map[string]sandbox.Secret{
				"OPENAI_API_KEY": {
					Value: os.Getenv("OPENAI_API_KEY"),
					Hosts: []string{"api.openai.com"},
				},
			},
			Hooks: sandbox.HTTPHooks{
				OnRequest: func(req *sandbox.HTTPRequest) (*sandbox.HTTPRequest, error) {
					log.Printf("[HTTP] %s %s", req.Method, req.URL)
					return req, nil
				},
			},
		},

		VFS: sandbox.VFSConfig{
			Mounts: map[string]sandbox.Provider{
				"/workspace": sandbox.NewMemoryProvider(),
			},
			Hooks: sandbox.VFSHooks{
				AfterWrite: func(path string, n int) {
					log.Printf("[FS] Wrote %d bytes to %s", n, path)
				},
			},
		},

		// Pass environment to guest (placeholders for secrets)
		Env: map[string]string{
			"OPENAI_API_KEY": sandbox.SecretPlaceholder("OPENAI_API_KEY"),
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer vm.Close()

	// Copy code into sandbox
	vm.WriteFile("/workspace/agent.py", agentCode)

	// Run agent
	result, err := vm.Exec(ctx, "cd /workspace && python3 agent.py")
	if err != nil {
		log.Fatal(err)
	}

	log.Printf("Exit code: %d", result.ExitCode)
	log.Printf("Output: %s", result.Stdout)

	// Read results from sandbox
	output, _ := vm.ReadFile("/workspace/output.json")
	log.Printf("Result: %s", output)
}
