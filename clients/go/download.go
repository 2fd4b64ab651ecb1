package sandbox

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// Download copies a file or a directory from the sandbox to the host, where it gets the path local. Directories above it
// are created. What is there already is replaced file by file; other files in the same directories stay. Permission bits
// are kept. Links below remote are copied as links and never followed, neither inside nor on the host; what is not a file,
// directory or link is left out.
//
// What a sandbox holds is not to be trusted: a link may point anywhere, and a tree may be large. Use Lstat before you
// follow what was downloaded.
func (vm *VM) Download(ctx context.Context, remote, local string) error {
	info, err := vm.Stat(ctx, remote)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(local), 0o777); err != nil {
		return err
	}
	d := &download{ctx, vm}
	if info.IsDir() {
		return d.root(remote, local, info.Mode.Perm())
	}
	parent, err := openHost(filepath.Dir(local))
	if err != nil {
		return err
	}
	defer parent.Close()
	return d.file(remote, hostDir{parent}, filepath.Base(local), info.Mode.Perm())
}

// download is one Download under way.
type download struct {
	ctx context.Context
	vm  *VM
}

func (d *download) root(remote, local string, mode fs.FileMode) error {
	err := os.Mkdir(local, 0o700)
	created := err == nil
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	file, err := openHost(local)
	if err != nil {
		return err
	}
	defer file.Close()
	return d.directory(remote, hostDir{file}, mode, created)
}

// directory copies what is in a directory. One that was created gets its mode at the end: it may forbid to write there.
func (d *download) directory(from string, to hostDir, mode fs.FileMode, created bool) error {
	files, err := d.vm.ListFilesContext(d.ctx, from)
	if err != nil {
		return err
	}
	for _, file := range files {
		if !isFileName(file.Name) {
			return &fs.PathError{Op: "download", Path: path.Join(from, file.Name), Err: fs.ErrInvalid}
		}
		if err := d.entry(path.Join(from, file.Name), to, file); err != nil {
			return err
		}
	}
	if created {
		return to.Chmod(mode)
	}
	return nil
}

// isFileName refuses a name that would lead out of its directory. No kernel lists one, but the sandbox is not trusted.
func isFileName(name string) bool {
	return name != "" && name != "." && name != ".." && !strings.ContainsAny(name, "/\x00") &&
		!strings.ContainsRune(name, os.PathSeparator)
}

func (d *download) entry(from string, to hostDir, file FileInfo) error {
	switch file.Mode.Type() {
	case 0:
		return d.file(from, to, file.Name, file.Mode.Perm())
	case fs.ModeDir:
		return d.subdirectory(from, to, file)
	case fs.ModeSymlink:
		target, err := d.vm.ReadLink(d.ctx, from)
		if err != nil {
			return err
		}
		return replace(to, file.Name, func(temporary string) error { return os.Symlink(target, temporary) })
	}
	return nil
}

func (d *download) subdirectory(from string, to hostDir, file FileInfo) error {
	err := os.Mkdir(to.at(file.Name), 0o700)
	created := err == nil
	if errors.Is(err, fs.ErrExist) {
		created, err = makeRoom(to.at(file.Name))
	}
	if err != nil {
		return err
	}
	directory, err := to.open(file.Name)
	if err != nil {
		return err
	}
	defer directory.Close()
	return d.directory(from, hostDir{directory}, file.Mode.Perm(), created)
}

// makeRoom replaces what is in the way of a directory, and reports whether it did; a directory stays.
func makeRoom(name string) (created bool, err error) {
	info, err := os.Lstat(name)
	if err != nil || info.IsDir() {
		return false, err
	}
	if err := os.Remove(name); err != nil {
		return false, err
	}
	return true, os.Mkdir(name, 0o700)
}

func (d *download) file(from string, to hostDir, name string, mode fs.FileMode) error {
	return replace(to, name, func(temporary string) error {
		file, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL|noFollow, 0o600)
		if err != nil {
			return err
		}
		defer file.Close()
		if _, err := d.vm.ReadFileTo(d.ctx, from, file); err != nil {
			return err
		}
		if err := file.Chmod(mode); err != nil {
			return err
		}
		return file.Close()
	})
}

// replace has something created under a temporary name and then gives it its own, so that nobody sees half of it, and so
// that a link or a second name of the old file is not written through.
func replace(in hostDir, name string, create func(temporary string) error) error {
	random := make([]byte, 8)
	if _, err := rand.Read(random); err != nil {
		return err
	}
	temporary := in.at(".sandbox-download-" + hex.EncodeToString(random))
	err := create(temporary)
	if err == nil {
		err = os.Rename(temporary, in.at(name))
	}
	if err != nil {
		_ = os.Remove(temporary)
	}
	return err
}
