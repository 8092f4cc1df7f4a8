package main

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// install runs the command as an init container does.
func install(t *testing.T, args ...string) (output string, err error) {
	t.Helper()
	cmd := newCommand()
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetArgs(append([]string{"install-cdi-hook"}, args...))
	err = cmd.ExecuteContext(t.Context())
	return out.String(), err
}

func TestInstallHook(t *testing.T) {
	for name, tc := range map[string]struct {
		// there is made before, at the place of the hook.
		there     func(t *testing.T, file string)
		unchanged bool
	}{
		"into a folder that is not there": {there: func(*testing.T, string) {}},
		"in place of another release": {there: func(t *testing.T, file string) {
			writeHook(t, file, "older", 0o755)
		}},
		"in place of one that nobody may run": {there: func(t *testing.T, file string) {
			writeHook(t, file, "hook", 0o600)
		}},
		"in place of a link, whose target stays": {there: func(t *testing.T, file string) {
			writeHook(t, file+".target", "hook", 0o755)
			if err := os.Symlink(file+".target", file); err != nil {
				t.Fatal(err)
			}
		}},
		"not again if it is the same": {unchanged: true, there: func(t *testing.T, file string) {
			writeHook(t, file, "hook", 0o755)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			from := filepath.Join(t.TempDir(), "nvidia-cdi-hook")
			writeHook(t, from, "hook", 0o755)
			to := filepath.Join(t.TempDir(), "host/bin")
			file := filepath.Join(to, "nvidia-cdi-hook")
			tc.there(t, file)
			before, _ := os.Lstat(file)

			out, err := install(t, "--from", from, "--to", to)
			if err != nil {
				t.Fatal(err)
			}
			if want := map[bool]string{true: "up to date", false: "installed"}[tc.unchanged]; !strings.Contains(out, want) {
				t.Errorf("printed %q, want %q", out, want)
			}
			after, err := os.Lstat(file)
			if err != nil {
				t.Fatal(err)
			}
			if after.Mode() != 0o755 {
				t.Errorf("mode %v, want an executable for everybody", after.Mode())
			}
			if got, err := os.ReadFile(file); err != nil || string(got) != "hook" {
				t.Errorf("content %q, error %v", got, err)
			}
			if same := os.SameFile(before, after); same != tc.unchanged {
				t.Errorf("the same file as before: %v, want %v", same, tc.unchanged)
			}
			if left, err := filepath.Glob(filepath.Join(to, ".*")); err != nil || len(left) > 0 {
				t.Errorf("left behind: %v, error %v", left, err)
			}
		})
	}
}

// A container that starts during an update runs the old hook or the new one.
func TestAnOpenHookStaysWhatItIsDuringAnUpdate(t *testing.T) {
	from := filepath.Join(t.TempDir(), "nvidia-cdi-hook")
	writeHook(t, from, "new", 0o755)
	to := t.TempDir()
	file := filepath.Join(to, "nvidia-cdi-hook")
	writeHook(t, file, "old", 0o755)
	running, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer running.Close() //nolint:errcheck // only read from
	if _, err := install(t, "--from", from, "--to", to); err != nil {
		t.Fatal(err)
	}
	content := make([]byte, 8)
	n, err := running.Read(content)
	if err != nil || string(content[:n]) != "old" {
		t.Errorf("the open hook reads %q, error %v", content[:n], err)
	}
}

func TestInstallHookSaysWhatIsWrong(t *testing.T) {
	from := filepath.Join(t.TempDir(), "nvidia-cdi-hook")
	writeHook(t, from, "hook", 0o755)
	if _, err := install(t, "--from", from); !errors.Is(err, gpu.ErrInvalid) || !strings.Contains(err.Error(), "--to") {
		t.Errorf("without --to: error %v", err)
	}
	to := t.TempDir()
	// The default is beside the program, and this test's has none.
	if _, err := install(t, "--to", to); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without a hook: error %v", err)
	}
	if err := os.Mkdir(filepath.Join(to, "nvidia-cdi-hook"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := install(t, "--from", from, "--to", to); err == nil || !strings.Contains(err.Error(), "is a directory") {
		t.Errorf("in place of a directory: error %v", err)
	}
}

func TestInstallHookHasHelpOfItsOwn(t *testing.T) {
	out, err := install(t, "--help")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out, "--to DIR") || strings.Contains(out, "--node-name") {
		t.Errorf("help:\n%s", out)
	}
}

func writeHook(t *testing.T, file, content string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(content), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(file, mode); err != nil {
		t.Fatal(err)
	}
}
