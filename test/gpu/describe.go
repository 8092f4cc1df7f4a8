// SPDX-License-Identifier: Apache-2.0

// Package conformance checks that the GPUs of a node behave as the driver expects. It
// runs on the simulator in each run of the tests, and as one test binary on a machine
// with GPUs:
//
//	go test -c -o gpu-conformance ./test/gpu
//	./gpu-conformance -test.v -hardware=nvml -capture node.yaml
//
// It reads the GPUs, and lets MPS share an idle one. It does not change settings of
// the machine. Checks that cannot run are skipped with a reason. It prints the node,
// and with -capture writes it as a model for the simulator. A captured model has no
// serial numbers and UUIDs; the simulator derives UUIDs from the model's name and the
// PCI addresses.
package conformance

import (
	"fmt"
	"strings"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// Describe prints a node for people and golden files. A fact that is absent is
// not printed.
func Describe(n gpu.Node) string {
	var b strings.Builder
	fmt.Fprintf(&b, "driver %s, CUDA %d.%d, %d GPUs\n", n.DriverVersion, n.CUDADriverVersion.Major, n.CUDADriverVersion.Minor, len(n.GPUs))
	for _, g := range n.GPUs {
		describeGPU(&b, g)
	}
	for _, u := range n.Unreadable {
		address := "unknown address"
		if u.Address != nil {
			address = u.Address.String()
		}
		fmt.Fprintf(&b, "unreadable: index %d, %s: %v\n", u.Index, address, u.Err)
	}
	return b.String()
}

func describeGPU(b *strings.Builder, g gpu.GPU) {
	fmt.Fprintf(b, "%s: %s, index %d, minor %d, %s\n", g.Address.DeviceName(), g.Address, g.Index, g.Minor, g.UUID)
	line(b, g.ProductName,
		g.Brand,
		g.Architecture,
		known("compute capability %d.%d", !g.ComputeCapability.IsZero(), g.ComputeCapability.Major, g.ComputeCapability.Minor),
		known("%d SMs", g.Multiprocessors != 0, g.Multiprocessors),
		fmt.Sprintf("%d MiB", g.MemoryBytes>>20),
		known("%d MiB of it reserved", g.ReservedBytes != 0, g.ReservedBytes>>20))
	var numa string
	if g.NUMANode != nil {
		numa = fmt.Sprintf("NUMA node %d", *g.NUMANode)
	}
	line(b, numa, known("CPUs %s", g.CPUs != "", g.CPUs), known("near NUMA nodes %v", len(g.NearNUMANodes) > 1, g.NearNUMANodes),
		known("PCIe root %s", g.PCIeRoot != "", g.PCIeRoot))
	for _, n := range g.NICs {
		line(b, fmt.Sprintf("  network adapter %s", n.Address), strings.Join(n.RDMADevices, " "))
	}
	line(b,
		onOff("ECC", g.ECCEnabled),
		onOff("persistence", g.PersistenceMode),
		known("addressing mode %s", g.AddressingMode != "", g.AddressingMode),
		known("compute mode %s", g.ComputeMode != "", g.ComputeMode),
		known("recovery action %s", g.Recovery != "", g.Recovery))
	describeMIG(b, g.MIG)
	line(b, known("NVLink %d.%d", !g.NVLinkVersion.IsZero(), g.NVLinkVersion.Major, g.NVLinkVersion.Minor))
	describeLinks(b, g.Links)
	var fabric string
	if g.Fabric != nil {
		fabric = fmt.Sprintf("fabric %s, clique %d", g.Fabric.ClusterUUID, g.Fabric.CliqueID)
	}
	line(b, fabric, known("fabric registration %s", g.FabricState != "", g.FabricState))
}

func describeMIG(b *strings.Builder, m gpu.MIG) {
	if !m.Capable {
		return
	}
	line(b, onOff("MIG", &m.Enabled), known("%s after a reset", m.Enabled != m.PendingEnabled, onOff("", &m.PendingEnabled)))
	for _, p := range m.Profiles {
		var starts []string
		size := 0
		for _, at := range p.Placements {
			starts = append(starts, fmt.Sprint(at.Start))
			size = at.Size
		}
		line(b, fmt.Sprintf("  profile %d %s: %d slices", p.ID, p.Profile, p.ComputeSlices),
			fmt.Sprintf("%d SMs", p.Multiprocessors),
			fmt.Sprintf("%d MiB", p.MemoryBytes>>20),
			fmt.Sprintf("%d CE %d DEC %d ENC %d JPEG %d OFA", p.CopyEngines, p.Decoders, p.Encoders, p.JPEGs, p.OFAs),
			fmt.Sprintf("at most %d", p.MaxInstances),
			known("size %d at %s", len(starts) > 0, size, strings.Join(starts, " ")))
	}
	for _, p := range m.Partitions {
		line(b, fmt.Sprintf("  partition %s at %d size %d", p.Profile, p.Placement.Start, p.Placement.Size),
			fmt.Sprintf("instance %d/%d", p.GPUInstanceID, p.ComputeInstanceID), p.UUID)
	}
}

// describeLinks prints runs of links with the same far end as one.
func describeLinks(b *strings.Builder, links []gpu.Link) {
	for first := 0; first < len(links); {
		last := first
		for last+1 < len(links) && links[last+1].Number == links[last].Number+1 && farEnd(links[last+1]) == farEnd(links[first]) {
			last++
		}
		numbers := fmt.Sprint(links[first].Number)
		if last > first {
			numbers += fmt.Sprintf("-%d", links[last].Number)
		}
		line(b, "NVLink "+numbers+" "+farEnd(links[first]))
		first = last + 1
	}
}

func farEnd(l gpu.Link) string {
	end := "to"
	if !l.Active {
		end = "down to"
	}
	if l.Remote != "" {
		end += " " + string(l.Remote)
	}
	if l.RemoteAddress != nil {
		end += " " + l.RemoteAddress.String()
	}
	return end
}

// line writes the facts that are known.
func line(b *strings.Builder, facts ...string) {
	var told []string
	for _, f := range facts {
		if f != "" {
			told = append(told, f)
		}
	}
	if len(told) > 0 {
		fmt.Fprintf(b, "  %s\n", strings.Join(told, ", "))
	}
}

func known(format string, is bool, args ...any) string {
	if !is {
		return ""
	}
	return fmt.Sprintf(format, args...)
}

func onOff(name string, on *bool) string {
	switch {
	case on == nil:
		return ""
	case *on:
		return strings.TrimSpace(name + " on")
	default:
		return strings.TrimSpace(name + " off")
	}
}
