// SPDX-License-Identifier: Apache-2.0

package claim_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

func turn(name string, slice gpu.TimeSlice) *resourceapi.ResourceClaim {
	p := piece{device: "gpu-00-00-ts"}
	if slice != "" {
		p.config = interval(slice)
	}
	return pieces(name, p)
}

func TestTheFirstSetsTheIntervalAndTheLastRestoresIt(t *testing.T) {
	for _, before := range []gpu.TimeSlice{gpu.TimeSliceDefault, gpu.TimeSliceShort} {
		t.Run("from "+string(before), func(t *testing.T) {
			w := newShareWorld(t, t.TempDir(), 1)
			must(t, w.turns.SetTimeSlice(once(), gpu.PCIAddress{}, before))
			untouched := w.turns.String()
			m, other := w.start(), w.start()
			indifferent, a, b := turn("indifferent", ""), turn("a", gpu.TimeSliceLong), turn("b", gpu.TimeSliceLong)
			for i, step := range []struct {
				do   func() error
				want string
			}{
				{func() error { _, err := m.Prepare(once(), indifferent); return err }, untouched},
				{func() error { _, err := m.Prepare(once(), a); return err }, "gpu-00-00 Long\n"},
				{func() error { _, err := other.Prepare(once(), b); return err }, "gpu-00-00 Long\n"},
				{func() error { return other.Unprepare(once(), a.UID) }, "gpu-00-00 Long\n"},
				{func() error { w.restart(t.Context()); return nil }, "gpu-00-00 Long\n"},
				{func() error { return m.Unprepare(once(), b.UID) }, untouched},
				{func() error { return m.Unprepare(once(), indifferent.UID) }, untouched},
			} {
				must(t, step.do())
				if diff := cmp.Diff(step.want, w.turns.String()); diff != "" {
					t.Errorf("step %d (-want +got):\n%s", i, diff)
				}
			}
			if diff := cmp.Diff(untouched, w.left(m)); diff != "" {
				t.Errorf("left behind (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAWholeGPUWithAnInterval(t *testing.T) {
	w := newShareWorld(t, t.TempDir(), 1)
	m, c := w.start(), pieces("c", piece{device: "gpu-00-00", config: interval(gpu.TimeSliceMedium)})
	if _, err := m.Prepare(once(), c); err != nil {
		t.Fatal(err)
	}
	// Somebody changes it behind our back.
	must(t, w.turns.SetTimeSlice(once(), gpu.PCIAddress{}, gpu.TimeSliceShort))
	w.restart(t.Context())
	if diff := cmp.Diff("gpu-00-00 Medium\n", w.turns.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	must(t, m.Unprepare(once(), c.UID))
	if got := w.left(m); got != "" {
		t.Errorf("left behind:\n%s", got)
	}
}

// A time slice that cannot be restored keeps no pod from going away, and is
// restored later.
func TestAnIntervalThatCannotBeRestoredYet(t *testing.T) {
	w := newShareWorld(t, t.TempDir(), 1)
	m, c := w.start(), turn("c", gpu.TimeSliceLong)
	if _, err := m.Prepare(once(), c); err != nil {
		t.Fatal(err)
	}
	w.turns.err = errors.New("nvidia-smi: cannot be run")
	must(t, m.Unprepare(once(), c.UID))
	if diff := cmp.Diff("intervals/gpu-00-00.record\ngpu-00-00 Long\n", w.left(m)); diff != "" {
		t.Errorf("left (-want +got):\n%s", diff)
	}
	if _, err := m.Recover(t.Context()); err == nil {
		t.Error("the recovery does not tell")
	}
	w.turns.err = nil
	m, report := w.restart(t.Context())
	if got := w.left(m); got != "" || len(report.Swept["SetTimeSlice"]) != 1 {
		t.Errorf("%+v, left behind:\n%s", report, got)
	}
}

func TestWhatAnIntervalWasIsOfOneBoot(t *testing.T) {
	w := newShareWorld(t, t.TempDir(), 1)
	if _, err := w.start().Prepare(once(), turn("c", gpu.TimeSliceLong)); err != nil {
		t.Fatal(err)
	}
	w.boot++
	// It is an administrator's now.
	must(t, w.turns.SetTimeSlice(once(), gpu.PCIAddress{}, gpu.TimeSliceMedium))
	m, _ := w.restart(t.Context())
	if diff := cmp.Diff("gpu-00-00 Medium\n", w.left(m)); diff != "" {
		t.Errorf("left (-want +got):\n%s", diff)
	}
}

func TestWhatAnIntervalWasIsDamaged(t *testing.T) {
	w := newShareWorld(t, t.TempDir(), 1)
	m, a, b := w.start(), turn("a", gpu.TimeSliceLong), turn("b", gpu.TimeSliceLong)
	if _, err := m.Prepare(once(), a); err != nil {
		t.Fatal(err)
	}
	must(t, os.WriteFile(filepath.Join(w.dir, "intervals", "gpu-00-00.record"), []byte("x"), 0o600))
	if _, err := m.Prepare(once(), b); err != nil {
		t.Fatal(err)
	}
	for _, c := range []*resourceapi.ResourceClaim{a, b} {
		must(t, m.Unprepare(once(), c.UID))
	}
	if got := w.turns.String(); got != "" {
		t.Errorf("left changed:\n%s", got)
	}
}
