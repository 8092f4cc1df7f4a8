// SPDX-License-Identifier: Apache-2.0

package supervisor

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// As while the driver's package is replaced.
func TestAProgramThatFailsSaysNothingOfTheDaemon(t *testing.T) {
	s, d := supervise(t, Double(t))
	before := d.snapshot().PID
	path := d.options.Driver.Binaries(program)[0]
	must(t, errors.Join(os.Rename(path, path+".away"), os.WriteFile(path, []byte("#!/bin/sh\nexit 127\n"), 0o755)))
	s.probe(d)
	if got := d.snapshot(); got.State != gpu.MPSReady || got.PID != before || !strings.Contains(got.Problem, "exit status 127") {
		t.Errorf("daemon %+v, want process %d ready, and what the program said", got, before)
	}
	must(t, os.Rename(path+".away", path))
	s.probe(d)
	if got := d.snapshot(); got.State != gpu.MPSReady || got.PID != before || got.Problem != "" {
		t.Errorf("daemon %+v, want process %d ready without a problem", got, before)
	}
}

func TestAShareIsNotGivenOnADaemonThatIsNotReady(t *testing.T) {
	s, d := supervise(t, Double(t))
	d.fail("it hangs")
	_, err := s.EnsureMPS(t.Context(), shareOfOne)
	must(t, err)
	if got := d.snapshot(); got.State != gpu.MPSReady || got.Problem != "" {
		t.Errorf("daemon %+v, want it asked and ready", got)
	}
}
