// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/gpu-dra/gpu-dra-driver/pkg/nvmlsim"
	"github.com/gpu-dra/gpu-dra-driver/pkg/nvmlsim/mpssim"
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
			return printAs(c.OutOrStdout(), output, daemons, func(w io.Writer) error { return writeMPS(w, daemons) })
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

func writeMPS(w io.Writer, daemons []mpssim.Listed) error {
	if len(daemons) == 0 {
		_, err := fmt.Fprintln(w, "no MPS daemon has run on this node")
		return err
	}
	var b strings.Builder
	tw := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	// A strings.Builder takes everything.
	line := func(format string, args ...any) { _, _ = fmt.Fprintf(tw, format+"\n", args...) }
	for _, d := range daemons {
		state := "ended"
		if d.Running {
			state = fmt.Sprintf("runs as process %d", d.PID)
		}
		line("daemon in %s: %s", d.PipeDirectory, state)
		if d.Record == nil {
			continue
		}
		line("  devices %s, started %d times, defaults: %s", strings.Join(d.Record.Devices, ", "), d.Record.Starts, limits(d.Record.Defaults))
		for _, s := range d.Record.Servers {
			line("  server %d of user %d: %s, limits: %s", s.PID, s.UID, s.Status, limits(s.Limits))
			if len(s.Clients) > 0 {
				line("    CLIENT\tUSER\tTHREADS %%\tDEVICE\tLIMIT MiB\tUSED MiB\tPEAK MiB\tENDED")
			}
			for _, c := range s.Clients {
				for _, device := range c.Devices {
					line("    %d\t%d\t%g\t%s\t%s\t%d\t%d\t%s", c.PID, c.UID, c.ActiveThreadPercentage,
						device.UUID, mib(device.LimitBytes), device.UsedBytes>>20, device.PeakBytes>>20, c.Ended)
				}
			}
		}
		for _, r := range d.Record.Refused {
			line("  refused client %d of user %d: %s", r.PID, r.UID, r.Error.Error())
		}
	}
	_ = tw.Flush()
	_, err := io.WriteString(w, b.String())
	return err
}

func limits(l mpssim.Limits) string {
	parts := []string{fmt.Sprintf("%g %% of threads", l.ActiveThreadPercentage)}
	for _, d := range l.DeviceMemory {
		parts = append(parts, fmt.Sprintf("%s MiB of device %s", mib(d.Bytes), d.Device))
	}
	return strings.Join(parts, ", ")
}

func mib(bytes uint64) string {
	if bytes == 0 {
		return "none"
	}
	return fmt.Sprint(bytes >> 20)
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
			n, err := signalDaemons(s, device, signal)
			if err == nil && n == 0 {
				err = fmt.Errorf("no such MPS daemon is running")
			}
			return err
		}),
	}
	c.Flags().StringVar(&device, "device", "", "only daemons of this GPU or MIG device, by UUID")
	return c
}

// signalDaemons sends a signal to the running daemons of a device, or to all.
func signalDaemons(s *nvmlsim.Sim, device string, signal syscall.Signal) (n int, err error) {
	daemons, err := mpssim.List(s)
	if err != nil {
		return 0, err
	}
	for _, d := range daemons {
		ofDevice := d.Record != nil && slices.Contains(d.Record.Devices, device)
		if !d.Running || device != "" && !ofDevice {
			continue
		}
		if err := syscall.Kill(d.PID, signal); err != nil {
			return n, fmt.Errorf("MPS daemon %d in %s: %w", d.PID, d.PipeDirectory, err)
		}
		n++
	}
	return n, nil
}
