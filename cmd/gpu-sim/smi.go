// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/gpu-dra/gpu-dra-driver/pkg/nvmlsim"
	"github.com/gpu-dra/gpu-dra-driver/pkg/nvmlsim/smisim"
)

// smi is nvidia-smi. Its flags are the real one's, which are not in the style of this
// tool.
func (t *tool) smi() *cobra.Command {
	var ids, mode string
	var reset bool
	c := &cobra.Command{
		Use:    "nvidia-smi [--gpu-reset | -c MODE] [-i GPU] | nvidia-smi compute-policy",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: t.runSMI(func(c *cobra.Command, s *nvmlsim.Sim) error {
			switch {
			case reset:
				return smisim.Reset(s, ids, c.OutOrStdout())
			case mode != "":
				return smisim.SetComputeMode(s, ids, mode, c.OutOrStdout())
			}
			_, err := fmt.Fprintf(c.OutOrStdout(), "simulated NVIDIA driver %s: use gpu-sim show on the host\n", s.Model().DriverVersion)
			return err
		}),
	}
	c.PersistentFlags().StringVarP(&ids, "id", "i", "", "GPUs by index, PCI address or UUID, separated by commas; all without it")
	c.Flags().BoolVarP(&reset, "gpu-reset", "r", false, "reset an idle GPU")
	c.Flags().StringVarP(&mode, "compute-mode", "c", "", "DEFAULT, PROHIBITED or EXCLUSIVE_PROCESS")
	c.AddCommand(t.computePolicy(&ids))
	return c
}

func (t *tool) computePolicy(ids *string) *cobra.Command {
	var list bool
	var slice string
	c := &cobra.Command{
		Use:  "compute-policy [-i GPU] --list | --set-timeslice N",
		Args: cobra.NoArgs,
		RunE: t.runSMI(func(c *cobra.Command, s *nvmlsim.Sim) error {
			switch {
			case list:
				return smisim.ListPolicies(s, *ids, c.OutOrStdout())
			case slice == "":
				return c.Usage()
			}
			return smisim.SetTimeSlice(s, *ids, slice, c.OutOrStdout())
		}),
	}
	c.Flags().BoolVarP(&list, "list", "l", false, "list all compute policies")
	c.Flags().StringVar(&slice, "set-timeslice", "", "0=DEFAULT, 1=SHORT, 2=MEDIUM, 3=LONG")
	return c
}

// exitError is an error with the exit status of the process.
type exitError struct {
	error
	status int
}

func (e exitError) Unwrap() error { return e.error }

// runSMI opens the node for a command of nvidia-smi, which ends with the status of
// nvidia-smi.
func (t *tool) runSMI(do func(*cobra.Command, *nvmlsim.Sim) error) func(*cobra.Command, []string) error {
	return func(c *cobra.Command, args []string) error {
		err := t.run(func(s *nvmlsim.Sim) error { return do(c, s) })(c, args)
		if err != nil {
			return exitError{err, smisim.ExitStatus(err)}
		}
		return nil
	}
}
