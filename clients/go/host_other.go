//go:build !unix

package sandbox

const (
	noBlock      = 0
	noFollow     = 0
	byDescriptor = false
)
