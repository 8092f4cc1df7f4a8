// SPDX-License-Identifier: Apache-2.0

package nvmlsim

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// WriteText writes the view as aligned text, a table for each thing there is.
func (v View) WriteText(w io.Writer) error {
	var b strings.Builder
	v.writeNode(&b)
	table(&b, "", "GPU\tADDRESS\tUUID\tPRODUCT\tMEMORY MiB\tNUMA\tMIG\tMODES\tHEALTH", v.gpuRows())
	table(&b, "NVLinks", "GPU\tLINKS\tSTATE\tREMOTE", v.linkRows())
	table(&b, "MIG instances", "GPU\tPROFILE\tMEMORY SLICES\tGI\tCI\tUUID", v.instanceRows())
	table(&b, "Processes", "GPU\tPID\tNAME\tMEMORY MiB\tDEVICE", v.processRows())
	table(&b, "Faults in calls", "", v.CallFaults)
	table(&b, "Events", "GPU\tEVENT", v.eventRows())
	if v.MPSStartFailures != 0 {
		b.WriteString("\nMPS daemons do not come up\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (v View) writeNode(b *strings.Builder) {
	devices := "device nodes are real"
	if !v.RealDevices {
		devices = "plain files stand in for device nodes (root makes real ones)"
	}
	driver := "loaded"
	if !v.DriverLoaded {
		driver = "NOT LOADED"
	}
	fmt.Fprintf(b, "%s with %d GPUs in %s\n", v.Model, len(v.GPUs), v.Directory)
	fmt.Fprintf(b, "driver %s (CUDA %s) %s; boot %s\n", v.DriverVersion, v.CUDAVersion, driver, v.BootID)
	fmt.Fprintf(b, "%s\n", devices)
}

func (v View) gpuRows() []string {
	var rows []string
	for _, g := range v.GPUs {
		numa := "-"
		if g.NUMANode != nil {
			numa = fmt.Sprint(*g.NUMANode)
		}
		modes := []string{g.ComputeMode}
		if g.ECC != nil {
			modes = append(modes, "ECC "+onOff(*g.ECC))
		}
		if g.Persistence != nil {
			modes = append(modes, "persistence "+onOff(*g.Persistence))
		}
		if g.TimeSlice != "" {
			modes = append(modes, "time slice "+g.TimeSlice)
		}
		health := "ok"
		switch {
		case g.Lost:
			health = "LOST"
		case g.ECCErrors > 0:
			health = fmt.Sprintf("ECC ERRORS: %d", g.ECCErrors)
		}
		if g.Fabric != "" && g.Fabric != string(FabricCompleted) {
			health = strings.TrimPrefix(health+", fabric "+g.Fabric, "ok, ")
		}
		if g.Recovery != "" {
			health = strings.TrimPrefix(health+", asks for "+g.Recovery, "ok, ")
		}
		mig := g.MIG
		if mig == "" {
			mig = "none"
		}
		rows = append(rows, fmt.Sprintf("%d\t%s\t%s\t%s\t%d/%d\t%s\t%s\t%s\t%s",
			g.Index, g.Address, g.UUID, g.Product, g.UsedMiB, g.MemoryMiB, numa, mig, strings.Join(modes, ", "), health))
	}
	return rows
}

// linkRows has a row for each run of links with the same state and far end.
func (v View) linkRows() []string {
	var rows []string
	for _, g := range v.GPUs {
		for i := 0; i < len(g.Links); {
			first, j := g.Links[i], i+1
			for j < len(g.Links) && g.Links[j].Up == first.Up && g.Links[j].Remote == first.Remote && g.Links[j].Address == first.Address {
				j++
			}
			state := "up"
			if !first.Up {
				state = "DOWN"
			}
			rows = append(rows, fmt.Sprintf("%d\t%s\t%s\t%s", g.Index, span(first.Number, g.Links[j-1].Number), state, strings.TrimSpace(first.Remote+" "+first.Address)))
			i = j
		}
	}
	return rows
}

func (v View) instanceRows() []string {
	var rows []string
	for _, g := range v.GPUs {
		for _, in := range g.Instances {
			ci, uuid := "-", "no compute instance"
			if in.ComputeInstanceID != nil {
				ci, uuid = fmt.Sprint(*in.ComputeInstanceID), in.UUID
			}
			rows = append(rows, fmt.Sprintf("%d\t%s\t%s\t%d\t%s\t%s", g.Index, in.Profile, span(in.Start, in.Start+in.Size-1), in.GPUInstanceID, ci, uuid))
		}
	}
	return rows
}

func (v View) processRows() []string {
	var rows []string
	for _, g := range v.GPUs {
		for _, p := range g.Processes {
			device := p.Device
			if device == "" {
				device = "whole GPU"
			}
			rows = append(rows, fmt.Sprintf("%d\t%d\t%s\t%d\t%s", g.Index, p.PID, p.Name, p.MemoryBytes>>20, device))
		}
	}
	return rows
}

func (v View) eventRows() []string {
	var rows []string
	for _, e := range v.Events {
		name := e.Type
		if e.XID != 0 {
			name = fmt.Sprintf("%s %d", e.Type, e.XID)
		}
		rows = append(rows, fmt.Sprintf("%d\t%s", e.GPU, name))
	}
	return rows
}

// span writes a run of numbers.
func span(first, last int) string {
	if first == last {
		return fmt.Sprint(first)
	}
	return fmt.Sprintf("%d-%d", first, last)
}

// table writes a title, a header and rows of tab-separated cells, or nothing if
// there are no rows.
func table(b *strings.Builder, title, header string, rows []string) {
	if len(rows) == 0 {
		return
	}
	b.WriteByte('\n')
	if title != "" {
		b.WriteString(title + "\n")
	}
	var aligned strings.Builder
	tw := tabwriter.NewWriter(&aligned, 0, 0, 2, ' ', 0)
	if header != "" {
		rows = append([]string{header}, rows...)
	}
	// A strings.Builder takes everything.
	_, _ = io.WriteString(tw, strings.Join(rows, "\n")+"\n")
	_ = tw.Flush()
	for line := range strings.Lines(aligned.String()) {
		b.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
}
