package sandbox_test

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/example/sandbox"
)

func TestErrorsAboutFilesAreTheOperatingSystemsOwn(t *testing.T) {
	base := t.TempDir()
	vm := create(t, &sandbox.Config{VFS: sandbox.VFSConfig{
		DirectMounts: map[string]sandbox.DirectMount{"/mnt/fixed": {HostPath: base, Readonly: true}},
	}})
	run(t, vm, "mkdir /tmp/full && touch /tmp/full/file")
	for want, err := range map[error]error{
		syscall.EROFS:  vm.WriteFile("/mnt/fixed/new", nil),
		fs.ErrNotExist: second(vm.ReadFile("/tmp/missing")),
		syscall.ENOENT: second(vm.Stat(background, "/tmp/missing")),
		syscall.EISDIR: second(vm.ReadFile("/tmp/full")),
		syscall.ENOTDIR: func() error {
			_, err := vm.ListFiles("/tmp/full/file")
			return err
		}(),
		syscall.ENOTEMPTY: vm.Remove(background, "/tmp/full", false),
		syscall.EINVAL:    second(vm.ReadLink(background, "/tmp/full")),
		fs.ErrExist:       vm.Symlink(background, "anywhere", "/tmp/full"),
	} {
		if !errors.Is(err, want) {
			t.Errorf("wanted %v, got %v", want, err)
		}
	}
	var number syscall.Errno
	if err := vm.WriteFile("/mnt/fixed/new", nil); !errors.As(err, &number) || number != syscall.EROFS {
		t.Errorf("errors.As finds %v in %v", number, err)
	}
}

func second[T any](_ T, err error) error { return err }

func TestFileInfoSaysWhatAFileIs(t *testing.T) {
	vm := create(t, nil)
	run(t, vm, "mkdir /tmp/d && cd /tmp/d && echo 12345 > file && chmod 640 file && mkdir sub && ln -s file link && mkfifo pipe")
	files, err := vm.ListFiles("/tmp/d")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]fs.FileMode{"file": 0o640, "sub": fs.ModeDir | 0o755, "link": fs.ModeSymlink | 0o777, "pipe": fs.ModeIrregular | 0o644}
	for _, file := range files {
		if file.Mode != want[file.Name] || file.IsDir() != (file.Name == "sub") || time.Since(file.ModTime) > time.Hour {
			t.Errorf("%+v", file)
		}
		delete(want, file.Name)
	}
	if len(want) > 0 {
		t.Errorf("not listed: %v", want)
	}
	info, err := vm.Stat(background, "/tmp/d/link")
	if err != nil || info.Name != "link" || info.Size != 6 || info.Mode != 0o640 || time.Since(info.ModTime) > time.Hour {
		t.Errorf("%+v: %v", info, err)
	}
}

func TestANameThatJSONCannotCarryIsRefusedNotChanged(t *testing.T) {
	vm := create(t, nil)
	run(t, vm, `mkdir /tmp/d && echo theirs > "/tmp/d/$(printf 'a\357\277\275')"`) // U+FFFD, which JSON would put in its place
	if err := vm.WriteFile("/tmp/d/a\xff", []byte("ours")); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("%v", err)
	}
	if got := run(t, vm, "cat /tmp/d/*"); got != "theirs\n" {
		t.Errorf("the other file holds %q", got)
	}
}

func TestFilesAreStreamed(t *testing.T) {
	vm := create(t, nil)
	content := bytes.Repeat([]byte("sandbox!"), 1<<20+3)
	n, err := vm.WriteFileFrom(background, "/tmp/streamed", bytes.NewBuffer(append([]byte{}, content...)), 0o600)
	if err != nil || n != int64(len(content)) {
		t.Fatalf("%d: %v", n, err)
	}
	var back bytes.Buffer
	if n, err := vm.ReadFileTo(background, "/tmp/streamed", &back); err != nil || n != int64(len(content)) || !bytes.Equal(back.Bytes(), content) {
		t.Errorf("%d bytes: %v", n, err)
	}
	if err := vm.WriteFile("/tmp/streamed", nil); err != nil {
		t.Fatal(err)
	}
	if content, err := vm.ReadFile("/tmp/streamed"); err != nil || len(content) != 0 {
		t.Errorf("%d bytes: %v", len(content), err)
	}
}

// plant makes a tree with everything that can go wrong.
func plant(t *testing.T) string {
	t.Helper()
	tree := filepath.Join(t.TempDir(), "tree")
	for _, step := range []error{
		os.MkdirAll(filepath.Join(tree, "sub", "deep"), 0o755),
		os.WriteFile(filepath.Join(tree, "plain"), []byte("plain"), 0o644),
		os.WriteFile(filepath.Join(tree, "sub", "script"), []byte("#!/bin/sh\n"), 0o644),
		os.WriteFile(filepath.Join(tree, "sub", "large"), bytes.Repeat([]byte("x"), 9<<20), 0o644),
		os.WriteFile(filepath.Join(tree, "sub", "deep", "empty"), nil, 0o644),
		os.Symlink("/etc/passwd", filepath.Join(tree, "leads-out")),
		os.Symlink("../plain", filepath.Join(tree, "sub", "up")),
		os.Symlink("nowhere", filepath.Join(tree, "dangling")),
		os.Symlink("sub", filepath.Join(tree, "directory-link")),
		syscall.Mkfifo(filepath.Join(tree, "pipe"), 0o644),
		os.Chmod(filepath.Join(tree, "sub", "script"), 0o775),
		os.Chmod(filepath.Join(tree, "plain"), 0o666),
		os.Chmod(filepath.Join(tree, "sub", "large"), 0o444),
		os.Chmod(filepath.Join(tree, "sub", "deep"), 0o500),
		os.Chmod(filepath.Join(tree, "sub"), 0o770),
	} {
		if step != nil {
			t.Fatal(step)
		}
	}
	return tree
}

// listing says what is in a tree of the host, except for the FIFO, which is left out on the way.
func listing(t *testing.T, tree string) string {
	t.Helper()
	var lines []string
	err := filepath.WalkDir(tree, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || name == tree || entry.Name() == "pipe" {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		relative, _ := filepath.Rel(tree, name)
		line := relative + " " + info.Mode().String()
		if info.Mode()&fs.ModeSymlink != 0 {
			target, _ := os.Readlink(name)
			line += " -> " + target
		} else if info.Mode().IsRegular() {
			content, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			line += " " + string(content[:len(content)%100]) + " " + strings.Repeat("x", len(content)>>20)
		}
		lines = append(lines, line)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(lines, "\n")
}

func TestATreeSurvivesTheWayInAndOut(t *testing.T) {
	vm, tree := create(t, nil), plant(t)
	want := listing(t, tree)
	for round := 0; round < 2; round++ { // the second time everything is there already
		if err := vm.Upload(background, tree, "/tmp/above/tree"); err != nil {
			t.Fatal(err)
		}
	}
	out := filepath.Join(t.TempDir(), "above", "tree")
	for round := 0; round < 2; round++ {
		if err := vm.Download(background, "/tmp/above/tree", out); err != nil {
			t.Fatal(err)
		}
	}
	if got := listing(t, out); got != want {
		t.Errorf("came back:\n%s\nwas:\n%s", got, want)
	}
	os.Chmod(filepath.Join(out, "sub", "deep"), 0o700) // so that the test can clean up
	os.Chmod(filepath.Join(tree, "sub", "deep"), 0o700)
}

func TestAnUploadKeepsModesThatAUmaskWouldChangeAndRunsNothingInside(t *testing.T) {
	vm, tree := create(t, nil), filepath.Join(t.TempDir(), "tree")
	modes := []struct {
		name string
		mode fs.FileMode
	}{{"open/f", 0o444}, {"g", 0o666}, {"open", 0o577}, {".", 0o775}}
	for _, step := range []error{
		os.MkdirAll(filepath.Join(tree, "open"), 0o755),
		os.WriteFile(filepath.Join(tree, "open", "f"), make([]byte, 9<<20), 0o644),
		os.WriteFile(filepath.Join(tree, "g"), []byte("g"), 0o644),
	} {
		if step != nil {
			t.Fatal(step)
		}
	}
	for _, one := range modes {
		if err := os.Chmod(filepath.Join(tree, one.name), one.mode); err != nil {
			t.Fatal(err)
		}
	}
	defer os.Chmod(filepath.Join(tree, "open"), 0o700)
	if err := vm.Upload(background, tree, "/tmp/tree"); err != nil {
		t.Fatal(err)
	}
	for _, one := range modes {
		if info, err := vm.Stat(background, "/tmp/tree/"+one.name); err != nil || info.Mode.Perm() != one.mode {
			t.Errorf("%s: %v, not %v: %v", one.name, info.Mode, one.mode, err)
		}
	}
	if processes, err := vm.Processes(background); err != nil || len(processes) != 0 {
		t.Errorf("%v: %v", processes, err)
	}
	if err := vm.Chmod(background, "/tmp/none", 0o600); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v", err)
	}
}

func TestASingleFileIsCopiedWithItsMode(t *testing.T) {
	vm, dir := create(t, nil), t.TempDir()
	tool := filepath.Join(dir, "tool")
	if err := os.WriteFile(tool, []byte("#!/bin/sh\necho works\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := vm.Upload(background, tool, "/tmp/bin/tool"); err != nil {
		t.Fatal(err)
	}
	if got := run(t, vm, "/tmp/bin/tool"); got != "works\n" {
		t.Errorf("%q", got)
	}
	if err := vm.Download(background, "/tmp/bin/tool", filepath.Join(dir, "back")); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(filepath.Join(dir, "back")); err != nil || info.Mode() != 0o755 {
		t.Errorf("%v: %v", info, err)
	}
}

func TestADownloadNeverWritesThroughALinkOnTheHost(t *testing.T) {
	vm, dir := create(t, nil), t.TempDir()
	run(t, vm, "mkdir -p /tmp/tree/sub && echo new > /tmp/tree/sub/file && echo new > /tmp/tree/file")
	outside := filepath.Join(dir, "outside")
	out := filepath.Join(dir, "out")
	for _, step := range []error{
		os.Mkdir(outside, 0o755), os.Mkdir(out, 0o755),
		os.WriteFile(filepath.Join(outside, "file"), []byte("old"), 0o644),
		os.Symlink(outside, filepath.Join(out, "sub")),
		os.Symlink(filepath.Join(outside, "file"), filepath.Join(out, "file")),
	} {
		if step != nil {
			t.Fatal(step)
		}
	}
	if err := vm.Download(background, "/tmp/tree", out); err != nil {
		t.Fatal(err)
	}
	if content, _ := os.ReadFile(filepath.Join(outside, "file")); string(content) != "old" {
		t.Errorf("the file outside holds %q", content)
	}
	for _, name := range []string{"file", "sub/file"} {
		if content, err := os.ReadFile(filepath.Join(out, name)); string(content) != "new\n" {
			t.Errorf("%s holds %q: %v", name, content, err)
		}
	}
}

func TestATransferEndsWithItsContext(t *testing.T) {
	vm, tree := create(t, nil), plant(t)
	ctx, cancel := context.WithCancel(background)
	cancel()
	if err := vm.Upload(ctx, tree, "/tmp/tree"); !errors.Is(err, context.Canceled) {
		t.Errorf("Upload returned %v", err)
	}
	if err := vm.Download(ctx, "/tmp", filepath.Join(t.TempDir(), "out")); !errors.Is(err, context.Canceled) {
		t.Errorf("Download returned %v", err)
	}
	os.Chmod(filepath.Join(tree, "sub", "deep"), 0o700)
}
