package sandbox_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/example/sandbox"
)

func TestSecretsAndHostsAreConfiguredAsValues(t *testing.T) {
	ctx := context.Background()
	vm, err := start(ctx, &sandbox.Config{
		Network: sandbox.NetworkConfig{
			AllowedHosts:    []string{"api.openai.com", "api.anthropic.com", "*.amazonaws.com"},
			BlockPrivateIPs: true,
			Secrets: map[string]sandbox.Secret{
				"OPENAI_API_KEY": {Value: "sk-first", Hosts: []string{"api.openai.com"}},
				"AWS_SECRET_KEY": {Value: "sk-second", Hosts: []string{"*.amazonaws.com"}},
			},
		},
		Env: map[string]string{"OPENAI_API_KEY": sandbox.SecretPlaceholder("OPENAI_API_KEY")},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer vm.Close()
	result, err := vm.Exec(ctx, "echo $OPENAI_API_KEY")
	if err != nil {
		t.Fatal(err)
	}
	if want := vm.Env()["OPENAI_API_KEY"]; result.Stdout != want+"\n" || want == "" || want == "sk-first" {
		t.Errorf("inside it is %q, outside it is said to be %q", result.Stdout, want)
	}
}

func TestProvidersAreWhatTheirNamesSay(t *testing.T) {
	ctx := context.Background()
	base := t.TempDir()
	if err := os.WriteFile(filepath.Join(base, "file"), []byte("below"), 0o644); err != nil {
		t.Fatal(err)
	}
	vm, err := start(ctx, &sandbox.Config{
		VFS: sandbox.VFSConfig{
			DirectMounts: map[string]sandbox.DirectMount{"/mnt/datasets": {HostPath: base, Readonly: true}},
			Mounts: map[string]sandbox.Provider{
				"/workspace": sandbox.NewMemoryProvider(),
				"/config":    sandbox.NewReadonlyProvider(sandbox.NewRealFSProvider(base)),
				"/data": sandbox.NewOverlayProvider(
					sandbox.NewMemoryProvider(),     // Upper (writes go here)
					sandbox.NewRealFSProvider(base), // Lower (read-only base)
				),
			},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer vm.Close()
	for command, want := range map[string]string{
		"cat /mnt/datasets/file /config/file":           "belowbelow",
		"echo x > /mnt/datasets/file || echo no":        "no\n",
		"echo x > /config/file || echo no":              "no\n",
		"echo -n above > /data/file; cat /data/file":    "above",
		"echo -n kept > /workspace/a; cat /workspace/a": "kept",
	} {
		result, err := vm.Exec(ctx, command)
		if err != nil || result.Stdout != want {
			t.Errorf("%s: %q %q: %v", command, result.Stdout, result.Stderr, err)
		}
	}
	if below, _ := os.ReadFile(filepath.Join(base, "file")); string(below) != "below" {
		t.Errorf("the host's file is now %q", below)
	}
}

func TestAPolicyScriptIsPartOfTheConfiguration(t *testing.T) {
	ctx := context.Background()
	vm, err := start(ctx, &sandbox.Config{
		PolicyScript: `
def is_host_allowed(host):
    return host in ["api.openai.com"] or host.endswith(".amazonaws.com")
`,
		PolicySecrets: map[string]string{"INTERNAL_TOKEN": "token"},
	})
	if err != nil {
		t.Fatal(err)
	}
	vm.Close()
	if _, err := start(ctx, &sandbox.Config{PolicyScript: "def ("}); err == nil {
		t.Error("a script that is none was taken")
	}
}

func TestAFileHookIsCalledInThisProcess(t *testing.T) {
	if file, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0); err != nil {
		t.Skip("needs /dev/fuse: ", err)
	} else {
		file.Close()
	}
	ctx := context.Background()
	wrote := make(chan int, 8)
	vm, err := start(ctx, &sandbox.Config{VFS: sandbox.VFSConfig{
		Mounts: map[string]sandbox.Provider{"/workspace": sandbox.NewMemoryProvider()},
		Hooks: sandbox.VFSHooks{
			BeforeOpen: func(path string, flags int) error {
				if path == "/workspace/secret" {
					return sandbox.ErrBlocked
				}
				return nil
			},
			AfterWrite: func(path string, n int) { wrote <- n },
		},
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer vm.Close()
	if err := vm.WriteFile("/workspace/note", []byte("four")); err != nil {
		t.Fatal(err)
	}
	if n := <-wrote; n != 4 {
		t.Errorf("the hook heard of %d bytes", n)
	}
	result, err := vm.Exec(ctx, "touch /workspace/ok && cat /workspace/secret")
	if err != nil || result.ExitCode == 0 {
		t.Errorf("%+v: %v", result, err)
	}
}
