// The plain client: no contexts, a configuration that is the JSON of `create`.
package main

import (
	"fmt"
	"log"
	"os"

	sandbox "github.com/example/sandbox/client"
)

func main() {
	sb, err := sandbox.Create(&sandbox.Config{
		Image: "standard",
		Network: &sandbox.NetworkConfig{
			AllowedHosts: []string{"api.openai.com"},
			Secrets: map[string]sandbox.Secret{
				"OPENAI_API_KEY": {
					Value: os.Getenv("OPENAI_API_KEY"),
					Hosts: []string{"api.openai.com"},
				},
			},
		},
		VFS: &sandbox.VFSConfig{
			Mounts: map[string]sandbox.Mount{
				"/workspace": {Type: "memory"},
			},
		},
		Env: map[string]string{
			"OPENAI_API_KEY": "${OPENAI_API_KEY}",
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer sb.Close()

	// Handle events in background
	go func() {
		for event := range sb.Events() {
			if event.Network != nil {
				log.Printf("HTTP: %s %s -> %d", event.Network.Method, event.Network.URL, event.Network.StatusCode)
			}
		}
	}()

	// Write and execute
	sb.WriteFile("/workspace/hello.py", []byte(`print("Hello from sandbox!")`))
	result, _ := sb.Exec("python3 /workspace/hello.py")
	fmt.Println(result.Stdout) // "Hello from sandbox!"
}
