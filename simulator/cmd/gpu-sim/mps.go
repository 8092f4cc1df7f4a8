// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"syscall"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/gpu-dra/gpu-dra-driver/simulator/mpssim"
	"github.com/gpu-dra/gpu-dra-driver/simulator/nvmlsim"
)

// mps shows the settings of the MPS daemons and the limits of their clients.
func (t *tool) mps() *cobra.Command {
	var output string
	c := &cobra.Command{
		Use:   "mps",
		Short: "Show MPS daemons, their settings, servers and clients",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			s, err := t.open()
			if err != nil {
				return err
			}
			daemons, err := mpssim.List(s)
			if err != nil {
				return err
			}
			return printAs(c.OutOrStdout(), output, daemons, func(w io.Writer) error { return mpssim.WriteText(w, daemons) })
		},
	}
	outputFlag(c, &output)
	return c
}

func outputFlag(c *cobra.Command, output *string) {
	c.Flags().StringVarP(output, "output", "o", "text", "text, json or yaml")
}

// printAs writes a value in one of the forms of outputFlag.
func printAs(w io.Writer, output string, value any, text func(io.Writer) error) error {
	var data []byte
	var err error
	switch output {
	case "text":
		return text(w)
	case "json":
		data, err = json.MarshalIndent(value, "", "  ")
		data = append(data, '\n')
	case "yaml":
		data, err = yaml.Marshal(value)
	default:
		return fmt.Errorf("output %q is none of text, json, yaml", output)
	}
	if err != nil {
		return err
	}
	_, err = w.Write(data)
	return err
}

// mpsFaults break MPS daemons.
func (t *tool) mpsFaults() *cobra.Command {
	c := &cobra.Command{Use: "mps", Short: "Break MPS daemons"}
	var count int
	start := &cobra.Command{
		Use:   "start [--count N]",
		Short: "Keep MPS daemons from coming up",
		Args:  cobra.NoArgs,
		RunE:  t.run(func(s *nvmlsim.Sim) error { return s.FailMPSStarts(count) }),
	}
	start.Flags().IntVar(&count, "count", 0, "number of starts that fail; 0 is until cleared")
	c.AddCommand(start,
		&cobra.Command{
			Use:   "charge-server",
			Short: "Let the driver count the memory of clients in the cgroup of their server, until cleared",
			Args:  cobra.NoArgs,
			RunE:  t.run(func(s *nvmlsim.Sim) error { return s.ChargeMPSServers() }),
		},
		t.signalMPS("die", "Kill running MPS daemons", syscall.SIGKILL),
		t.signalMPS("hang", "Stop running MPS daemons, which answer nothing then; clear lets them go on", syscall.SIGSTOP),
		t.signalMPS("server", "Let the servers of running MPS daemons fail as with a fatal exception of a client", syscall.SIGUSR1))
	return c
}

func (t *tool) signalMPS(use, short string, signal syscall.Signal) *cobra.Command {
	var device string
	c := &cobra.Command{
		Use:   use + " [--device UUID]",
		Short: short,
		Args:  cobra.NoArgs,
		RunE: t.run(func(s *nvmlsim.Sim) error {
			n, err := mpssim.Signal(s, device, signal)
			if err == nil && n == 0 {
				err = fmt.Errorf("no such MPS daemon is running")
			}
			return err
		}),
	}
	c.Flags().StringVar(&device, "device", "", "only daemons of this GPU or MIG device, by UUID")
	return c
}
