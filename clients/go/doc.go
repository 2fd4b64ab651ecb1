// Package sandbox runs code you do not trust in a sandbox on this machine.
//
//	vm, err := sandbox.Create(ctx, &sandbox.Config{
//		Network: sandbox.NetworkConfig{AllowedHosts: []string{"api.openai.com"}},
//	})
//	if err != nil {
//		return err
//	}
//	defer vm.Close()
//	result, err := vm.Exec(ctx, "python3 --version")
//
// Create starts one `sandbox --rpc` process, which owns the sandbox and ends with it. When your program ends without
// calling Close, the sandbox ends too. [Attach] connects to a sandbox that another program started.
//
// # Contexts
//
// When the context of a call ends, the call returns the context's error and the sandbox cancels what the call asked for.
// A [Process] belongs to the context that it was started with: when that ends, the command is killed. ReadFile,
// WriteFile, ListFiles and Attach take no context; each has a variant with the suffix Context that does.
//
// # Output
//
// [VM.Exec] returns the output of a command when it has ended, up to a limit. [VM.Start] and [VM.ExecStream] return a
// [Process], whose output you read while it runs: as io.Readers (Stdout, Stderr), as a channel (Chunks) or with
// io.Writers that you name (WithStdout, WithStderr). A command whose output nobody reads has to wait, as with a pipe, so
// that unread output never needs more than 512 KiB of memory here.
//
// # Errors
//
// Use errors.Is with the Err values of this package, with those of io/fs, or with a syscall.Errno. A command that exits
// with a status other than zero is not an error, unless you ask for one with [WithCheck].
//
// # Other packages
//
// Package client is a smaller API without contexts. Package embed has hooks that take *http.Request. Package state lists
// and ends sandboxes. Package cli builds a command with a policy of your own.
package sandbox
