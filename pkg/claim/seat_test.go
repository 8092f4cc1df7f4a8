// SPDX-License-Identifier: Apache-2.0

package claim_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

// The scheduler counts seats of either size as one, so the agent compares their memory.
func TestSeatsOfAnotherSizeNeverHaveMoreThanTheGPU(t *testing.T) {
	w := newShareWorld(t, t.TempDir(), 1)
	seats := func(name string, n int) error {
		_, err := w.start().Prepare(once(), pieces(name, piece{device: "gpu-00-00-seat", seats: n}))
		return err
	}
	must(t, seats("quarters", 3))
	w.shares.Units = kind.Numbers{kind.Seat: 8}
	must(t, seats("eighths", 2))
	if err := seats("more", 1); !errors.Is(err, gpu.ErrInUse) || !strings.Contains(err.Error(), "10Gi of its 80Gi memory are wanted, and 80Gi are held by 2 other claims") {
		t.Errorf("another eighth: %v, want %v", err, gpu.ErrInUse)
	}
	if diff := cmp.Diff("gpu-00-00 of GPU-0=60928M, 75%\n", w.supervisor.String()); diff != "" {
		t.Errorf("daemons (-want +got):\n%s", diff)
	}
}

// The CDI spec of seats names them, and their GPU's daemon stays while a claim without a
// record may use it.
func TestSeatsWhoseRecordIsLost(t *testing.T) {
	w := newShareWorld(t, t.TempDir(), 1)
	m, c := w.start(), pieces("c", piece{device: "gpu-00-00-seat", seats: 1})
	if _, err := m.Prepare(once(), c); err != nil {
		t.Fatal(err)
	}
	must(t, os.WriteFile(w.recordPath(c), []byte("x"), 0o600))
	m, _ = w.restart(t.Context())
	if got := w.supervisor.String(); !strings.HasPrefix(got, "gpu-00-00 of GPU-0=") {
		t.Errorf("the daemon of a claim without a record is %q", got)
	}
	for name, p := range map[string]piece{"a share": {device: "gpu-00-00", memory: "10Gi"}, "the GPU": {device: "gpu-00-00"}} {
		if _, err := m.Prepare(once(), pieces("other", p)); !errors.Is(err, gpu.ErrInUse) {
			t.Errorf("%s is prepared while a claim without a record has a seat: %v", name, err)
		}
	}
	if _, err := m.Prepare(once(), pieces("next", piece{device: "gpu-00-00-seat", seats: 1})); err != nil {
		t.Errorf("another seat: %v", err)
	}
	must(t, m.Unprepare(once(), c.UID))
	must(t, m.Unprepare(once(), pieces("next").UID))
	if got := w.supervisor.String(); got != "" {
		t.Errorf("a daemon is left: %s", got)
	}
}
