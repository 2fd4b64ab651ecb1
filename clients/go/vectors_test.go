package sandbox_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"sort"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/example/sandbox"
)

type step struct {
	Call   string                 `json:"call"`
	Args   map[string]interface{} `json:"args"`
	Input  *[]string              `json:"input"`
	Signal int                    `json:"signal"`
	Result map[string]interface{} `json:"result"`
	Error  *wanted                `json:"error"`
}

type wanted struct {
	Code int    `json:"code"`
	Name string `json:"name"`
}

type scenario struct {
	Name   string                 `json:"name"`
	Config map[string]interface{} `json:"config"`
	Steps  []step                 `json:"steps"`
	Error  *wanted                `json:"error"`
}

func TestTheClientDoesWhatTheVectorsSay(t *testing.T) {
	files, _ := filepath.Glob(filepath.Join(source, "../vectors/*.json"))
	if len(files) == 0 {
		t.Fatal("no vectors")
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var scenarios []scenario
		if err := json.Unmarshal(content, &scenarios); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		for _, one := range scenarios {
			one := one
			t.Run(filepath.Base(file)+": "+one.Name, func(t *testing.T) { play(t, one) })
		}
	}
}

func play(t *testing.T, one scenario) {
	ctx := context.Background()
	vm, err := start(ctx, &sandbox.Config{Settings: one.Config})
	if one.Error != nil {
		checkError(t, err, one.Error)
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	defer vm.Close()
	for _, step := range one.Steps {
		got, err := call(ctx, vm, step)
		if step.Error != nil {
			checkError(t, err, step.Error)
			continue
		}
		if err != nil {
			t.Fatalf("%v: %v", step, err)
		}
		for key, value := range step.Result {
			if key == "stdout_has" {
				if !strings.Contains(got["stdout"].(string), value.(string)) {
					t.Errorf("%v: stdout is %q", step, got["stdout"])
				}
			} else if !reflect.DeepEqual(got[key], value) {
				t.Errorf("%v: %s is %#v", step, key, got[key])
			}
		}
	}
}

func checkError(t *testing.T, err error, want *wanted) {
	t.Helper()
	var got *sandbox.Error
	if !errors.As(err, &got) || got.Code != want.Code || (want.Name != "" && got.Data["name"] != want.Name) {
		t.Errorf("wanted %v, got %v", want, err)
	}
}

// call makes one step; what it returns has the types that JSON has, as in the vectors.
func call(ctx context.Context, vm *sandbox.VM, s step) (map[string]interface{}, error) {
	path, _ := s.Args["path"].(string)
	switch s.Call {
	case "exec":
		command, options := command(s.Args)
		return result(vm.Exec(ctx, command, options...))
	case "exec_stream":
		command, options := command(s.Args)
		process, err := vm.ExecStream(ctx, command, options...)
		if err != nil {
			return nil, err
		}
		return result(process.Wait())
	case "spawn":
		return spawn(ctx, vm, s)
	case "write_file":
		mode := fs.FileMode(0o644)
		if given, ok := s.Args["mode"].(float64); ok {
			mode = fs.FileMode(given)
		}
		text, _ := s.Args["text"].(string)
		content := []byte(text)
		if encoded, ok := s.Args["base64"].(string); ok {
			content, _ = base64.StdEncoding.DecodeString(encoded)
		}
		return nil, vm.WriteFileContext(ctx, path, content, mode)
	case "read_file":
		content, err := vm.ReadFile(path)
		return map[string]interface{}{
			"text": string(content), "base64": base64.StdEncoding.EncodeToString(content), "size": float64(len(content)),
		}, err
	case "list_files":
		files, err := vm.ListFiles(path)
		names := []interface{}{}
		sort.Slice(files, func(i, j int) bool { return files[i].Name < files[j].Name })
		for _, file := range files {
			names = append(names, file.Name)
		}
		return map[string]interface{}{"names": names}, err
	case "stat":
		info, err := vm.Stat(ctx, path)
		return map[string]interface{}{"size": float64(info.Size), "mode": float64(info.Mode.Perm()), "is_dir": info.IsDir()}, err
	case "mkdir":
		return nil, vm.Mkdir(ctx, path)
	case "remove":
		return nil, vm.Remove(ctx, path, s.Args["recursive"] == true)
	case "rename":
		return nil, vm.Rename(ctx, s.Args["old"].(string), s.Args["new"].(string))
	}
	return nil, errors.New("no such call: " + s.Call)
}

func spawn(ctx context.Context, vm *sandbox.VM, s step) (map[string]interface{}, error) {
	command, options := command(s.Args)
	tty, terminal := s.Args["tty"].(map[string]interface{})
	if terminal {
		options = append(options, sandbox.WithTTY(int(tty["rows"].(float64)), int(tty["cols"].(float64))))
	}
	process, err := vm.Start(ctx, command, options...)
	if err != nil {
		return nil, err
	}
	defer process.Close()
	if s.Input != nil {
		for _, piece := range *s.Input {
			if _, err := process.Write([]byte(piece)); err != nil {
				return nil, err
			}
		}
		if !terminal {
			if err := process.CloseStdin(); err != nil {
				return nil, err
			}
		}
	}
	first := ""
	if s.Signal != 0 {
		first = string((<-process.Chunks()).Data)
		if err := process.Signal(syscall.Signal(s.Signal)); err != nil {
			return nil, err
		}
	}
	got, err := result(process.Wait())
	if err == nil {
		got["stdout"] = first + got["stdout"].(string)
	}
	return got, err
}

func command(args map[string]interface{}) (string, []sandbox.Option) {
	var options []sandbox.Option
	line, isLine := args["command"].(string)
	if !isLine {
		words := []string{}
		for _, word := range args["command"].([]interface{}) {
			words = append(words, word.(string))
		}
		options = append(options, sandbox.WithArgs(words...))
	}
	if directory, ok := args["working_dir"].(string); ok {
		options = append(options, sandbox.WithDir(directory))
	}
	if env, ok := args["env"].(map[string]interface{}); ok {
		variables := map[string]string{}
		for name, value := range env {
			variables[name] = value.(string)
		}
		options = append(options, sandbox.WithEnv(variables))
	}
	if stdin, ok := args["stdin"].(string); ok {
		options = append(options, sandbox.WithStdin([]byte(stdin)))
	}
	if seconds, ok := args["timeout"].(float64); ok {
		options = append(options, sandbox.WithTimeout(time.Duration(seconds*float64(time.Second))))
	}
	if most, ok := args["max_output"].(float64); ok {
		options = append(options, sandbox.WithMaxOutput(int(most)))
	}
	return line, options
}

func result(got *sandbox.ExecResult, err error) (map[string]interface{}, error) {
	if err != nil {
		return nil, err
	}
	return map[string]interface{}{
		"exit_code": float64(got.ExitCode), "stdout": got.Stdout, "stderr": got.Stderr, "signal": float64(got.Signal),
		"timed_out": got.TimedOut, "truncated": got.Truncated,
	}, nil
}
