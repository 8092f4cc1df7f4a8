// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"os"
	"path/filepath"
	"testing"

	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/simulator/nvmlsim"
	"github.com/gpu-dra/gpu-dra-driver/test/files"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

// The most reported error of the driver names both releases, and a remedy that works.
func TestALibraryOfAnotherReleaseThanTheModule(t *testing.T) {
	dir := t.TempDir()
	library, module := filepath.Join(dir, "libnvidia-ml.so.580.65.06"), filepath.Join(dir, "version")
	for _, path := range []string{library, module} {
		must(t, os.WriteFile(path, []byte("570.86.15\n"), 0o600))
	}
	for name, c := range map[string]struct{ library, module, want string }{
		"an update without a reboot":       {library, module, "; the library is of 580.65.06, the kernel module of 570.86.15: reload the module nvidia or reboot the node"},
		"an update under the process":      {filepath.Join(dir, "libnvidia-ml.so.550.54.14"), module, "; the library is of 550.54.14, the kernel module of 570.86.15: the driver was updated under this process: restart it"},
		"a library that the loader finds":  {libraryName, module, "; the library is of an unknown release, the kernel module of 570.86.15: reload the module nvidia or reboot the node"},
		"a kernel without a known version": {library, filepath.Join(dir, "none"), "; the library is of 580.65.06, the kernel module of an unknown release: reload the module nvidia or reboot the node"},
	} {
		if got := mismatch(c.library, c.module); got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
	model, err := nvmlsim.LoadModel("t4")
	must(t, err)
	sim, err := nvmlsim.Create(files.ShortDir(t), model)
	must(t, err)
	must(t, sim.FailCalls(nvmlsim.CallFault{Method: "Init", Return: gonvml.ERROR_LIB_RM_VERSION_MISMATCH}))
	l := New(sim.NVML())
	l.path = library
	_, err = l.Snapshot(t.Context())
	require.Error(t, "Snapshot", err, gpu.ErrNotReady, "of 580.65.06, the kernel module of")
}
