package sandbox

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"path"
	"syscall"
	"time"
	"unicode/utf8"
)

const (
	filePiece = 4 << 20 // large files go in pieces of this size
	fileAhead = 3       // this many pieces are under way at a time
)

// FileInfo describes a file or directory inside. Mode holds the type and the permission bits, as in io/fs.
type FileInfo struct {
	Name    string
	Size    int64
	Mode    fs.FileMode
	ModTime time.Time
}

// IsDir reports whether it is a directory.
func (f FileInfo) IsDir() bool { return f.Mode.IsDir() }

var modeOfKind = map[string]fs.FileMode{
	"directory": fs.ModeDir, "symlink": fs.ModeSymlink, "other": fs.ModeIrregular,
}

// UnmarshalJSON reads an entry of `list_files` or the answer of `stat`.
func (f *FileInfo) UnmarshalJSON(raw []byte) error {
	var got struct {
		Name      string  `json:"name"`
		NameBytes []byte  `json:"name_bytes"` // the exact name, when it is not UTF-8
		Size      int64   `json:"size"`
		Mode      uint32  `json:"mode"`
		IsDir     bool    `json:"is_dir"`
		Kind      string  `json:"kind"`
		Mtime     float64 `json:"mtime"`
		MtimeNS   int64   `json:"mtime_ns"`
	}
	if err := json.Unmarshal(raw, &got); err != nil {
		return err
	}
	f.Name, f.Size, f.Mode = got.Name, got.Size, fs.FileMode(got.Mode&0o777)|modeOfKind[got.Kind]
	if got.NameBytes != nil {
		f.Name = string(got.NameBytes)
	}
	if got.IsDir {
		f.Mode |= fs.ModeDir
	}
	if f.ModTime = secondsTime(got.Mtime); got.MtimeNS != 0 {
		f.ModTime = time.Unix(0, got.MtimeNS)
	}
	return nil
}

// secondsTime converts seconds since 1970, to the microsecond that a float64 can hold.
func secondsTime(seconds float64) time.Time {
	if seconds == 0 {
		return time.Time{}
	}
	return time.UnixMicro(int64(seconds * 1e6))
}

// checkPath refuses a name that JSON cannot carry: it would become the name of another file.
func checkPath(operation, name string) error {
	if !utf8.ValidString(name) {
		return &fs.PathError{Op: operation, Path: name, Err: fmt.Errorf("the name is not UTF-8: %w", syscall.EINVAL)}
	}
	return nil
}

// WriteFile creates or replaces a file inside, with mode 0644 if it is new.
func (vm *VM) WriteFile(path string, content []byte) error {
	return vm.WriteFileContext(context.Background(), path, content, 0o644)
}

// WriteFileContext is WriteFile with a context and the permission bits of a new file.
func (vm *VM) WriteFileContext(ctx context.Context, path string, content []byte, mode fs.FileMode) error {
	_, err := vm.WriteFileFrom(ctx, path, bytes.NewReader(content), mode)
	return err
}

// WriteFileFrom creates or replaces a file inside with everything that r returns. It returns the number of bytes written.
func (vm *VM) WriteFileFrom(ctx context.Context, path string, r io.Reader, mode fs.FileMode) (int64, error) {
	if err := checkPath("write", path); err != nil {
		return 0, err
	}
	type piece struct {
		Path    string `json:"path"`
		Content []byte `json:"content"`
		Mode    uint32 `json:"mode"`
		Offset  int64  `json:"offset"`
	}
	window := newPipeline(ctx, vm)
	defer window.close()
	var offset int64
	buffer := make([]byte, sizeHint(r))
	for {
		n, err := io.ReadFull(r, buffer)
		last := err == io.EOF || err == io.ErrUnexpectedEOF
		if err != nil && !last {
			return offset, err
		}
		if n > 0 || offset == 0 {
			part := piece{path, buffer[:n], uint32(mode.Perm()), offset}
			if err := window.send("write_file", part, nil); err != nil {
				return offset, err
			}
			if offset == 0 { // the piece that empties the file must be the first
				if err := window.wait(0); err != nil {
					return 0, err
				}
			}
			offset += int64(n)
		}
		if last {
			return offset, window.wait(0)
		}
	}
}

// sizeHint is how much to read at a time: no more than r has, if it says.
func sizeHint(r io.Reader) int {
	size := int64(filePiece)
	switch sized := r.(type) {
	case interface{ Len() int }:
		size = int64(sized.Len())
	case fs.File:
		if info, err := sized.Stat(); err == nil && info.Mode().IsRegular() {
			size = info.Size()
		}
	}
	if size < filePiece {
		return int(size) + 1 // one more shows the end
	}
	return filePiece
}

// ReadFile returns the content of a file inside.
func (vm *VM) ReadFile(path string) ([]byte, error) {
	return vm.ReadFileContext(context.Background(), path)
}

// ReadFileContext is ReadFile with a context.
func (vm *VM) ReadFileContext(ctx context.Context, path string) ([]byte, error) {
	var content bytes.Buffer
	if _, err := vm.ReadFileTo(ctx, path, &content); err != nil {
		return nil, err
	}
	return content.Bytes(), nil
}

// ReadFileTo writes the content of a file inside to w. It returns the number of bytes written.
func (vm *VM) ReadFileTo(ctx context.Context, path string, w io.Writer) (int64, error) {
	if err := checkPath("read", path); err != nil {
		return 0, err
	}
	type piece struct {
		Path   string `json:"path"`
		Offset int64  `json:"offset"`
		Length int    `json:"length"`
	}
	var got struct {
		Content []byte `json:"content"`
		Size    int64  `json:"size"`
	}
	if err := vm.call(ctx, "read_file", piece{path, 0, filePiece}, &got); err != nil {
		return 0, err
	}
	n, err := w.Write(got.Content)
	written, size := int64(n), got.Size
	if err != nil {
		return written, err
	}
	window := newPipeline(ctx, vm)
	defer window.close()
	for offset := int64(filePiece); offset < size; offset += filePiece {
		err := window.send("read_file", piece{path, offset, filePiece}, func(raw json.RawMessage) error {
			var got struct {
				Content []byte `json:"content"`
			}
			if err := json.Unmarshal(raw, &got); err != nil {
				return err
			}
			n, err := w.Write(got.Content)
			written += int64(n)
			return err
		})
		if err != nil {
			return written, err
		}
	}
	return written, window.wait(0)
}

// ListFiles returns what a directory inside holds. Links are not followed.
func (vm *VM) ListFiles(path string) ([]FileInfo, error) {
	return vm.ListFilesContext(context.Background(), path)
}

// ListFilesContext is ListFiles with a context.
func (vm *VM) ListFilesContext(ctx context.Context, path string) ([]FileInfo, error) {
	if err := checkPath("list", path); err != nil {
		return nil, err
	}
	var got struct {
		Files []FileInfo `json:"files"`
	}
	err := vm.call(ctx, "list_files", map[string]string{"path": path}, &got)
	return got.Files, err
}

// Stat describes the file or directory at a path inside. It follows links.
func (vm *VM) Stat(ctx context.Context, name string) (FileInfo, error) {
	if err := checkPath("stat", name); err != nil {
		return FileInfo{}, err
	}
	var info FileInfo
	err := vm.call(ctx, "stat", map[string]string{"path": name}, &info)
	info.Name = path.Base(name)
	return info, err
}

// Mkdir creates a directory inside, and those above it. That it exists already is not an error.
func (vm *VM) Mkdir(ctx context.Context, path string) error {
	if err := checkPath("mkdir", path); err != nil {
		return err
	}
	return vm.call(ctx, "mkdir", map[string]string{"path": path}, nil)
}

// Remove deletes a file or an empty directory inside; with recursive, also a directory with everything in it.
func (vm *VM) Remove(ctx context.Context, path string, recursive bool) error {
	if err := checkPath("remove", path); err != nil {
		return err
	}
	return vm.call(ctx, "remove", map[string]interface{}{"path": path, "recursive": recursive}, nil)
}

// Rename renames a file or directory inside.
func (vm *VM) Rename(ctx context.Context, from, to string) error {
	for _, name := range []string{from, to} {
		if err := checkPath("rename", name); err != nil {
			return err
		}
	}
	return vm.call(ctx, "rename", map[string]string{"old": from, "new": to}, nil)
}

// Chmod changes the permission bits of a file or directory in the sandbox. A link is followed.
func (vm *VM) Chmod(ctx context.Context, path string, mode fs.FileMode) error {
	if err := checkPath("chmod", path); err != nil {
		return err
	}
	return vm.call(ctx, "chmod", map[string]interface{}{"path": path, "mode": uint32(mode.Perm())}, nil)
}

// Symlink creates a symbolic link inside that points to target.
func (vm *VM) Symlink(ctx context.Context, target, path string) error {
	for _, name := range []string{target, path} {
		if err := checkPath("symlink", name); err != nil {
			return err
		}
	}
	return vm.call(ctx, "symlink", map[string]string{"target": target, "path": path}, nil)
}

// ReadLink returns where a symbolic link inside points.
func (vm *VM) ReadLink(ctx context.Context, path string) (string, error) {
	if err := checkPath("readlink", path); err != nil {
		return "", err
	}
	var got struct {
		Target      string `json:"target"`
		TargetBytes []byte `json:"target_bytes"` // the exact target, when it is not UTF-8
	}
	err := vm.call(ctx, "read_link", map[string]string{"path": path}, &got)
	if got.TargetBytes != nil {
		got.Target = string(got.TargetBytes)
	}
	return got.Target, err
}
