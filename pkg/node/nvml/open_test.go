// SPDX-License-Identifier: Apache-2.0

package nvml_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/node/nvml"
	conformance "github.com/gpu-dra/gpu-dra-driver/test/gpu"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

// driverRootVariable makes TestOpen read the driver installed there and print the
// result.
const driverRootVariable = "NVML_TEST_DRIVER_ROOT"

// A call of a function that the installed library lacks ends the process. go-nvml
// keeps its state in globals. So a separate process opens the old library.
func TestOpenOfADriverWithoutYoungerFunctions(t *testing.T) {
	if root := os.Getenv(driverRootVariable); root != "" {
		describeDriver(t, root)
		return
	}
	root := t.TempDir()
	must(t, os.MkdirAll(filepath.Join(root, "usr/lib64"), 0o755))
	cc := exec.CommandContext(t.Context(), "cc", "-shared", "-fPIC", "-Wl,-soname,libnvidia-ml.so.1",
		"-o", filepath.Join(root, "usr/lib64/libnvidia-ml.so.1"), "testdata/olddriver.c")
	if out, err := cc.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	self := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
	self.Env = append(os.Environ(), driverRootVariable+"="+root)
	out, err := self.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	want := `driver 450.80.02, CUDA 11.0, 1 GPUs
gpu-1b-00: 0000:1b:00.0, index 0, minor 0, GPU-8a56a4bc-e184-a047-2620-be19fdf913d5
  Tesla V100-SXM2-32GB, Tesla, Volta, compute capability 7.0, 32768 MiB
  ECC on, persistence off, compute mode Default
  NVLink 2.0
  NVLink 0-1 to 0000:1c:00.0
  NVLink 2-3 down to
event lost, XID 79, on GPU-8a56a4bc-e184-a047-2620-be19fdf913d5
`
	got, _, _ := strings.Cut(string(out), "PASS\n")
	require.Same(t, "GPUs and events", want, got)
}

func describeDriver(t *testing.T, root string) {
	l := nvml.Open(root)
	fmt.Print(conformance.Describe(snapshot(t, l)))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	must(t, l.Watch(ctx, func(e gpu.Event) {
		fmt.Printf("event %s, XID %d, on %s\n", e.Kind, e.XID, e.UUID)
		cancel()
	}))
	must(t, l.Close())
	// The library is closed, not gone.
	if node := snapshot(t, l); len(node.GPUs) != 1 {
		t.Errorf("%d GPUs after a restart of the library, want 1", len(node.GPUs))
	}
}
