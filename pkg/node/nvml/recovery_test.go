// SPDX-License-Identifier: Apache-2.0

package nvml_test

import (
	"encoding/binary"
	"testing"

	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/node/nvml"
	"github.com/gpu-dra/gpu-dra-driver/simulator/nvmlsim"
)

func recoveryOf(t *testing.T, l *nvml.Library, index int) gpu.RecoveryAction {
	t.Helper()
	return snapshot(t, l).GPUs[index].Recovery
}

func TestARecoveryActionLastsUntilItsRemedy(t *testing.T) {
	for action, want := range map[gpu.RecoveryAction]struct{ afterReset, afterReboot gpu.RecoveryAction }{
		gpu.RecoveryGPUReset:      {gpu.RecoveryNone, gpu.RecoveryNone},
		gpu.RecoveryDrainP2P:      {gpu.RecoveryNone, gpu.RecoveryNone},
		gpu.RecoveryDrainAndReset: {gpu.RecoveryNone, gpu.RecoveryNone},
		gpu.RecoveryNodeReboot:    {gpu.RecoveryNodeReboot, gpu.RecoveryNone},
		gpu.RecoveryIMEXDomain:    {gpu.RecoveryIMEXDomain, gpu.RecoveryNone},
		gpu.RecoveryBusReset:      {gpu.RecoveryBusReset, gpu.RecoveryNone},
		gpu.RecoverySystemReboot:  {gpu.RecoverySystemReboot, gpu.RecoveryNone},
	} {
		t.Run(string(action), func(t *testing.T) {
			sim := simulate(t, "dgx-h100")
			l := nvml.New(sim.NVML())
			if got := recoveryOf(t, l, 3); got != gpu.RecoveryNone {
				t.Errorf("a healthy GPU asks for %q", got)
			}
			must(t, sim.SetRecovery(3, nvmlsim.RecoveryAction(action)))
			if got := recoveryOf(t, l, 3); got != action {
				t.Errorf("got %q, want %q", got, action)
			}
			if got := recoveryOf(t, l, 2); got != gpu.RecoveryNone {
				t.Errorf("the other GPU requests %q", got)
			}
			must(t, sim.ResetGPU(3))
			if got := recoveryOf(t, l, 3); got != want.afterReset {
				t.Errorf("after a reset: got %q, want %q", got, want.afterReset)
			}
			must(t, sim.Reboot())
			if got := recoveryOf(t, l, 3); got != want.afterReboot {
				t.Errorf("after a reboot: got %q, want %q", got, want.afterReboot)
			}
		})
	}
}

func TestAnUncorrectableMemoryErrorAsksForAReset(t *testing.T) {
	sim := simulate(t, "dgx-h100")
	l := nvml.New(sim.NVML())
	must(t, sim.FailECC(1))
	if got := recoveryOf(t, l, 1); got != gpu.RecoveryGPUReset {
		t.Errorf("got %q, want %q", got, gpu.RecoveryGPUReset)
	}
}

func TestAGPUWhoseDriverKnowsNoRecoveryActionsIsRead(t *testing.T) {
	for name, lib := range map[string]gonvml.Interface{
		"an old GPU":     simulate(t, "t4").NVML(),
		"an old library": withoutSymbol{simulate(t, "dgx-h100").NVML(), "nvmlDeviceGetFieldValues"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := recoveryOf(t, nvml.New(lib), 0); got != "" {
				t.Errorf("recovery action %q, which the driver does not report", got)
			}
		})
	}
}

// withoutSymbol is a library that lacks a function.
type withoutSymbol struct {
	gonvml.Interface
	symbol string
}

func (l withoutSymbol) Extensions() gonvml.ExtendedInterface { return l }

func (l withoutSymbol) LookupSymbol(name string) error {
	if name == l.symbol {
		return gonvml.ERROR_FUNCTION_NOT_FOUND
	}
	return l.Interface.Extensions().LookupSymbol(name)
}

// oneField is a driver with one GPU that answers every field with the same value.
type oneField struct {
	gonvml.Interface
	value gonvml.FieldValue
}

type oneFieldDevice struct {
	gonvml.Device
	value gonvml.FieldValue
}

func (l oneField) DeviceGetHandleByIndex(index int) (gonvml.Device, gonvml.Return) {
	d, ret := l.Interface.DeviceGetHandleByIndex(index)
	return oneFieldDevice{d, l.value}, ret
}

func (d oneFieldDevice) GetFieldValues(values []gonvml.FieldValue) gonvml.Return {
	for i := range values {
		values[i] = d.value
	}
	return gonvml.SUCCESS
}

func TestTheRecoveryActionIsDecodedByItsType(t *testing.T) {
	type reading struct {
		kind  gonvml.ValueType
		value uint64
	}
	var negative int32 = -1
	for reading, want := range map[reading]gpu.RecoveryAction{
		{gonvml.VALUE_TYPE_UNSIGNED_INT, 0xdead_0000_0000_0000 | 4}: gpu.RecoveryDrainAndReset,
		{gonvml.VALUE_TYPE_SIGNED_INT, 0xdead_0000_0000_0000 | 1}:   gpu.RecoveryGPUReset,
		{gonvml.VALUE_TYPE_UNSIGNED_SHORT, 0xdead_0000 | 2}:         gpu.RecoveryNodeReboot,
		{gonvml.VALUE_TYPE_UNSIGNED_LONG, 6}:                        gpu.RecoveryBusReset,
		{gonvml.VALUE_TYPE_UNSIGNED_LONG_LONG, 0}:                   gpu.RecoveryNone,
		{gonvml.VALUE_TYPE_SIGNED_LONG_LONG, 7}:                     gpu.RecoverySystemReboot,
		// An action that is not known yet is not "none".
		{gonvml.VALUE_TYPE_UNSIGNED_INT, 99}: gpu.RecoverySystemReboot,
		// A fraction or a negative number is ignored.
		{gonvml.VALUE_TYPE_DOUBLE, 1}:                            "",
		{gonvml.VALUE_TYPE_SIGNED_INT, uint64(uint32(negative))}: "",
		{gonvml.VALUE_TYPE_COUNT, 1}:                             "",
	} {
		value := gonvml.FieldValue{ValueType: uint32(reading.kind)}
		binary.NativeEndian.PutUint64(value.Value[:], reading.value)
		if got := recoveryOf(t, nvml.New(oneField{simulate(t, "dgx-h100").NVML(), value}), 0); got != want {
			t.Errorf("type %d, value %#x: got %q, want %q", reading.kind, reading.value, got, want)
		}
	}
}

func TestAChangedRecoveryActionIsAnEvent(t *testing.T) {
	t.Parallel()
	sim := simulate(t, "dgx-h100")
	l := nvml.New(sim.NVML())
	w := watch(t, l)
	asks := func() error {
		if err := sim.SetRecovery(2, nvmlsim.RecoveryNone); err != nil {
			return err
		}
		return sim.SetRecovery(2, nvmlsim.RecoveryGPUReset)
	}
	w.arrives(t, gpu.Event{Kind: gpu.EventXID, XID: 154, UUID: snapshot(t, l).GPUs[2].UUID}, asks)
	w.ends(t)
}

func TestARecoveryActionWithAnErrorOfItsOwnIsIgnored(t *testing.T) {
	read := func(ret gonvml.Return) gpu.Node {
		value := gonvml.FieldValue{ValueType: uint32(gonvml.VALUE_TYPE_UNSIGNED_INT), NvmlReturn: uint32(ret)}
		return snapshot(t, nvml.New(oneField{simulate(t, "t4").NVML(), value}))
	}
	if got := read(gonvml.ERROR_NOT_SUPPORTED).GPUs[0].Recovery; got != "" {
		t.Errorf("got %q of a driver that does not know the field", got)
	}
	if node := read(gonvml.ERROR_GPU_IS_LOST); len(node.GPUs) != 0 {
		t.Errorf("%d GPUs are read although the field says that they are lost", len(node.GPUs))
	}
}
