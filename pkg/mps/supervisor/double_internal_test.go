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
)

var shareOfOne = gpu.MPSDaemon{Name: "gpu-1a-00", Devices: []string{"GPU-5d32c26d-913c-5913-8d54-b1d8c2a31c3d"}, ThreadPercentage: 25}

// double is a node whose nvidia-cuda-mps-control the test binary plays.
func double(t *testing.T) Options {
	t.Helper()
	// A socket's path is to be short, t.TempDir's is not.
	dir, err := os.MkdirTemp("", "mps") //nolint:usetesting // see above
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	o := Options{
		Driver: gpu.DriverRoot(filepath.Join(dir, "driver")), RunDir: filepath.Join(dir, "run"), LogDir: filepath.Join(dir, "log"),
		HostShm: true, Environment: []string{"GORACE=atexit_sleep_ms=0", fmt.Sprintf("TEST_PROCESS=%d", os.Getpid())},
	}
	path := o.Driver.Binaries(program)[0]
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.Symlink(self, path)); err != nil {
		t.Fatal(err)
	}
	return o
}

// supervise has a supervisor run the daemon of shareOfOne until the test ends.
func supervise(t *testing.T, o Options) (*Supervisor, *daemon) {
	t.Helper()
	s, err := New(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(s.StopMPS(context.Background(), shareOfOne.Name), s.Close()); err != nil {
			t.Error(err)
		}
	})
	if _, err := s.EnsureMPS(t.Context(), shareOfOne); err != nil {
		t.Fatal(err)
	}
	return s, s.daemons[shareOfOne.Name]
}
