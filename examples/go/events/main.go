// What happens in a sandbox, as it happens.
package main

import (
	"context"
	"log"

	"github.com/example/sandbox"
)

func main() {
	ctx := context.Background()
	vm, err := sandbox.Create(ctx, &sandbox.Config{})
	if err != nil {
		log.Fatal(err)
	}

	// Subscribe to VM events
	events := vm.Events()
	seen := make(chan struct{})
	go func() {
		defer close(seen)
		for event := range events {
			switch e := event.(type) {
			case *sandbox.NetworkEvent:
				log.Printf("Network: %s %s -> %d", e.Method, e.URL, e.StatusCode)
			case *sandbox.FileEvent:
				log.Printf("File: %s %s (%d bytes)", e.Op, e.Path, e.Size)
			case *sandbox.ExecEvent:
				log.Printf("Exec: %s (exit=%d)", e.Command, e.ExitCode)
			}
		}
	}()

	if _, err := vm.Exec(ctx, "exit 3"); err != nil {
		log.Fatal(err)
	}
	vm.Close()
	<-seen // the channel closes with the sandbox
}
