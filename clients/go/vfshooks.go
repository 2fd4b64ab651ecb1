package sandbox

import (
	"encoding/json"
	"fmt"
)

// VFSHooks are called around every operation on the directories of VFSConfig.Mounts; the project and DirectMounts have no
// hooks. A Before hook that returns an error refuses: the command sees "Permission denied". An After hook is called when
// the operation has succeeded. A hook that panics, or does not return within 30 seconds, refuses. Hooks are called
// concurrently. Paths are those that commands see.
//
// A file that does not exist yet is created, not opened, and can also appear by Rename, Link, Symlink or Mknod: a guard
// on names needs all of these.
type VFSHooks struct {
	BeforeStat func(path string) error
	AfterStat  func(path string)

	BeforeReaddir func(path string) error
	AfterReaddir  func(path string)

	BeforeOpen func(path string, flags int) error
	AfterOpen  func(path string, flags int)

	BeforeCreate func(path string, mode uint32) error
	AfterCreate  func(path string, mode uint32)

	BeforeRead func(path string, size int, offset int64) error
	AfterRead  func(path string, n int)

	BeforeWrite func(path string, size int, offset int64) error
	AfterWrite  func(path string, n int)

	BeforeSync func(path string) error
	AfterSync  func(path string)

	BeforeClose func(path string) error
	AfterClose  func(path string)

	BeforeMkdir func(path string, mode uint32) error
	AfterMkdir  func(path string, mode uint32)

	BeforeMknod func(path string, mode uint32) error
	AfterMknod  func(path string, mode uint32)

	BeforeRemove func(path string) error
	AfterRemove  func(path string)

	BeforeRename func(from, to string) error
	AfterRename  func(from, to string)

	BeforeSymlink func(target, link string) error
	AfterSymlink  func(target, link string)

	BeforeReadlink func(path string) error
	AfterReadlink  func(path string)

	BeforeLink func(from, to string) error
	AfterLink  func(from, to string)

	BeforeSetattr func(path string, changes AttrChanges) error
	AfterSetattr  func(path string, changes AttrChanges)

	BeforeGetxattr func(path, name string) error
	AfterGetxattr  func(path, name string)

	BeforeSetxattr func(path, name string) error
	AfterSetxattr  func(path, name string)

	BeforeListxattr func(path string) error
	AfterListxattr  func(path string)

	BeforeRemovexattr func(path, name string) error
	AfterRemovexattr  func(path, name string)
}

// AttrChanges is what an operation changes in a file's attributes. A field is nil when it stays as it is.
type AttrChanges struct {
	Mode    *uint32 `json:"mode"`
	UID     *uint32 `json:"uid"`
	GID     *uint32 `json:"gid"`
	Size    *int64  `json:"size"`
	AtimeNS *int64  `json:"atime_ns"`
	MtimeNS *int64  `json:"mtime_ns"`
}

// fileHook calls one hook with the arguments that the sandbox sent.
type fileHook func(args []json.RawMessage) error

// table returns every hook by its name in docs/vfs.md; nil for those that are not set.
func (h *VFSHooks) table() map[string]fileHook {
	return map[string]fileHook{
		"before_stat":        before1(h.BeforeStat),
		"after_stat":         after1(h.AfterStat),
		"before_readdir":     before1(h.BeforeReaddir),
		"after_readdir":      after1(h.AfterReaddir),
		"before_open":        before2(h.BeforeOpen),
		"after_open":         after2(h.AfterOpen),
		"before_create":      before2(h.BeforeCreate),
		"after_create":       after2(h.AfterCreate),
		"before_read":        before3(h.BeforeRead),
		"after_read":         after2(h.AfterRead),
		"before_write":       before3(h.BeforeWrite),
		"after_write":        after2(h.AfterWrite),
		"before_sync":        before1(h.BeforeSync),
		"after_sync":         after1(h.AfterSync),
		"before_close":       before1(h.BeforeClose),
		"after_close":        after1(h.AfterClose),
		"before_mkdir":       before2(h.BeforeMkdir),
		"after_mkdir":        after2(h.AfterMkdir),
		"before_mknod":       before2(h.BeforeMknod),
		"after_mknod":        after2(h.AfterMknod),
		"before_remove":      before1(h.BeforeRemove),
		"after_remove":       after1(h.AfterRemove),
		"before_rename":      before2(h.BeforeRename),
		"after_rename":       after2(h.AfterRename),
		"before_symlink":     before2(h.BeforeSymlink),
		"after_symlink":      after2(h.AfterSymlink),
		"before_readlink":    before1(h.BeforeReadlink),
		"after_readlink":     after1(h.AfterReadlink),
		"before_link":        before2(h.BeforeLink),
		"after_link":         after2(h.AfterLink),
		"before_setattr":     before2(h.BeforeSetattr),
		"after_setattr":      after2(h.AfterSetattr),
		"before_getxattr":    before2(h.BeforeGetxattr),
		"after_getxattr":     after2(h.AfterGetxattr),
		"before_setxattr":    before2(h.BeforeSetxattr),
		"after_setxattr":     after2(h.AfterSetxattr),
		"before_listxattr":   before1(h.BeforeListxattr),
		"after_listxattr":    after1(h.AfterListxattr),
		"before_removexattr": before2(h.BeforeRemovexattr),
		"after_removexattr":  after2(h.AfterRemovexattr),
	}
}

func before1[A any](hook func(A) error) fileHook {
	if hook == nil {
		return nil
	}
	return func(args []json.RawMessage) error {
		var a A
		if err := arguments(args, &a); err != nil {
			return err
		}
		return refusal(hook(a))
	}
}

func before2[A, B any](hook func(A, B) error) fileHook {
	if hook == nil {
		return nil
	}
	return func(args []json.RawMessage) error {
		var a A
		var b B
		if err := arguments(args, &a, &b); err != nil {
			return err
		}
		return refusal(hook(a, b))
	}
}

func before3[A, B, C any](hook func(A, B, C) error) fileHook {
	if hook == nil {
		return nil
	}
	return func(args []json.RawMessage) error {
		var a A
		var b B
		var c C
		if err := arguments(args, &a, &b, &c); err != nil {
			return err
		}
		return refusal(hook(a, b, c))
	}
}

func after1[A any](hook func(A)) fileHook {
	if hook == nil {
		return nil
	}
	return before1(func(a A) error {
		hook(a)
		return nil
	})
}

func after2[A, B any](hook func(A, B)) fileHook {
	if hook == nil {
		return nil
	}
	return before2(func(a A, b B) error {
		hook(a, b)
		return nil
	})
}

func arguments(args []json.RawMessage, into ...interface{}) error {
	if len(args) != len(into) {
		return fmt.Errorf("the sandbox called a hook with %d arguments instead of %d", len(args), len(into))
	}
	for i, target := range into {
		if err := json.Unmarshal(args[i], target); err != nil {
			return err
		}
	}
	return nil
}

func refusal(err error) error {
	if err == nil {
		return nil
	}
	return orBlocked(err)
}
