// SPDX-License-Identifier: Apache-2.0

package cuda

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestMain lets this binary be the client: a library is loaded once a process.
func TestMain(m *testing.M) {
	if os.Getenv("CUDA_CLIENT") == "" {
		os.Exit(m.Run())
	}
	report, err := Look(96<<20, 1<<30)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	if err := json.NewEncoder(os.Stdout).Encode(report); err != nil {
		os.Exit(2)
	}
	os.Exit(0)
}

func TestMemoryIsAllocatedUntilCUDARefuses(t *testing.T) {
	var got Report
	out, err := client(t, driver(t))
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatal(err)
	}
	want := Report{Name: "Made of paper", Major: 9, Minor: 1, Multiprocessors: 33,
		TotalBytes: 80 << 30, FreeBytes: 512 << 20, TakenBytes: 480 << 20, Refusal: 2}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestErrorNamesTheFailedCall(t *testing.T) {
	for _, call := range []string{"cuInit", "cuCtxCreate_v2"} {
		out, err := client(t, driver(t), "FAIL="+call)
		if want := call + ": CUDA error 100\n"; err == nil || string(out) != want {
			t.Errorf("got %q, %v, want %q", out, err, want)
		}
	}
}

func TestMissingDriverIsReported(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "libcuda.so.1")
	if err := os.WriteFile(empty, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := client(t, filepath.Dir(empty))
	var exit *exec.ExitError
	if want := ErrNoDriver.Error() + ": " + empty; !errors.As(err, &exit) || len(out) < len(want) || string(out[:len(want)]) != want {
		t.Errorf("got %q, %v, want %q", out, err, want)
	}
}

// client runs this binary with the driver of a folder.
func client(t *testing.T, folder string, environment ...string) ([]byte, error) {
	t.Helper()
	c := exec.CommandContext(t.Context(), os.Args[0])
	c.Env = append(os.Environ(), append(environment, "CUDA_CLIENT=1", "LD_LIBRARY_PATH="+folder)...)
	return c.Output()
}

// driver compiles the one in testdata, for which cgo's compiler is there.
func driver(t *testing.T) string {
	t.Helper()
	compiler := os.Getenv("CC")
	if compiler == "" {
		compiler = "gcc"
	}
	folder := t.TempDir()
	out, err := exec.CommandContext(t.Context(), compiler, "-shared", "-fPIC", "-o", filepath.Join(folder, "libcuda.so.1"), "testdata/libcuda.c").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return folder
}
