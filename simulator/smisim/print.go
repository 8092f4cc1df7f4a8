// SPDX-License-Identifier: Apache-2.0

package smisim

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// hasID reports whether the ID is the GPU's index, UUID or PCI address.
func (d device) hasID(id string) bool {
	return id == strconv.Itoa(d.index) || id == d.UUID || id == d.BusID || id == strings.TrimPrefix(d.BusID, "0000")
}

func printList(b *bytes.Buffer, visible []device, o options) error {
	gpus, err := choose(visible, o.ids)
	for _, g := range gpus {
		fmt.Fprintf(b, "GPU %d: %s (UUID: %s)\n", g.index, g.Name, g.UUID)
		for i, m := range g.migs {
			fmt.Fprintf(b, "  MIG %-11s Device %2d: (UUID: %s)\n", m.Profile, i, m.UUID)
		}
	}
	return err
}

// field returns the value and the unit of a field of --query-gpu, or false if it is
// unknown. A value that the simulator does not have is empty.
func (p *Program) field(name string, g device, count int) (value, unit string, known bool) {
	switch name {
	case "index":
		return strconv.Itoa(g.index), "", true
	case "name", "gpu_name":
		return g.Name, "", true
	case "uuid", "gpu_uuid":
		return g.UUID, "", true
	case "pci.bus_id", "gpu_bus_id":
		return g.BusID, "", true
	case "serial", "gpu_serial":
		return g.Serial, "", true
	case "count":
		return strconv.Itoa(count), "", true
	case "driver_version":
		return p.tables.DriverVersion, "", true
	case "memory.total":
		return strconv.FormatUint(g.MemoryMiB, 10), "MiB", true
	case "memory.reserved":
		return strconv.FormatUint(g.ReservedMiB, 10), "MiB", true
	case "memory.used", "memory.free":
		return "", "MiB", true
	case "utilization.gpu", "utilization.memory":
		return "", "%", true
	case "power.draw", "power.limit":
		return "", "W", true
	case "temperature.gpu", "fan.speed", "pstate":
		return "", "", true
	case "compute_cap":
		return g.ComputeCapability, "", true
	case "compute_mode":
		return g.ComputeMode, "", true
	case "persistence_mode":
		return g.Persistence, "", true
	case "mig.mode.current":
		return g.MIGMode, "", true
	case "mig.mode.pending":
		return g.MIGPending, "", true
	case "ecc.mode.current":
		return g.ECC, "", true
	case "ecc.mode.pending":
		return g.ECCPending, "", true
	}
	return "", "", false
}

func (p *Program) printQuery(b *bytes.Buffer, visible []device, o options) error {
	var csv, noHeader, noUnits bool
	if o.format == "" {
		return refuse(nvml.ERROR_INVALID_ARGUMENT, "\"--format=\" switch is missing. Please run 'nvidia-smi -h' for help.")
	}
	for option := range strings.SplitSeq(o.format, ",") {
		switch strings.TrimSpace(option) {
		case "csv":
			csv = true
		case "noheader":
			noHeader = true
		case "nounits":
			noUnits = true
		default:
			return refuse(nvml.ERROR_INVALID_ARGUMENT, "Unknown or invalid option for --format: %s", option)
		}
	}
	if !csv {
		return refuse(nvml.ERROR_INVALID_ARGUMENT, "Only csv is a valid --format.")
	}
	gpus, err := choose(visible, o.ids)
	if err != nil {
		return err
	}
	fields := strings.Split(o.fields, ",")
	var titles []string
	for i, name := range fields {
		fields[i] = strings.TrimSpace(name)
		_, unit, known := p.field(fields[i], gpus[0], len(visible))
		if !known {
			return refuse(nvml.ERROR_INVALID_ARGUMENT, "Field \"%s\" is not a valid field to query.", fields[i])
		}
		if unit != "" {
			unit = " [" + unit + "]"
		}
		titles = append(titles, fields[i]+unit)
	}
	if !noHeader {
		fmt.Fprintln(b, strings.Join(titles, ", "))
	}
	for _, g := range gpus {
		var cells []string
		for _, name := range fields {
			value, unit, _ := p.field(name, g, len(visible))
			if value != "" && unit != "" && !noUnits {
				value += " " + unit
			}
			cells = append(cells, cmp.Or(value, "[N/A]"))
		}
		fmt.Fprintln(b, strings.Join(cells, ", "))
	}
	return nil
}

const legend = `
Legend:

  X    = Self
  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)
  NODE = Connection traversing PCIe as well as the interconnect between PCIe Host Bridges within a NUMA node
  PHB  = Connection traversing PCIe as well as a PCIe Host Bridge (typically the CPU)
  PXB  = Connection traversing multiple PCIe bridges (without traversing the PCIe Host Bridge)
  PIX  = Connection traversing at most a single PCIe bridge
  NV#  = Connection traversing a bonded set of # NVLinks
`

func printTopology(b *bytes.Buffer, visible []device, o options) error {
	gpus, err := choose(visible, o.ids)
	if err != nil {
		return err
	}
	for _, g := range gpus {
		fmt.Fprintf(b, "\tGPU%d", g.index)
	}
	b.WriteString("\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n")
	for _, g := range gpus {
		fmt.Fprintf(b, "GPU%d", g.index)
		for _, other := range gpus {
			switch {
			case other.number == g.number:
				b.WriteString("\t X ")
			case other.number < g.number:
				b.WriteString("\t" + g.Paths[other.number])
			default:
				b.WriteString("\t" + other.Paths[g.number])
			}
		}
		fmt.Fprintf(b, "\t%s\t%s\t\t%s\n", cmp.Or(g.CPUs, "N/A"), number(g.NUMANode), number(g.MemoryNUMANode))
	}
	b.WriteString(legend)
	return nil
}

func number(n *int) string {
	if n == nil {
		return "N/A"
	}
	return strconv.Itoa(*n)
}

// The parts of the table without values.
const (
	tableTop = `+-----------------------------------------------------------------------------------------+
`
	tableTitles = `|-----------------------------------------+------------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |
|                                         |                        |               MIG M. |
|=========================================+========================+======================|
`
	tableRule = `+-----------------------------------------+------------------------+----------------------+
`
	migTitles = `
+-----------------------------------------------------------------------------------------+
| MIG devices:                                                                            |
+------------------+----------------------------------+-----------------------------------+
| GPU  GI  CI  MIG |                     Memory-Usage | Name                              |
|      ID  ID  Dev |                                  |                                   |
|==================+==================================+===================================|
`
	migRule = `+------------------+----------------------------------+-----------------------------------+
`
	tableProcesses = `
+-----------------------------------------------------------------------------------------+
| Processes: not shown, this is a simulated NVIDIA driver (gpu-sim show on the host)      |
+-----------------------------------------------------------------------------------------+
`
)

func (p *Program) printTable(b *bytes.Buffer, visible []device, o options) error {
	gpus, err := choose(visible, o.ids)
	if err != nil {
		return err
	}
	version := p.tables.DriverVersion
	b.WriteString(time.Now().Format(time.ANSIC) + "\n" + tableTop)
	fmt.Fprintf(b, "| NVIDIA-SMI %-22.22s Driver Version: %-14.14s CUDA Version: %-8.8s |\n", version, version, p.tables.CUDAVersion)
	b.WriteString(tableTitles)
	for _, g := range gpus {
		fmt.Fprintf(b, "| %3d  %-24.24s %8s  |%19s Off | %20s |\n", g.index, g.Name, onOff(g.Persistence, "On"), g.BusID, onOff(g.ECC, "0"))
		fmt.Fprintf(b, "| %-39s | %22s | %8s %11.11s |\n", "N/A   N/A  N/A              N/A / N/A", fmt.Sprintf("N/A / %dMiB", g.MemoryMiB), "N/A", g.ComputeMode)
		fmt.Fprintf(b, "| %39s | %22s | %20s |\n", "", "", cmp.Or(g.MIGMode, "N/A"))
		b.WriteString(tableRule)
	}
	if slices.ContainsFunc(gpus, func(g device) bool { return len(g.migs) > 0 }) {
		b.WriteString(migTitles)
	}
	for _, g := range gpus {
		for i, m := range g.migs {
			fmt.Fprintf(b, "| %3d %3d %3d %4d | %32s | %-33.33s |\n", g.index, m.GPUInstance, m.ComputeInstance, i, fmt.Sprintf("N/A / %dMiB", m.MemoryMiB), "MIG "+m.Profile)
			b.WriteString(migRule)
		}
	}
	b.WriteString(tableProcesses)
	return nil
}

// onOff is the table's word for a mode.
func onOff(mode, on string) string {
	switch mode {
	case "Enabled":
		return on
	case "Disabled":
		return "Off"
	default:
		return "N/A"
	}
}
