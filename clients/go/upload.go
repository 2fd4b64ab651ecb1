package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
)

// insideUmask is what the sandbox takes off the mode of a new file.
const insideUmask fs.FileMode = 0o022

// Upload copies a file or a directory of the host into the sandbox, where it gets the path remote. Directories above it
// are created. What is there already is replaced file by file; other files in the same directories stay. Permission bits
// are kept. Links below local are copied as links and never followed; what is not a file, directory or link is left out.
func (vm *VM) Upload(ctx context.Context, local, remote string) error {
	root, err := openHost(local)
	if err != nil {
		return err
	}
	defer root.Close()
	info, err := root.Stat()
	if err != nil {
		return err
	}
	if parent := path.Dir(remote); parent != "." && parent != "/" {
		if err := vm.Mkdir(ctx, parent); err != nil {
			return err
		}
	}
	u := &upload{ctx: ctx, vm: vm}
	switch {
	case info.IsDir():
		err = u.directory(hostDir{root}, remote, info.Mode().Perm(), nil)
	case info.Mode().IsRegular():
		err = u.file(root, remote, info.Mode().Perm(), nil)
	default:
		err = &fs.PathError{Op: "upload", Path: local, Err: errors.New("neither a file nor a directory")}
	}
	if err != nil {
		return err
	}
	return u.chmod()
}

// upload is one Upload under way.
type upload struct {
	ctx context.Context
	vm  *VM
	// Directories whose mode must be set when everything is there, in the order of leaving them, because one that cannot be
	// entered any more hides those below.
	directories []modeOf
}

type modeOf struct {
	path string
	mode fs.FileMode
}

// directory copies a directory. existing is what is at that path in the sandbox, if that is known.
func (u *upload) directory(from hostDir, to string, mode fs.FileMode, existing *FileInfo) error {
	if existing != nil && !existing.IsDir() {
		if err := u.vm.Remove(u.ctx, to, false); err != nil {
			return err
		}
	}
	created := (mode | 0o700) &^ insideUmask
	params := map[string]interface{}{"path": to, "mode": uint32(created), "parents": false}
	err := u.vm.call(u.ctx, "mkdir", params, nil)
	there := map[string]*FileInfo{}
	if errors.Is(err, fs.ErrExist) {
		if existing != nil { // one that is there keeps its mode
			mode, created = existing.Mode.Perm(), existing.Mode.Perm()|0o700
		} else {
			mode = created
		}
		there, err = u.enter(to, mode, created)
	}
	if created != mode {
		defer func() { u.directories = append(u.directories, modeOf{to, mode}) }()
	}
	if err != nil {
		return err
	}
	names, err := from.names()
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := u.entry(from, name, path.Join(to, name), there[name]); err != nil {
			return err
		}
	}
	return nil
}

// enter lists a directory that exists. One that its owner may not write is opened up until the end.
func (u *upload) enter(directory string, mode, needed fs.FileMode) (map[string]*FileInfo, error) {
	if mode != needed {
		if err := u.vm.Chmod(u.ctx, directory, needed); err != nil {
			return nil, err
		}
	}
	files, err := u.vm.ListFilesContext(u.ctx, directory)
	there := make(map[string]*FileInfo, len(files))
	for i := range files {
		there[files[i].Name] = &files[i]
	}
	return there, err
}

func (u *upload) entry(from hostDir, name, to string, existing *FileInfo) error {
	info, err := os.Lstat(from.at(name))
	if err != nil {
		return err
	}
	if info.Mode()&fs.ModeSymlink != 0 {
		target, err := os.Readlink(from.at(name))
		if err != nil {
			return err
		}
		return u.link(target, to, existing)
	}
	if !info.IsDir() && !info.Mode().IsRegular() {
		return nil
	}
	file, err := from.open(name)
	if err != nil {
		return err
	}
	defer file.Close()
	if info, err = file.Stat(); err != nil { // of what was opened: the name may mean something else by now
		return err
	}
	switch {
	case info.IsDir():
		return u.directory(hostDir{file}, to, info.Mode().Perm(), existing)
	case info.Mode().IsRegular():
		return u.file(file, to, info.Mode().Perm(), existing)
	}
	return nil
}

func (u *upload) link(target, to string, existing *FileInfo) error {
	if existing != nil {
		if err := u.vm.Remove(u.ctx, to, false); err != nil {
			return err
		}
	}
	return u.vm.Symlink(u.ctx, target, to)
}

func (u *upload) file(from *os.File, to string, mode fs.FileMode, existing *FileInfo) error {
	// Also a link, which would be written through, and a file that its owner may not write.
	if existing != nil && (existing.Mode != mode || mode&0o200 == 0) {
		if err := u.vm.Remove(u.ctx, to, false); err != nil {
			return err
		}
	}
	created := (mode | 0o600) &^ insideUmask
	if _, err := u.vm.WriteFileFrom(u.ctx, to, from, created); err != nil {
		return err
	}
	if created != mode {
		return u.vm.Chmod(u.ctx, to, mode)
	}
	return nil
}

// chmod sets the modes that could not be set before everything was there.
func (u *upload) chmod() error {
	for _, one := range u.directories {
		if err := u.vm.Chmod(u.ctx, one.path, one.mode); err != nil {
			return err
		}
	}
	return nil
}

// hostDir is an open directory of the host. What is in it is reached by the descriptor and never through a link, so that
// nobody who can write there, such as the sandbox itself, can lead us elsewhere.
type hostDir struct{ *os.File }

// at returns a path of name in the directory, wherever the directory is by now.
func (d hostDir) at(name string) string {
	if byDescriptor {
		return fmt.Sprintf("/proc/self/fd/%d/%s", d.Fd(), name)
	}
	return filepath.Join(d.Name(), name)
}

// open opens what has that name for reading, unless it is a link.
func (d hostDir) open(name string) (*os.File, error) {
	return os.OpenFile(d.at(name), os.O_RDONLY|noFollow, 0)
}

func (d hostDir) names() ([]string, error) { return d.Readdirnames(-1) }

// openHost opens a file or directory that the caller named, which may be a link.
func openHost(name string) (*os.File, error) { return os.OpenFile(name, os.O_RDONLY|noBlock, 0) }
