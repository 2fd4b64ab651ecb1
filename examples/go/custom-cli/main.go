// A command of one's own with the policy baked in: `go build -o my-sandbox ./custom-cli`, `./my-sandbox run python script.py`.
package main

import (
	"os"

	"github.com/example/sandbox"
	"github.com/example/sandbox/cli"
)

func main() {
	// Pre-configured sandbox with your policies baked in
	config := &sandbox.Config{
		Image: "standard",
		Network: sandbox.NetworkConfig{
			AllowedHosts: []string{"api.openai.com"},
			Secrets: map[string]sandbox.Secret{
				"OPENAI_API_KEY": {
					Value: os.Getenv("OPENAI_API_KEY"),
					Hosts: []string{"api.openai.com"},
				},
			},
		},
		VFS: sandbox.VFSConfig{
			Mounts: map[string]sandbox.Provider{
				"/workspace": sandbox.NewMemoryProvider(),
			},
		},
	}

	// Run CLI with pre-baked config
	cli.RunWithConfig(config, os.Args[1:])
}
