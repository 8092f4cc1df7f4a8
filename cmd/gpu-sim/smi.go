// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/spf13/cobra"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/nvmlsim"
)

// smi implements the commands of nvidia-smi that the driver needs besides NVML. Like
// the real one it exits with NVML's return codes.
func (t *tool) smi() *cobra.Command {
	var id string
	var reset bool
	c := &cobra.Command{
		Use:    "nvidia-smi [--gpu-reset -i GPU] | nvidia-smi compute-policy",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: exitAsNVML(func(c *cobra.Command) error {
			s, err := t.open()
			if err != nil {
				return err
			}
			if !reset {
				_, err := fmt.Fprintf(c.OutOrStdout(), "simulated NVIDIA driver %s: use gpu-sim show on the host\n", s.Model().DriverVersion)
				return err
			}
			return forGPUs(s, id, func(index int) error {
				if err := s.ResetGPU(index); err != nil {
					return err
				}
				_, err := fmt.Fprintf(c.OutOrStdout(), "GPU %d was successfully reset.\n", index)
				return err
			})
		}),
	}
	c.PersistentFlags().StringVarP(&id, "id", "i", "", "GPUs by index, PCI address or UUID, separated by commas; all without it")
	c.Flags().BoolVarP(&reset, "gpu-reset", "r", false, "reset an idle GPU")
	c.AddCommand(t.computePolicy(&id))
	return c
}

func (t *tool) computePolicy(id *string) *cobra.Command {
	var list bool
	var slice string
	c := &cobra.Command{
		Use:  "compute-policy [-i GPU] --list | --set-timeslice N",
		Args: cobra.NoArgs,
		RunE: exitAsNVML(func(c *cobra.Command) error {
			s, err := t.open()
			if err != nil {
				return err
			}
			switch {
			case list:
				return listPolicies(s, *id, c.OutOrStdout())
			case slice == "":
				return c.Usage()
			}
			n, err := strconv.Atoi(slice)
			if slices := gpu.TimeSlices(); err != nil || n < 0 || n >= len(slices) {
				return fmt.Errorf("timeslice %q: %w: want 0=DEFAULT, 1=SHORT, 2=MEDIUM, 3=LONG", slice, gpu.ErrInvalid)
			}
			return forGPUs(s, *id, func(index int) error {
				slice := gpu.TimeSlices()[n]
				if err := s.SetTimeSlice(index, slice); err != nil {
					return err
				}
				_, err := fmt.Fprintf(c.OutOrStdout(), "Successfully set timeslice of GPU %d to %s\n", index, strings.ToUpper(string(slice)))
				return err
			})
		}),
	}
	c.Flags().BoolVarP(&list, "list", "l", false, "list all compute policies")
	c.Flags().StringVar(&slice, "set-timeslice", "", "0=DEFAULT, 1=SHORT, 2=MEDIUM, 3=LONG")
	return c
}

func listPolicies(s *nvmlsim.Sim, id string, out io.Writer) error {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, "| %-36s |\n", fmt.Sprintf(format, args...)) }
	rule := "+" + strings.Repeat("-", 38) + "+\n"
	b.WriteString(rule)
	line("GPU compute policies:")
	line("GPU     Name             Value")
	b.WriteString("|" + strings.Repeat("=", 38) + "|\n")
	err := forGPUs(s, id, func(index int) error {
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

// forGPUs does something for every GPU that ids names, or for all.
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

// answering does something with a GPU once it answers: nvidia-smi hangs in a GPU
// that does not.
func answering(s *nvmlsim.Sim, index int, do func(int) error) error {
	if err := s.CheckAnswers(index); err != nil {
		return err
	}
	return do(index)
}

// exitError is an error with the exit status of the process.
type exitError struct {
	error
	status int
}

func (e exitError) Unwrap() error { return e.error }

// exitAsNVML assigns errors the exit status of nvidia-smi.
func exitAsNVML(run func(*cobra.Command) error) func(*cobra.Command, []string) error {
	return func(c *cobra.Command, _ []string) error {
		err := run(c)
		if err == nil {
			return nil
		}
		for sentinel, code := range map[error]nvml.Return{
			gpu.ErrInvalid:      nvml.ERROR_INVALID_ARGUMENT,
			gpu.ErrNotSupported: nvml.ERROR_NOT_SUPPORTED,
			gpu.ErrPermission:   nvml.ERROR_NO_PERMISSION,
			gpu.ErrNotFound:     nvml.ERROR_NOT_FOUND,
			gpu.ErrInUse:        nvml.ERROR_IN_USE,
			gpu.ErrLost:         nvml.ERROR_GPU_IS_LOST,
		} {
			if errors.Is(err, sentinel) {
				return exitError{err, int(code)}
			}
		}
		return err
	}
}
