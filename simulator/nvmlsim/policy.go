// SPDX-License-Identifier: Apache-2.0

package nvmlsim

import (
	"fmt"
	"slices"

	"github.com/gpu-dra/gpu-dra-driver/simulator/simerr"
)

// What nvidia-smi sets and NVML cannot, or what only an administrator sets.

// SetComputeMode sets the compute mode of a GPU, as an administrator would.
// Processes that are there stay. It is [simerr.ErrNotSupported] in MIG mode.
func (s *Sim) SetComputeMode(index int, mode ComputeMode) error {
	if _, ok := computeModes[string(mode)]; !ok {
		return fmt.Errorf("compute mode %q: %w: want one of %s", mode, simerr.ErrInvalid, known(computeModes))
	}
	return s.changeGPU(index, func(_ *State, g *GPUState) error {
		if g.MIGMode {
			return fmt.Errorf("compute mode of GPU %d: %w in MIG mode", index, simerr.ErrNotSupported)
		}
		g.ComputeMode = string(mode)
		return nil
	})
}

// TimeSlice is the time slice of a GPU's compute policy. It is [simerr.ErrLost]
// for a lost GPU.
func (s *Sim) TimeSlice(index int) (TimeSlice, error) {
	if err := s.checkGPU(index); err != nil {
		return "", err
	}
	st, err := s.load()
	if err != nil {
		return "", err
	}
	g := &st.GPUs[index]
	if g.Lost {
		return "", fmt.Errorf("time slice of GPU %d: %w", index, simerr.ErrLost)
	}
	if g.TimeSlice == "" {
		return TimeSliceDefault, nil
	}
	return TimeSlice(g.TimeSlice), nil
}

// SetTimeSlice sets the time slice of a GPU until the next reset or reboot. It
// is [simerr.ErrNotSupported] in MIG mode, [simerr.ErrLost] for a lost GPU.
func (s *Sim) SetTimeSlice(index int, slice TimeSlice) error {
	if !slices.Contains(TimeSlices(), slice) {
		return fmt.Errorf("time slice %q: %w: want one of %v", slice, simerr.ErrInvalid, TimeSlices())
	}
	return s.changeGPU(index, func(_ *State, g *GPUState) error {
		switch {
		case g.Lost:
			return fmt.Errorf("time slice of GPU %d: %w", index, simerr.ErrLost)
		case g.MIGMode:
			return fmt.Errorf("time slice of GPU %d: %w in MIG mode", index, simerr.ErrNotSupported)
		}
		g.TimeSlice = string(slice)
		if slice == TimeSliceDefault {
			g.TimeSlice = ""
		}
		return nil
	})
}
