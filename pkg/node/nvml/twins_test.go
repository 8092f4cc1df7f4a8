// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"errors"
	"slices"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

// Claims name a GPU by its UUID, so neither of two with one UUID may be published as healthy.
func TestTwoGPUsWithOneUUIDAreUnreadable(t *testing.T) {
	readings := make([]reading, 4)
	for i, uuid := range []string{"GPU-a", "GPU-b", "GPU-a", ""} {
		readings[i].gpu = gpu.GPU{UUID: uuid, Address: gpu.PCIAddress{Bus: uint8(i)}}
	}
	lost := errors.New("lost")
	readings[3].err = lost
	refuseTwins(readings)
	var twins []int
	for i, r := range readings {
		if errors.Is(r.err, gpu.ErrCorrupt) {
			twins = append(twins, i)
			if r.address == nil || r.address.Bus != uint8(i) {
				t.Errorf("the address of GPU %d is %v", i, r.address)
			}
		}
	}
	if !slices.Equal(twins, []int{0, 2}) || !errors.Is(readings[3].err, lost) {
		t.Errorf("refused: %v, want 0 and 2; the lost one: %v", twins, readings[3].err)
	}
}

// emptyDevice reports 0 bytes of memory.
type emptyDevice struct{ nvml.Device }

func (emptyDevice) GetMemoryInfo() (nvml.Memory, nvml.Return) { return nvml.Memory{}, nvml.SUCCESS }

// With 0 bytes it would be published as a GPU without memory of its own.
func TestAGPUWithZeroBytesIsUnreadable(t *testing.T) {
	err := readMemory(nil, emptyDevice{}, &gpu.GPU{})
	require.Error(t, "readMemory", err, gpu.ErrCorrupt, "0 bytes")
}
