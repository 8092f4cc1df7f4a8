// SPDX-License-Identifier: Apache-2.0

package nvmlsim

import (
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/google/go-cmp/cmp"

	"github.com/gpu-dra/gpu-dra-driver/simulator/simerr"
)

// long is a time-out that no test reaches.
const long = 10 * 60 * 1000

// registered returns an event set with all events of some GPUs.
func registered(t *testing.T, lib nvml.Interface, indexes ...int) nvml.EventSet {
	t.Helper()
	set := must[nvml.EventSet](t, "event set")(lib.EventSetCreate())
	for _, i := range indexes {
		d := gpuHandle(t, lib, i)
		if ret := d.RegisterEvents(must[uint64](t, "types")(d.GetSupportedEventTypes()), set); ret != nvml.SUCCESS {
			t.Fatalf("register GPU %d: %v", i, ret)
		}
	}
	return set
}

// report is what a test compares of an event.
type report struct {
	UUID       string
	Type, Data uint64
}

func wait(t *testing.T, set nvml.EventSet) report {
	t.Helper()
	data := must[nvml.EventData](t, "wait")(set.Wait(long))
	return report{data.Device.(device).library.sim.node.gpus[data.Device.(device).index].uuid, data.EventType, data.EventData}
}

func TestFaultsOfAnotherProcessWakeAWaiter(t *testing.T) {
	s, lib := newTestSim(t, "dgx-h100")
	other, _ := another(t, s)
	set := registered(t, lib, 0, 1)
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		for _, err := range []error{other.ReportXID(1, 31), other.ReportXID(5, 43), other.FailECC(0), other.LinkDown(1, 4), other.LoseGPU(1)} {
			if err != nil {
				t.Error(err)
			}
		}
	})
	zero, one := s.node.gpus[0].uuid, s.node.gpus[1].uuid
	want := []report{
		{one, nvml.EventTypeXidCriticalError, 31},
		{zero, nvml.EventTypeDoubleBitEccError, 0},
		{zero, nvml.EventTypeXidCriticalError, 48},
		{zero, nvml.EventTypeXidCriticalError, 154},
		{zero, nvml.EventTypeGpuRecoveryAction, 0},
		{one, nvml.EventTypeXidCriticalError, 74},
		{one, nvml.EventTypeXidCriticalError, 79},
	}
	var got []report
	for range want {
		got = append(got, wait(t, set))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if _, ret := set.Wait(0); ret != nvml.ERROR_TIMEOUT {
		t.Errorf("nothing more to come: %v", ret)
	}
}

func TestAProgramWithItsOwnClockSeesEventsAndTheEndOfAHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, lib := newTestSim(t, "dgx-h100")
		s.PollEvents(time.Second)
		set := registered(t, lib, 0)
		start := time.Now()
		time.AfterFunc(time.Hour, func() {
			if err := s.ReportXID(0, 31); err != nil {
				t.Error(err)
			}
		})
		data, ret := set.Wait(2 * 60 * 60 * 1000)
		if took := time.Since(start); ret != nvml.SUCCESS || data.EventData != 31 || took > time.Hour+2*time.Second {
			t.Errorf("got XID %d, %v after %v, want 31 within seconds of an hour", data.EventData, ret, took)
		}
		for name, fault := range map[string]CallFault{
			"its time":      {Method: "DeviceGetUUID", Hang: Duration(time.Minute), Count: 1},
			"it is cleared": {Method: "DeviceGetUUID", Hang: untilCleared},
		} {
			noError(t, s.FailCalls(fault))
			clearing := time.AfterFunc(time.Minute, func() {
				if err := s.ClearFaults(); err != nil {
					t.Error(err)
				}
			})
			if fault.Count > 0 {
				clearing.Stop() // it ends by itself
			}
			start := time.Now()
			_, ret := gpuHandle(t, lib, 0).GetUUID()
			if took := time.Since(start); ret != nvml.SUCCESS || took < time.Minute || took > time.Minute+2*time.Second {
				t.Errorf("a call that hangs until %s returned %v after %v", name, ret, took)
			}
		}
		if ret := set.Free(); ret != nvml.SUCCESS {
			t.Error(ret)
		}
	})
}

func TestEventsBeforeTheRegistrationAreNotDelivered(t *testing.T) {
	s, lib := newTestSim(t, "dgx-h100")
	noError(t, s.ReportXID(0, 13))
	set := registered(t, lib, 0)
	if data, ret := set.Wait(0); ret != nvml.ERROR_TIMEOUT {
		t.Errorf("got %v, %v", data, ret)
	}
	noError(t, s.ReportXID(0, 14))
	if got := wait(t, set); got.Data != 14 {
		t.Errorf("got XID %d, want 14", got.Data)
	}
}

func TestShutdownEndsAWait(t *testing.T) {
	_, lib := newTestSim(t, "t4")
	set := registered(t, lib, 0)
	ended := make(chan nvml.Return)
	go func() {
		_, ret := set.Wait(long)
		ended <- ret
	}()
	succeed(t, lib.Shutdown())
	if ret := <-ended; ret != nvml.ERROR_UNINITIALIZED {
		t.Errorf("got %v", ret)
	}
	succeed(t, lib.Init())
}

func TestADriverThatDeliversToAllSets(t *testing.T) {
	s, lib := newTestSim(t, "dgx-h100")
	first, second := registered(t, lib, 0), registered(t, lib, 1)
	for _, err := range []error{s.DeliverToAllSets(true), s.ReportXID(1, 31), s.DeliverToAllSets(false), s.ReportXID(0, 13), s.ReportXID(1, 43)} {
		noError(t, err)
	}
	// The setting of the time of the wait counts.
	if got := wait(t, first); got.Data != 13 {
		t.Errorf("event %+v, want the set's own", got)
	}
	noError(t, s.DeliverToAllSets(true))
	uuid := s.node.gpus[1].uuid
	for _, c := range []struct {
		set  nvml.EventSet
		data uint64
	}{{first, 43}, {second, 31}} {
		if diff := cmp.Diff(report{uuid, nvml.EventTypeXidCriticalError, c.data}, wait(t, c.set)); diff != "" {
			t.Errorf("event (-want +got):\n%s", diff)
		}
	}
}

func TestWaitEndsWhenTheEventSetIsFreed(t *testing.T) {
	_, lib := newTestSim(t, "t4")
	set := registered(t, lib, 0)
	if ret := set.Free(); ret != nvml.SUCCESS {
		t.Fatal(ret)
	}
	if _, ret := set.Wait(long); ret == nvml.SUCCESS || ret == nvml.ERROR_TIMEOUT {
		t.Errorf("got %v", ret)
	}
}

func TestAnXIDOfAMIGDeviceNamesItsInstances(t *testing.T) {
	s, lib := newTestSim(t, "dgx-h100")
	d := migOn(t, lib, 1)
	var migs []nvml.Device
	for start := range uint32(2) {
		ci := spanning(t, place(t, d, nvml.GPU_INSTANCE_PROFILE_1_SLICE, start, 1), nvml.COMPUTE_INSTANCE_PROFILE_1_SLICE)
		migs = append(migs, must[nvml.ComputeInstanceInfo](t, "info")(ci.GetInfo()).Device)
	}
	first, second := migs[0], migs[1]
	set := registered(t, lib, 0, 1)
	uuid := must[string](t, "UUID")(second.GetUUID())
	for _, err := range []error{s.ReportMIGXID(uuid, 94), s.ReportXID(1, 79)} {
		noError(t, err)
	}
	of := func(mig nvml.Device) [2]uint32 {
		return [2]uint32{uint32(must[int](t, "GI")(mig.GetGpuInstanceId())), uint32(must[int](t, "CI")(mig.GetComputeInstanceId()))}
	}
	if of(first) == of(second) {
		t.Fatalf("both devices have the instances %v", of(first))
	}
	for _, want := range []struct {
		data      uint64
		instances [2]uint32
	}{{94, of(second)}, {79, [2]uint32{noInstance, noInstance}}} {
		got := must[nvml.EventData](t, "wait")(set.Wait(long))
		if got.Device != d || got.EventData != want.data || [2]uint32{got.GpuInstanceId, got.ComputeInstanceId} != want.instances {
			t.Errorf("event %+v, want XID %d of the instances %v of GPU 1", got, want.data, want.instances)
		}
	}
	if err := s.ReportMIGXID("MIG-00000000-0000-0000-0000-000000000000", 94); !errors.Is(err, simerr.ErrNotFound) {
		t.Errorf("XID of a MIG device that no GPU has: %v", err)
	}
}
