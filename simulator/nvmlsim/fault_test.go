// SPDX-License-Identifier: Apache-2.0

package nvmlsim

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/google/go-cmp/cmp"

	"github.com/gpu-dra/gpu-dra-driver/simulator/simerr"
)

// farAway is a deadline that no test reaches.
func farAway() time.Time { return time.Now().Add(10 * time.Minute) }

func TestCallFaultAffectsItsGPUAndEndsAfterItsCount(t *testing.T) {
	s, lib := newTestSim(t, "t4")
	other, otherLib := another(t, s)
	noError(t, other.FailCalls(CallFault{Method: "nvmlDeviceGetUUID", GPU: new(2), Count: 2, Return: nvml.ERROR_TIMEOUT}))
	if _, ret := gpuHandle(t, lib, 1).GetUUID(); ret != nvml.SUCCESS {
		t.Errorf("another GPU: %v", ret)
	}
	var got []nvml.Return
	for _, l := range []nvml.Interface{lib, otherLib, lib} {
		_, ret := gpuHandle(t, l, 2).GetUUID()
		got = append(got, ret)
	}
	if got[0] != nvml.ERROR_TIMEOUT || got[1] != nvml.ERROR_TIMEOUT || got[2] != nvml.SUCCESS {
		t.Errorf("got %v, want two time-outs and a success", got)
	}
}

func TestClearingEndsAHang(t *testing.T) {
	s, lib := newTestSim(t, "t4")
	other, _ := another(t, s)
	noError(t, s.FailCalls(CallFault{Method: "DeviceGetCount", Count: 1, Hang: Duration(time.Hour)}))
	done := make(chan nvml.Return)
	go func() {
		_, ret := lib.DeviceGetCount()
		done <- ret
	}()
	// The fault is used up as soon as the call has begun to hang.
	noError(t, other.waitUntil(time.Time{}, func(st *State) bool { return len(st.CallFaults) == 0 }))
	select {
	case ret := <-done:
		t.Fatalf("the call did not hang: %v", ret)
	default:
	}
	noError(t, other.ClearFaults())
	if ret := <-done; ret != nvml.SUCCESS {
		t.Errorf("got %v", ret)
	}
}

func TestClearFaultsRemovesAllFaults(t *testing.T) {
	s, lib := newTestSim(t, "dgx-h100")
	d := gpuHandle(t, lib, 1)
	for _, err := range []error{s.LoseGPU(0), s.LinkDown(1, 2), s.FailECC(1), s.UnloadDriver()} {
		noError(t, err)
	}
	if _, ret := d.GetUUID(); ret != nvml.ERROR_DRIVER_NOT_LOADED {
		t.Errorf("without a driver: %v", ret)
	}
	noError(t, s.ClearFaults())
	gpuHandle(t, lib, 0)
	if state := must[nvml.EnableState](t, "link")(d.GetNvLinkState(2)); state != nvml.FEATURE_ENABLED {
		t.Error("the link is still down")
	}
	if n := must[uint64](t, "ECC")(d.GetTotalEccErrors(nvml.MEMORY_ERROR_TYPE_UNCORRECTED, nvml.VOLATILE_ECC)); n != 0 {
		t.Errorf("%d ECC errors", n)
	}
}

func TestLinkGoesDownAtBothEnds(t *testing.T) {
	s, lib := newTestSim(t, "dgx1-v100")
	// Links 2 and 3 of GPU 0 are links 0 and 1 of GPU 3.
	noError(t, s.LinkDown(0, 3))
	for _, tc := range []struct {
		gpu, link int
		want      nvml.EnableState
	}{{0, 2, nvml.FEATURE_ENABLED}, {0, 3, nvml.FEATURE_DISABLED}, {3, 0, nvml.FEATURE_ENABLED}, {3, 1, nvml.FEATURE_DISABLED}} {
		if got := must[nvml.EnableState](t, "link")(gpuHandle(t, lib, tc.gpu).GetNvLinkState(tc.link)); got != tc.want {
			t.Errorf("link %d of GPU %d: %v, want %v", tc.link, tc.gpu, got, tc.want)
		}
	}
	before, err := s.State()
	noError(t, err)
	noError(t, s.LinkDown(3, 1))
	after, err := s.State()
	noError(t, err)
	if len(after.Events) != len(before.Events) {
		t.Error("a link that is down goes down again")
	}
}

func TestFaultsAreRefused(t *testing.T) {
	s, _ := newTestSim(t, "l40s")
	for name, tc := range map[string]struct{ got, want error }{
		"a GPU that is not there":   {s.LoseGPU(8), simerr.ErrNotFound},
		"a link that is not there":  {s.LinkDown(0, 0), simerr.ErrNotFound},
		"a method that is none":     {s.FailCalls(CallFault{Method: "DeviceGetNothing", Return: nvml.ERROR_UNKNOWN}), simerr.ErrInvalid},
		"a fault without effect":    {s.FailCalls(CallFault{Method: "DeviceGetCount"}), simerr.ErrInvalid},
		"a process that is unknown": {s.RemoveProcess(4), simerr.ErrNotFound},
	} {
		if !errors.Is(tc.got, tc.want) {
			t.Errorf("%s: got %v, want %v", name, tc.got, tc.want)
		}
	}
	if _, err := ParseReturn("ERROR_ODD"); !errors.Is(err, simerr.ErrInvalid) {
		t.Errorf("an unknown return code: %v", err)
	}
}

func TestAFaultLetsCallsPassFirst(t *testing.T) {
	s, lib := newTestSim(t, "t4")
	noError(t, s.FailCalls(CallFault{Method: "DeviceGetUUID", GPU: new(1), After: 2, Count: 1, Return: nvml.ERROR_UNKNOWN}))
	var got []nvml.Return
	for range 4 {
		_, ret := gpuHandle(t, lib, 1).GetUUID()
		got = append(got, ret)
		// Calls of other GPUs do not count.
		_, _ = gpuHandle(t, lib, 0).GetUUID()
	}
	want := []nvml.Return{nvml.SUCCESS, nvml.SUCCESS, nvml.ERROR_UNKNOWN, nvml.SUCCESS}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestAGPUThatHangsAnswersNoCallAndOthersDo(t *testing.T) {
	s, lib := newTestSim(t, "dgx-h100")
	other, _ := another(t, s)
	device := gpuHandle(t, lib, 2)
	noError(t, other.HangGPU(2))
	uuid, address := s.node.gpus[2].uuid, s.node.gpus[2].address.String()
	set := must[nvml.EventSet](t, "event set")(lib.EventSetCreate())
	calls := map[string]func() nvml.Return{
		"handle by index":   func() nvml.Return { _, ret := lib.DeviceGetHandleByIndex(2); return ret },
		"handle by UUID":    func() nvml.Return { _, ret := lib.DeviceGetHandleByUUID(uuid); return ret },
		"handle by address": func() nvml.Return { _, ret := lib.DeviceGetHandleByPciBusId(address); return ret },
		"name":              func() nvml.Return { _, ret := device.GetName(); return ret },
		"MIG mode":          func() nvml.Return { _, _, ret := device.GetMigMode(); return ret },
		"processes":         func() nvml.Return { _, ret := device.GetComputeRunningProcesses(); return ret },
		"events":            func() nvml.Return { return device.RegisterEvents(nvml.EventTypeXidCriticalError, set) },
	}
	done := make(chan string, len(calls))
	for name, call := range calls {
		go func() {
			if ret := call(); ret != nvml.SUCCESS {
				t.Errorf("%s: %v", name, ret)
			}
			done <- name
		}()
	}
	// What concerns another GPU or the node answers meanwhile.
	if _, ret := gpuHandle(t, lib, 1).GetName(); ret != nvml.SUCCESS {
		t.Errorf("another GPU: %v", ret)
	}
	if _, ret := lib.DeviceGetCount(); ret != nvml.SUCCESS {
		t.Errorf("the node: %v", ret)
	}
	if _, ret := set.Wait(0); ret != nvml.ERROR_TIMEOUT {
		t.Errorf("waiting for events: %v", ret)
	}
	select {
	case name := <-done:
		t.Errorf("%s did not hang", name)
	default:
	}
	noError(t, other.ClearFaults())
	for range calls {
		<-done
	}
}

func TestAGPUThatIsLostSilentlyReportsNothingAndAnswersNoCall(t *testing.T) {
	for name, heal := range map[string]func(*Sim) error{
		"reset":  func(s *Sim) error { return s.ResetGPU(1) },
		"reboot": func(s *Sim) error { return s.Reboot() },
		"clear":  func(s *Sim) error { return s.ClearFaults() },
	} {
		t.Run(name, func(t *testing.T) {
			s, lib := newTestSim(t, "t4")
			device := gpuHandle(t, lib, 1)
			set := registered(t, lib, 0, 1)
			noError(t, s.LoseGPUSilently(1))
			if data, ret := set.Wait(0); ret != nvml.ERROR_TIMEOUT {
				t.Errorf("event %+v, %v", data, ret)
			}
			if _, ret := device.GetUUID(); ret != nvml.ERROR_GPU_IS_LOST {
				t.Errorf("its UUID: %v", ret)
			}
			if _, ret := lib.DeviceGetHandleByUUID(s.node.gpus[1].uuid); ret != nvml.ERROR_GPU_IS_LOST {
				t.Errorf("its handle: %v", ret)
			}
			noError(t, heal(s))
			if _, ret := device.GetUUID(); ret != nvml.SUCCESS {
				t.Errorf("once healed: %v", ret)
			}
		})
	}
}

// The kernel's log names the process that caused an XID, and NVML does not.
func TestXIDsAreInTheKernelsLog(t *testing.T) {
	s, _ := newTestSim(t, "dgx-h100")
	for _, err := range []error{
		s.AddProcess(0, Process{PID: 5000007, Name: "train, pid=1\n", MemoryBytes: 1 << 20}),
		s.ReportXID(1, 79),
	} {
		noError(t, err)
	}
	if daemon, err := s.ReportProcessXID(5000007, 31); err != nil || daemon != "" {
		t.Errorf("daemon %q, %v", daemon, err)
	}
	if _, err := s.ReportProcessXID(5000008, 31); !errors.Is(err, simerr.ErrNotFound) {
		t.Errorf("error %v", err)
	}
	log, err := os.ReadFile(filepath.Join(s.Root(), "dev/kmsg"))
	noError(t, err)
	var got []string
	for line := range strings.Lines(string(log)) {
		_, text, _ := strings.Cut(line, ";")
		got = append(got, text)
	}
	want := []string{
		"NVRM: Xid (PCI:0000:43:00): 79, pid='<unknown>', name=<unknown>, simulated\n",
		"NVRM: Xid (PCI:0000:1b:00): 31, pid=5000007, name=train, pid=1\\x0a, simulated\n",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
