// Which sandboxes there are, and their end. Pass an id to kill it.
package main

import (
	"fmt"
	"os"

	"github.com/example/sandbox/state"
)

func main() {
	// List VMs
	mgr := state.NewStateManager()
	vms, _ := mgr.List()
	for _, vm := range vms {
		fmt.Printf("%s: %s (PID %d)\n", vm.ID, vm.Image, vm.PID)
	}

	// Kill VM
	if len(os.Args) > 1 {
		mgr.Kill(os.Args[1])
	}

	// Prune crashed VMs
	pruned, _ := mgr.Prune()
	fmt.Printf("Pruned %d VMs\n", len(pruned))
}
