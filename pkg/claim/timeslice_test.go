// SPDX-License-Identifier: Apache-2.0

package claim_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/share"
)

// timeSliceClaim returns a claim for a time slice of the first GPU.
func timeSliceClaim(name string, slice gpu.TimeSlice) *resourceapi.ResourceClaim {
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
			must(t, w.timeSlices.SetTimeSlice(once(), gpu.PCIAddress{}, before))
			untouched := w.timeSlices.String()
			m, other := w.start(), w.start()
			indifferent, a, b := timeSliceClaim("indifferent", ""), timeSliceClaim("a", gpu.TimeSliceLong), timeSliceClaim("b", gpu.TimeSliceLong)
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
				if diff := cmp.Diff(step.want, w.timeSlices.String()); diff != "" {
					t.Errorf("step %d (-want +got):\n%s", i, diff)
				}
			}
			if diff := cmp.Diff(untouched, w.left(m)); diff != "" {
				t.Errorf("left behind (-want +got):\n%s", diff)
			}
		})
	}
}

// A claim that names memory is shown with it, and has neither MPS nor less of the slots of
// the others.
func TestATimeSliceWithMemory(t *testing.T) {
	w := newShareWorld(t, t.TempDir(), 1)
	m := w.start()
	for _, c := range []*resourceapi.ResourceClaim{
		pieces("a", piece{device: "gpu-00-00-ts", memory: "40Gi", config: interval(gpu.TimeSliceLong)}), pieces("b", piece{device: "gpu-00-00-ts", memory: "40Gi"}), pieces("c", piece{device: "gpu-00-00-ts"}),
	} {
		if _, err := m.Prepare(once(), c); err != nil {
			t.Fatal(err)
		}
	}
	m, _ = w.restart(t.Context())
	held, err := m.Held(t.Context())
	must(t, err)
	var got []share.Terms
	for _, h := range held {
		got = append(got, h.Devices[0].Terms)
	}
	want := []share.Terms{
		{Slots: 1, Share: &share.Amount{Memory: 40 << 30}, TimeSlice: gpu.TimeSliceLong},
		{Slots: 1, Share: &share.Amount{Memory: 40 << 30}},
		{Slots: 1},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("shares (-want +got):\n%s", diff)
	}
	if got := w.supervisor.String(); got != "" {
		t.Errorf("MPS daemons run: %s", got)
	}
	for _, name := range []string{"a", "b", "c"} {
		must(t, m.Unprepare(once(), types.UID("uid-"+name)))
	}
	if got := w.left(m); got != "" {
		t.Errorf("left behind:\n%s", got)
	}
}

func TestAWholeGPUWithAnInterval(t *testing.T) {
	w := newShareWorld(t, t.TempDir(), 1)
	m, c := w.start(), pieces("c", piece{device: "gpu-00-00", config: interval(gpu.TimeSliceMedium)})
	if _, err := m.Prepare(once(), c); err != nil {
		t.Fatal(err)
	}
	// An administrator changes the time slice.
	must(t, w.timeSlices.SetTimeSlice(once(), gpu.PCIAddress{}, gpu.TimeSliceShort))
	w.restart(t.Context())
	if diff := cmp.Diff("gpu-00-00 Medium\n", w.timeSlices.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	must(t, m.Unprepare(once(), c.UID))
	if got := w.left(m); got != "" {
		t.Errorf("left behind:\n%s", got)
	}
}

// A time slice that cannot be restored does not block the end of a pod, and is restored
// later.
func TestAnIntervalThatCannotBeRestoredYet(t *testing.T) {
	w := newShareWorld(t, t.TempDir(), 1)
	m, c := w.start(), timeSliceClaim("c", gpu.TimeSliceLong)
	if _, err := m.Prepare(once(), c); err != nil {
		t.Fatal(err)
	}
	w.timeSlices.err = errors.New("nvidia-smi: cannot be run")
	must(t, m.Unprepare(once(), c.UID))
	if diff := cmp.Diff("intervals/gpu-00-00.record\ngpu-00-00 Long\n", w.left(m)); diff != "" {
		t.Errorf("left (-want +got):\n%s", diff)
	}
	if _, err := m.Recover(t.Context()); err == nil {
		t.Error("the recovery returned no error")
	}
	w.timeSlices.err = nil
	m, report := w.restart(t.Context())
	if got := w.left(m); got != "" || len(report.Swept["SetTimeSlice"]) != 1 {
		t.Errorf("%+v, left behind:\n%s", report, got)
	}
}

func TestAStoredIntervalIsIgnoredAfterAReboot(t *testing.T) {
	w := newShareWorld(t, t.TempDir(), 1)
	if _, err := w.start().Prepare(once(), timeSliceClaim("c", gpu.TimeSliceLong)); err != nil {
		t.Fatal(err)
	}
	w.boot++
	// An administrator sets the time slice after the reboot.
	must(t, w.timeSlices.SetTimeSlice(once(), gpu.PCIAddress{}, gpu.TimeSliceMedium))
	m, _ := w.restart(t.Context())
	if diff := cmp.Diff("gpu-00-00 Medium\n", w.left(m)); diff != "" {
		t.Errorf("left (-want +got):\n%s", diff)
	}
}

func TestADamagedStoredIntervalIsIgnored(t *testing.T) {
	w := newShareWorld(t, t.TempDir(), 1)
	m, a, b := w.start(), timeSliceClaim("a", gpu.TimeSliceLong), timeSliceClaim("b", gpu.TimeSliceLong)
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
	if got := w.timeSlices.String(); got != "" {
		t.Errorf("left changed:\n%s", got)
	}
}
