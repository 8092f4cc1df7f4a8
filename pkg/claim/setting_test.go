// SPDX-License-Identifier: Apache-2.0

package claim_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/share"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

// newExclusiveWorld returns a world of n GPUs whose processes put GPUs with MPS shares
// into EXCLUSIVE_PROCESS.
func newExclusiveWorld(t *testing.T, n int) (*world, *computeModes) {
	t.Helper()
	w := newShareWorld(t, t.TempDir(), n)
	w.exclusive = true
	modes, ok := w.computeModes.(*computeModes)
	if !ok {
		t.Fatal("the world has other compute modes")
	}
	return w, modes
}

// mpsShare returns a claim for an MPS share of the first GPU.
func mpsShare(name string) *resourceapi.ResourceClaim {
	return pieces(name, piece{device: "gpu-00-00", memory: "20Gi"})
}

func plainShare(name string) *resourceapi.ResourceClaim {
	return pieces(name, piece{device: "gpu-00-00", memory: "20Gi", config: config("ShareConfig", plain)})
}

const exclusive = "gpu-00-00 ExclusiveProcess\n"

func TestAGPUIsExclusiveWhileItHasMPSShares(t *testing.T) {
	w, _ := newExclusiveWorld(t, 2)
	m, other := w.start(), w.start()
	a, b, elsewhere := mpsShare("a"), mpsShare("b"), pieces("elsewhere", piece{device: "gpu-01-00"})
	for i, step := range []struct {
		do   func() error
		want string
	}{
		{func() error { _, err := m.Prepare(once(), elsewhere); return err }, ""},
		{func() error { _, err := m.Prepare(once(), a); return err }, exclusive},
		{func() error { _, err := other.Prepare(once(), b); return err }, exclusive},
		{func() error { return other.Unprepare(once(), a.UID) }, exclusive},
		{func() error { w.restart(t.Context()); return nil }, exclusive},
		{func() error { return m.Unprepare(once(), b.UID) }, ""},
		{func() error { return m.Unprepare(once(), elsewhere.UID) }, ""},
	} {
		must(t, step.do())
		require.Same(t, fmt.Sprintf("step %d", i), step.want, w.modes())
		gpus, err := m.ExclusiveGPUs(t.Context())
		if err != nil || gpus[gpu.PCIAddress{}] != (step.want != "") || len(gpus) > 1 {
			t.Errorf("step %d: exclusive GPUs %v, %v", i, gpus, err)
		}
	}
	wantNothing(t, w.left(m))
	want := []string{
		"mode of gpu-00-00: ExclusiveProcess", "start gpu-00-00 of GPU-0=20480M, 25%",
		"stop gpu-00-00", "mode of gpu-00-00: Default",
	}
	require.Same(t, "order", want, w.supervisor.log)
}

func TestOnlyMPSSharesOfAGPUMakeItExclusive(t *testing.T) {
	for name, p := range map[string]piece{
		"a whole GPU":                         {device: "gpu-00-00"},
		"a whole GPU with MPS":                {device: "gpu-00-00", config: config("GpuConfig", together)},
		"a whole GPU with a ShareConfig":      {device: "gpu-00-00", config: config("ShareConfig", "")},
		"a whole GPU, shared without MPS":     {device: "gpu-00-00", config: config("ShareConfig", plain)},
		"a time slice":                        {device: "gpu-00-00-ts"},
		"a share of a GPU that limits no MPS": {device: "gpu-01-00", memory: "20Gi"},
		"a plain share of that GPU":           {device: "gpu-01-00", memory: "20Gi", config: config("ShareConfig", plain)},
	} {
		t.Run(name, func(t *testing.T) {
			w, _ := newExclusiveWorld(t, 2)
			old := w.gpus[gpu.PCIAddress{Bus: 1}]
			old.ComputeCapability = gpu.Version{Major: 6, Minor: 1}
			w.gpus[old.Address] = old
			must(t, errOf(w.start().Prepare(once(), pieces("c", p))))
			if got := w.modes(); got != "" {
				t.Errorf("compute modes:\n%s", got)
			}
		})
	}
	t.Run("shares of a MIG device", func(t *testing.T) {
		w := newMIGWorld(t, t.TempDir(), "dgx-h100").withSharing()
		w.exclusive = true
		m := w.start()
		for name, p := range map[string]piece{
			"client": {device: part, memory: "2Gi"}, "plain": {device: part, memory: "2Gi", config: config("ShareConfig", plain)},
		} {
			must(t, errOf(m.Prepare(once(), pieces(name, p))))
		}
	})
}

func TestAModeOfTheAdministratorStays(t *testing.T) {
	for _, mode := range []gpu.ComputeMode{gpu.ComputeModeExclusiveProcess, gpu.ComputeModeProhibited} {
		t.Run("set before, "+string(mode), func(t *testing.T) {
			w, modes := newExclusiveWorld(t, 1)
			must(t, modes.SetComputeMode(once(), gpu.PCIAddress{}, mode))
			untouched := w.modes()
			m, c := w.start(), mpsShare("c")
			must(t, errOf(m.Prepare(once(), c)))
			if gpus, err := m.ExclusiveGPUs(t.Context()); len(gpus) > 0 || err != nil {
				t.Errorf("it counts as the claims' mode: %v, %v", gpus, err)
			}
			m, _ = w.restart(t.Context())
			must(t, m.Unprepare(once(), c.UID))
			require.Same(t, "left", untouched, w.left(m))
		})
	}
	t.Run("set while shares are there", func(t *testing.T) {
		w, modes := newExclusiveWorld(t, 1)
		m, c := w.start(), mpsShare("c")
		must(t, errOf(m.Prepare(once(), c)))
		must(t, modes.SetComputeMode(once(), gpu.PCIAddress{}, gpu.ComputeModeProhibited))
		m, _ = w.restart(t.Context())
		must(t, m.Unprepare(once(), c.UID))
		require.Same(t, "left", "gpu-00-00 Prohibited\n", w.left(m))
	})
}

// A GPU without persistence mode forgets its mode when its last client ends.
func TestALostModeIsSetAgain(t *testing.T) {
	w, modes := newExclusiveWorld(t, 1)
	c := mpsShare("c")
	must(t, errOf(w.start().Prepare(once(), c)))
	clear(modes.now)
	m, _ := w.restart(t.Context())
	require.Same(t, "after a recovery", exclusive, w.modes())
	must(t, m.Unprepare(once(), c.UID))
	wantNothing(t, w.left(m))
}

func TestAPlainShareIsRefusedOnAnExclusiveNode(t *testing.T) {
	w, _ := newExclusiveWorld(t, 1)
	m := w.start()
	_, err := m.Prepare(once(), plainShare("c"))
	require.Error(t, "error", err, gpu.ErrNotSupported, "strategy Plain: not supported: the node keeps its GPUs in ExclusiveProcess while they have MPS shares (--exclusive-compute)")
	wantShort(t, err)
	wantNothing(t, w.left(m))
}

// Claims that were prepared with the other setting of the node keep their devices.
func TestTheSettingChangesWhileClaimsHoldShares(t *testing.T) {
	t.Run("from off to on", func(t *testing.T) {
		w, _ := newExclusiveWorld(t, 1)
		w.exclusive = false
		before, unlimited := mpsShare("before"), plainShare("plain")
		m := w.start()
		for _, c := range []*resourceapi.ResourceClaim{before, unlimited} {
			must(t, errOf(m.Prepare(once(), c)))
		}
		w.exclusive = true
		m, _ = w.restart(t.Context())
		_, err := m.Prepare(once(), mpsShare("c"))
		require.Error(t, "a plain share is there", err, gpu.ErrInUse, "by a plain share of another claim")
		if got := w.modes(); got != "" {
			t.Errorf("compute modes:\n%s", got)
		}
		must(t, m.Unprepare(once(), unlimited.UID))
		must(t, errOf(m.Prepare(once(), mpsShare("c"))))
		require.Same(t, "compute modes", exclusive, w.modes())
	})
	t.Run("from on to off", func(t *testing.T) {
		w, _ := newExclusiveWorld(t, 1)
		before := mpsShare("before")
		_, err := w.start().Prepare(once(), before)
		must(t, err)
		w.exclusive = false
		m, _ := w.restart(t.Context())
		_, err = m.Prepare(once(), plainShare("plain"))
		require.Error(t, "a plain share in an exclusive GPU", err, gpu.ErrInUse, "its compute mode is ExclusiveProcess for the MPS shares of other claims")
		c := mpsShare("c")
		must(t, errOf(m.Prepare(once(), c)))
		require.Same(t, "compute modes", exclusive, w.modes())
		must(t, m.Unprepare(once(), before.UID))
		if got := w.modes(); got != "" {
			t.Errorf("compute modes:\n%s", got)
		}
		must(t, errOf(m.Prepare(once(), plainShare("plain"))))
	})
}

func TestAModeThatCannotBeSetRefusesTheShare(t *testing.T) {
	for _, cause := range []error{gpu.ErrPermission, gpu.ErrNotSupported, gpu.ErrTimeout} {
		w, modes := newExclusiveWorld(t, 1)
		modes.err = cause
		m := w.start()
		require.Error(t, "error", errOf(m.Prepare(once(), mpsShare("c"))), cause)
		if got := w.left(m); got != "" {
			t.Errorf("%v: left behind:\n%s", cause, got)
		}
	}
}

// A mode that cannot be set back does not block the end of a pod. Until it is set back,
// the GPU goes to no claim whose processes may need another mode.
func TestAModeThatCannotBeRestoredYet(t *testing.T) {
	w, modes := newExclusiveWorld(t, 1)
	m, c, whole := w.start(), mpsShare("c"), pieces("whole", piece{device: "gpu-00-00"})
	_, err := m.Prepare(once(), c)
	must(t, err)
	modes.err = gpu.ErrTimeout
	must(t, m.Unprepare(once(), c.UID))
	require.Same(t, "left", "compute/gpu-00-00.record\n"+exclusive, w.left(m))
	require.Error(t, "a whole GPU in the mode of earlier claims", errOf(m.Prepare(once(), whole)), gpu.ErrTimeout)
	require.Error(t, "the recovery", errOf(m.Recover(t.Context())), gpu.ErrTimeout)
	modes.err = nil
	t.Run("the next claim restores it", func(t *testing.T) {
		must(t, errOf(m.Prepare(once(), whole)))
		if got := w.modes(); got != "" {
			t.Errorf("compute modes:\n%s", got)
		}
		must(t, m.Unprepare(once(), whole.UID))
	})
	t.Run("a recovery restores it", func(t *testing.T) {
		_, err := m.Prepare(once(), c)
		must(t, err)
		modes.err = gpu.ErrTimeout
		must(t, m.Unprepare(once(), c.UID))
		modes.err = nil
		m, report := w.restart(t.Context())
		if got := w.left(m); got != "" || len(report.Swept["SetComputeMode"]) != 1 {
			t.Errorf("%+v, left behind:\n%s", report, got)
		}
	})
}

// In MIG mode a GPU has no compute mode to set back.
func TestAModeOfAGPUThatIsInMIGModeNow(t *testing.T) {
	w, modes := newExclusiveWorld(t, 1)
	m, c := w.start(), mpsShare("c")
	_, err := m.Prepare(once(), c)
	must(t, err)
	modes.err = gpu.ErrNotSupported
	must(t, m.Unprepare(once(), c.UID))
	_, report := w.restart(t.Context())
	if len(report.Swept) > 0 {
		t.Errorf("report %+v", report)
	}
	modes.err = nil
	m, _ = w.restart(t.Context())
	wantNothing(t, w.left(m))
}

func TestAStoredModeIsIgnoredAfterAReboot(t *testing.T) {
	w, _ := newExclusiveWorld(t, 1)
	must(t, errOf(w.start().Prepare(once(), mpsShare("c"))))
	w.boot++ // an administrator sets the same mode after the reboot
	if gpus, err := w.start().ExclusiveGPUs(t.Context()); len(gpus) > 0 || err != nil {
		t.Errorf("it counts as the claims' mode: %v, %v", gpus, err)
	}
	m, _ := w.restart(t.Context())
	require.Same(t, "compute modes", exclusive, w.modes())
	if strings.Contains(w.left(m), "compute/") {
		t.Errorf("left behind:\n%s", w.left(m))
	}
}

// Without a readable record, the mode may be an administrator's.
func TestADamagedRecordOfAModeLeavesTheMode(t *testing.T) {
	w, _ := newExclusiveWorld(t, 1)
	m, c := w.start(), mpsShare("c")
	must(t, errOf(m.Prepare(once(), c)))
	must(t, os.WriteFile(filepath.Join(w.dir, "compute", "gpu-00-00.record"), []byte("x"), 0o600))
	if gpus, err := m.ExclusiveGPUs(t.Context()); len(gpus) > 0 || err != nil {
		t.Errorf("exclusive GPUs %v, %v", gpus, err)
	}
	must(t, m.Unprepare(once(), c.UID))
	require.Same(t, "compute modes", exclusive, w.modes())
	if _, err := os.Stat(filepath.Join(w.dir, "compute", "quarantine", "gpu-00-00.record")); err != nil {
		t.Error(err)
	}
}

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
				require.Same(t, fmt.Sprintf("step %d", i), step.want, w.timeSlices.String())
			}
			require.Same(t, "left behind", untouched, w.left(m))
		})
	}
}

// A claim that names memory is shown with it. It has neither MPS nor less of the slots of
// the others.
func TestATimeSliceWithMemory(t *testing.T) {
	w := newShareWorld(t, t.TempDir(), 1)
	m := w.start()
	for _, c := range []*resourceapi.ResourceClaim{
		pieces("a", piece{device: "gpu-00-00-ts", memory: "40Gi", config: interval(gpu.TimeSliceLong)}), pieces("b", piece{device: "gpu-00-00-ts", memory: "40Gi"}), pieces("c", piece{device: "gpu-00-00-ts"}),
	} {
		must(t, errOf(m.Prepare(once(), c)))
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
	require.Same(t, "shares", want, got)
	if got := w.supervisor.String(); got != "" {
		t.Errorf("MPS daemons run: %s", got)
	}
	for _, name := range []string{"a", "b", "c"} {
		must(t, m.Unprepare(once(), types.UID("uid-"+name)))
	}
	wantNothing(t, w.left(m))
}

func TestAWholeGPUWithAnInterval(t *testing.T) {
	w := newShareWorld(t, t.TempDir(), 1)
	m, c := w.start(), pieces("c", piece{device: "gpu-00-00", config: interval(gpu.TimeSliceMedium)})
	must(t, errOf(m.Prepare(once(), c)))
	// An administrator changes the time slice.
	must(t, w.timeSlices.SetTimeSlice(once(), gpu.PCIAddress{}, gpu.TimeSliceShort))
	w.restart(t.Context())
	require.Same(t, "time slices", "gpu-00-00 Medium\n", w.timeSlices.String())
	must(t, m.Unprepare(once(), c.UID))
	wantNothing(t, w.left(m))
}

func TestADamagedStoredIntervalIsIgnored(t *testing.T) {
	w := newShareWorld(t, t.TempDir(), 1)
	m, a, b := w.start(), timeSliceClaim("a", gpu.TimeSliceLong), timeSliceClaim("b", gpu.TimeSliceLong)
	must(t, errOf(m.Prepare(once(), a)))
	must(t, os.WriteFile(filepath.Join(w.dir, "intervals", "gpu-00-00.record"), []byte("x"), 0o600))
	must(t, errOf(m.Prepare(once(), b)))
	for _, c := range []*resourceapi.ResourceClaim{a, b} {
		must(t, m.Unprepare(once(), c.UID))
	}
	if got := w.timeSlices.String(); got != "" {
		t.Errorf("left changed:\n%s", got)
	}
}
