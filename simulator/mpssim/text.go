// SPDX-License-Identifier: Apache-2.0

package mpssim

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// WriteText writes daemons for a person to read.
func WriteText(w io.Writer, daemons []Listed) error {
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
			for _, n := range s.Namespaces {
				line("    namespace %s/%s: %s %% of threads, %s of a device", s.Name, n.Name, formatPercentage(n.ActiveThreadPercentage), formatLimit(n.PinnedMemoryLimit))
			}
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

func limits(l Limits) string {
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
