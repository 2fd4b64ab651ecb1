//go:build unix

package sandbox

import (
	"runtime"
	"syscall"
)

const (
	noBlock      = syscall.O_NONBLOCK // a FIFO must not make us wait
	noFollow     = syscall.O_NOFOLLOW | noBlock
	byDescriptor = runtime.GOOS == "linux"
)
