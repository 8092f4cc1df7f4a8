// SPDX-License-Identifier: Apache-2.0

package smisim

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-dra/gpu-dra-driver/simulator/nvmlsim"
	"github.com/gpu-dra/gpu-dra-driver/simulator/simerr"
)

// resetGPUs resets idle GPUs.
func resetGPUs(s *nvmlsim.Sim, ids string, out io.Writer) error {
	return forGPUs(s, ids, func(index int) error {
		if err := s.ResetGPU(index); errors.Is(err, simerr.ErrInUse) {
			// The real program does not name the processes, and has no exit status for it.
			return refuse(255, "The following GPUs could not be reset:\n  GPU %s: In use by another client\n\n"+
				"1 device is currently being used by one or more other processes (e.g., Fabric Manager, CUDA application, "+
				"graphics application such as an X server, or a monitoring application such as another instance of nvidia-smi). "+
				"Please first kill all processes using this device and all compute applications running in the system.", "0000"+strings.ToUpper(s.Model().GPUs[index].Address))
		} else if err != nil {
			return err
		}
		_, err := fmt.Fprintf(out, "GPU %d was successfully reset.\n", index)
		return err
	})
}

// setTimeSlice sets the time slice of GPUs to the one with the number.
func setTimeSlice(s *nvmlsim.Sim, ids, number string, out io.Writer) error {
	known := nvmlsim.TimeSlices()
	n, err := strconv.Atoi(number)
	if err != nil || n < 0 || n >= len(known) {
		return fmt.Errorf("timeslice %q: %w: want 0=DEFAULT, 1=SHORT, 2=MEDIUM, 3=LONG", number, simerr.ErrInvalid)
	}
	return forGPUs(s, ids, func(index int) error {
		if err := s.SetTimeSlice(index, known[n]); err != nil {
			return err
		}
		_, err := fmt.Fprintf(out, "Successfully set timeslice of GPU %d to %s\n", index, strings.ToUpper(string(known[n])))
		return err
	})
}

// setComputeMode sets the compute mode of GPUs, by NVML's name or number.
func setComputeMode(s *nvmlsim.Sim, ids, mode string, out io.Writer) error {
	i := slices.IndexFunc(computeModes, func(m computeMode) bool { return m.name == mode || strconv.Itoa(int(m.mode)) == mode })
	if i < 0 {
		return fmt.Errorf("compute mode %q: %w: want DEFAULT (0), PROHIBITED (2) or EXCLUSIVE_PROCESS (3)", mode, simerr.ErrInvalid)
	}
	return forDevices(s, ids, func(index int, device nvml.Device) error {
		if ret := device.SetComputeMode(computeModes[i].mode); ret != nvml.SUCCESS {
			return refused(fmt.Sprintf("set the compute mode of GPU %d", index), ret)
		}
		_, err := fmt.Fprintf(out, "Set compute mode to %s for GPU %s.\n", computeModes[i].name, s.Model().GPUs[index].Address)
		return err
	})
}

// forDevices calls do with NVML's handle of every GPU that ids names, or of all.
func forDevices(s *nvmlsim.Sim, ids string, do func(index int, device nvml.Device) error) error {
	lib := s.NVML()
	if ret := lib.Init(); ret != nvml.SUCCESS {
		return refused("start NVML", ret)
	}
	err := forGPUs(s, ids, func(index int) error {
		device, ret := lib.DeviceGetHandleByIndex(index)
		if ret != nvml.SUCCESS {
			return refused(fmt.Sprintf("find GPU %d", index), ret)
		}
		return do(index, device)
	})
	if ret := lib.Shutdown(); ret != nvml.SUCCESS {
		err = errors.Join(err, refused("stop NVML", ret))
	}
	return err
}

type computeMode struct {
	name string
	mode nvml.ComputeMode
}

// computeModes lists the modes that a GPU can be set to.
var computeModes = []computeMode{
	{"DEFAULT", nvml.COMPUTEMODE_DEFAULT},
	{"PROHIBITED", nvml.COMPUTEMODE_PROHIBITED},
	{"EXCLUSIVE_PROCESS", nvml.COMPUTEMODE_EXCLUSIVE_PROCESS},
}

func refused(operation string, ret nvml.Return) error {
	return refuse(ret, "%s: %s", operation, nvmlsim.ReturnName(ret))
}

// listPolicies lists the compute policies of GPUs.
func listPolicies(s *nvmlsim.Sim, ids string, out io.Writer) error {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, "| %-36s |\n", fmt.Sprintf(format, args...)) }
	rule := "+" + strings.Repeat("-", 38) + "+\n"
	b.WriteString(rule)
	line("GPU compute policies:")
	line("GPU     Name             Value")
	b.WriteString("|" + strings.Repeat("=", 38) + "|\n")
	err := forGPUs(s, ids, func(index int) error {
		slice, err := s.TimeSlice(index)
		line("%3d     %-16s %s", index, "Timeslice", slice)
		return err
	})
	if err != nil {
		return err
	}
	b.WriteString(rule)
	_, err = io.WriteString(out, b.String())
	return err
}

// forGPUs calls do for every GPU that ids names, or for all.
func forGPUs(s *nvmlsim.Sim, ids string, do func(index int) error) error {
	if ids == "" {
		for index := range s.Model().GPUs {
			if err := answering(s, index, do); err != nil {
				return err
			}
		}
		return nil
	}
	for id := range strings.SplitSeq(ids, ",") {
		index, err := s.FindGPU(id)
		if err != nil {
			return err
		}
		if err := answering(s, index, do); err != nil {
			return err
		}
	}
	return nil
}

// answering calls do once the GPU answers: nvidia-smi hangs in a GPU that does not.
func answering(s *nvmlsim.Sim, index int, do func(int) error) error {
	if err := s.CheckAnswers(index); err != nil {
		return err
	}
	return do(index)
}

// ExitStatus returns the exit status of nvidia-smi for an error of [Program.Run]. It is the
// return code of NVML, and 1 for any other error.
func ExitStatus(err error) int {
	var refused refusal
	if errors.As(err, &refused) {
		return int(refused.status)
	}
	for _, known := range []struct {
		err  error
		code nvml.Return
	}{
		{simerr.ErrInvalid, nvml.ERROR_INVALID_ARGUMENT},
		{simerr.ErrNotSupported, nvml.ERROR_NOT_SUPPORTED},
		{simerr.ErrPermission, nvml.ERROR_NO_PERMISSION},
		{simerr.ErrNotFound, nvml.ERROR_NOT_FOUND},
		{simerr.ErrInUse, nvml.ERROR_IN_USE},
		{simerr.ErrLost, nvml.ERROR_GPU_IS_LOST},
	} {
		if errors.Is(err, known.err) {
			return int(known.code)
		}
	}
	return 1
}
