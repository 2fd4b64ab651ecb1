//go:build unix

package wire

import (
	"os/exec"
	"syscall"
)

// detach gives the command a process group of its own: a Ctrl-C at the terminal is for this program, which may still
// want to read files from the sandbox before it ends.
func detach(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }
