// A sandbox, one command, its output.
package main

import (
	"context"
	"fmt"
	"github.com/example/sandbox"
)

func main() {
	vm, _ := sandbox.Create(context.Background(), &sandbox.Config{
		Image: "standard",
		Resources: sandbox.Resources{
			CPUs:     2,
			MemoryMB: 1024,
		},
	})
	defer vm.Close()

	result, _ := vm.Exec(context.Background(), "echo hello")
	fmt.Println(result.Stdout) // "hello\n"
}
