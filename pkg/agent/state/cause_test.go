// SPDX-License-Identifier: Apache-2.0

package state_test

import (
	"testing"
	"time"

	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/state"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

func TestACauseIsKnownOnceTheGPUsAre(t *testing.T) {
	since := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	at := func(bus uint8) gpu.PCIAddress { return gpu.PCIAddress{Bus: bus} }
	silent := at(3)
	s := state.New(state.Fixed{})
	want := func(when string, address gpu.PCIAddress, value string, first time.Time, known bool) {
		t.Helper()
		v, f, k := s.Snapshot().CauseAt(address)
		if v != value || !f.Equal(first) || k != known {
			t.Errorf("%s: %q since %v, known %t; want %q since %v, %t", when, v, f, k, value, first, known)
		}
	}
	want("before the first scan", at(1), "", time.Time{}, false)

	hardware := state.HardwareOf(gpu.Node{
		GPUs: []gpu.GPU{
			{UUID: "GPU-1", Address: at(1)}, {UUID: "GPU-2", Address: at(2)}, {UUID: "GPU-5", Address: at(5), FabricState: gpu.FabricInProgress},
		},
		Unreadable: []gpu.Unreadable{{Index: 2, Address: &silent, Err: gpu.ErrTimeout}},
	})
	s.Hardware.Set(hardware)
	s.Conditions.Set(state.Conditions{Faults: []state.Fault{
		{UUID: "GPU-2", Address: at(2).String(), Cause: "xid-79", Since: since}, {UUID: "GPU-4", Address: at(4).String(), Cause: "xid-62", Since: since},
	}})
	want("a healthy GPU", at(1), "", time.Time{}, true)
	want("one with a fault", at(2), "xid-79", since, true)
	want("one that has never answered", silent, "timeout", time.Time{}, true)
	want("one with a fault that has never answered", at(4), "xid-62", since, true)
	want("one outside of its fabric", at(5), "fabric-not-ready", time.Time{}, true)
	want("one that the driver does not list", at(6), "lost", time.Time{}, true)

	hardware.Err = gpu.ErrNotReady
	s.Hardware.Set(hardware)
	want("one that is not listed without a driver", at(6), "", time.Time{}, false)
}

// Whether a GPU is gone decides about the containers of its claims.
func TestAGPUThatMayBeOneWithoutAnAddressIsNotGone(t *testing.T) {
	lost, other := gpu.PCIAddress{Bus: 1}, gpu.PCIAddress{Bus: 2}
	s := state.New(state.Fixed{})
	s.Hardware.Set(state.HardwareOf(gpu.Node{Unreadable: []gpu.Unreadable{{Index: 0, Err: gpu.ErrTimeout}, {Index: 1, Address: &lost, Err: gpu.ErrLost}}}))
	_, err := s.GPU(t.Context(), lost)
	require.Error(t, "the one that tells its address", err, gpu.ErrLost)
	_, err = s.GPU(t.Context(), other)
	require.Error(t, "one that is not listed", err, gpu.ErrTimeout, "it may be GPU 0")
	s.Hardware.Set(state.HardwareOf(gpu.Node{Unreadable: []gpu.Unreadable{{Index: 1, Address: &lost, Err: gpu.ErrLost}}}))
	_, err = s.GPU(t.Context(), other)
	require.Error(t, "one that is not there", err, gpu.ErrNotFound)
}
