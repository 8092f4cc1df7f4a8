// SPDX-License-Identifier: Apache-2.0

package supervisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/test/files"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

var shareOfOne = gpu.MPSDaemon{Name: "gpu-1a-00", Devices: []string{"GPU-5d32c26d-913c-5913-8d54-b1d8c2a31c3d"}, ThreadPercentage: 25}

// Double returns the options for a node whose nvidia-cuda-mps-control is the test binary.
func Double(t *testing.T) Options {
	t.Helper()
	dir := files.ShortDir(t)
	o := Options{
		kernel: ownKernel(),
		Driver: gpu.DriverRoot(filepath.Join(dir, "driver")),
		RunDir: filepath.Join(dir, "run"),
		LogDir: filepath.Join(dir, "log"),
		// The race detector has a program that ends wait for a second otherwise.
		Environment: []string{"GORACE=atexit_sleep_ms=0", fmt.Sprintf("TEST_PROCESS=%d", os.Getpid())},
		// A mount namespace needs root, and most tests need none.
		HostShm: true,
	}
	Play(t, o.Driver.Binaries(program)[0])
	return o
}

// Play makes the test binary a program at the path.
func Play(t *testing.T, path string) {
	t.Helper()
	self, err := os.Executable()
	must(t, err)
	must(t, errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.Symlink(self, path)))
}

// supervise has a supervisor run the daemon of shareOfOne until the test ends.
func supervise(t *testing.T, o Options) (*Supervisor, *daemon) {
	t.Helper()
	s, err := New(t.Context(), o)
	must(t, err)
	t.Cleanup(func() {
		if err := errors.Join(s.StopMPS(context.Background(), shareOfOne.Name), s.Close()); err != nil {
			t.Error(err)
		}
	})
	_, err = s.EnsureMPS(t.Context(), shareOfOne)
	must(t, err)
	return s, s.daemons[shareOfOne.Name]
}

var must = require.NoError
