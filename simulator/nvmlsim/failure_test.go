// SPDX-License-Identifier: Apache-2.0

package nvmlsim

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"golang.org/x/sys/unix"

	"github.com/gpu-dra/gpu-dra-driver/simulator/simerr"
)

func TestErrorsOfANodeAsNVML(t *testing.T) {
	for name, tc := range map[string]struct {
		err  error
		want nvml.Return
	}{
		"none":                              {nil, nvml.SUCCESS},
		"a refusal of a change":             {fmt.Errorf("change: %w", refusal(nvml.ERROR_IN_USE)), nvml.ERROR_IN_USE},
		"no node":                           {simerr.ErrNotFound, nvml.ERROR_DRIVER_NOT_LOADED},
		"a file that is gone":               {&fs.PathError{Op: "open", Err: unix.ENOENT}, nvml.ERROR_DRIVER_NOT_LOADED},
		"a file of another user":            {&fs.PathError{Op: "open", Err: unix.EACCES}, nvml.ERROR_NO_PERMISSION},
		"a file on a read-only file system": {&fs.PathError{Op: "open", Err: unix.EROFS}, nvml.ERROR_NO_PERMISSION},
		"a full disk":                       {&fs.PathError{Op: "write", Err: unix.ENOSPC}, nvml.ERROR_UNKNOWN},
		"a node of another release":         {simerr.ErrMismatch, nvml.ERROR_LIB_RM_VERSION_MISMATCH},
		"a file that is half written":       {simerr.ErrCorrupt, nvml.ERROR_UNKNOWN},
	} {
		t.Run(name, func(t *testing.T) {
			if got := returnOf(tc.err); got != tc.want {
				t.Errorf("got %s, want %s", ReturnName(got), ReturnName(tc.want))
			}
		})
	}
}

// A later release writes states that this one cannot read, and must not replace.
func TestANodeOfALaterRelease(t *testing.T) {
	s, _ := newTestSim(t, "t4")
	later := []byte(`{"format":1000,"gpus":[{},{},{},{}]}`)
	if err := replaceFile(s.stateFile(), later, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := s.LoseGPU(0); !errors.Is(err, simerr.ErrMismatch) {
		t.Errorf("change: %v", err)
	}
	for name, open := range map[string]func() (*Sim, error){
		"open":   func() (*Sim, error) { return Open(s.root) },
		"create": func() (*Sim, error) { return Create(s.root, s.Model()) },
		"either": func() (*Sim, error) { return OpenOrCreate(s.root, s.Model()) },
	} {
		if _, err := open(); !errors.Is(err, simerr.ErrMismatch) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := replaceFile(filepath.Join(s.dir, "model.yaml"), []byte("future: 1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(s.root); !errors.Is(err, simerr.ErrMismatch) {
		t.Errorf("with a model of another release: %v", err)
	}
}
