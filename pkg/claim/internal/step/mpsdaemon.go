// SPDX-License-Identifier: Apache-2.0

package step

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/internal/journal"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/internal/plan"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

// addNamespace adds a namespace to a daemon unless it has one of the name.
func addNamespace(daemon *gpu.MPSDaemon, n gpu.MPSNamespace) {
	i, found := slices.BinarySearchFunc(daemon.Namespaces, n, func(a, b gpu.MPSNamespace) int { return strings.Compare(a.Name, b.Name) })
	if !found {
		daemon.Namespaces = slices.Insert(daemon.Namespaces, i, n)
	}
}

// namespaceOf returns the namespace of the clients of a device. If the driver limits the
// container, the namespace has the container's limit too: it refuses nothing that the
// driver admits, and holds if the driver counts the memory of clients as their server's.
func namespaceOf(d plan.Device) gpu.MPSNamespace {
	n := gpu.MPSNamespace{Name: d.MPS.Namespace, ThreadPercentage: d.MPS.ThreadPercentage, MemoryLimit: d.ProcessMemory()}
	if n.ThreadPercentage == 0 {
		n.ThreadPercentage = 100
	}
	return n
}

// isMixed reports whether some clients of a daemon have namespaces and some have not.
// The plan of a claim follows the claims that hold its devices, so this takes a lost
// record.
func isMixed(daemon gpu.MPSDaemon) bool { return daemon.HasNamespaces() && daemon.MemoryLimits != nil }

// hasClient reports whether the record has the limits of a client of the daemon.
func hasClient(r *journal.Record, daemon kind.Name) bool {
	return slices.ContainsFunc(r.Devices, func(d plan.Device) bool { return d.MPS != nil && d.MPS.Daemon == daemon })
}

// daemonFor returns the description of a daemon for the claim of a record and for its
// other users. The record may be nil. It has a namespace for each share, or ceilings,
// which are the limits of the largest client: a client that drops its environment gets
// these.
func daemonFor(name kind.Name, own *journal.Record, others []journal.Holder) (gpu.MPSDaemon, error) {
	daemon := gpu.MPSDaemon{Name: name.String()}
	var records []*journal.Record
	if own != nil {
		records = append(records, own)
	}
	for _, other := range others {
		if other.Began(journal.StepStartMPS, name) {
			records = append(records, other.Record)
		}
	}
	for _, r := range records {
		for _, d := range r.Devices {
			if d.MPS == nil || d.MPS.Daemon != name {
				continue
			}
			clients := []plan.Device{d}
			if d.Share == nil {
				clients = clientsOf(r, name)
			}
			devices, limits := make([]string, len(clients)), make([]uint64, len(clients))
			for i, c := range clients {
				uuid, err := r.DeviceUUID(c)
				if err != nil {
					return daemon, err
				}
				devices[i], limits[i] = uuid, c.ProcessMemory()
			}
			switch {
			case d.MPS.Namespace != "":
				if daemon.Devices == nil {
					daemon.Devices = devices
				}
				addNamespace(&daemon, namespaceOf(d))
			case daemon.MemoryLimits == nil:
				daemon.Devices, daemon.ThreadPercentage, daemon.MemoryLimits = devices, d.MPS.ThreadPercentage, limits
			default:
				raise(&daemon, d.MPS.ThreadPercentage, limits)
			}
		}
	}
	return daemon, nil
}

// raise sets each ceiling of the daemon to the higher one of its current and the
// given value. 0 stands for unlimited, the highest.
func raise(daemon *gpu.MPSDaemon, threads int, limits []uint64) {
	if threads == 0 || daemon.ThreadPercentage == 0 {
		daemon.ThreadPercentage = 0
	} else {
		daemon.ThreadPercentage = max(daemon.ThreadPercentage, threads)
	}
	for i := range daemon.MemoryLimits {
		if i >= len(limits) || limits[i] == 0 || daemon.MemoryLimits[i] == 0 {
			daemon.MemoryLimits[i] = 0
		} else {
			daemon.MemoryLimits[i] = max(daemon.MemoryLimits[i], limits[i])
		}
	}
}

// clientsOf returns the whole devices of a claim that use a daemon.
func clientsOf(r *journal.Record, daemon kind.Name) []plan.Device {
	var clients []plan.Device
	for _, d := range r.Devices {
		if d.Share == nil && d.MPS != nil && d.MPS.Daemon == daemon {
			clients = append(clients, d)
		}
	}
	return clients
}

// memoryLimits returns the memory limits of a device's clients in the form of CUDA's
// variable. It returns "" if they need none. clients are the devices of their daemon.
//
// Clients of a namespace need none: the namespace has the limit. Their own could only do
// harm: a process that sees fewer GPUs than the variable names has no limit of MPS at all,
// and launchers of multi-GPU programs hide GPUs from each process.
func memoryLimits(d plan.Device, clients []plan.Device) string {
	// A container need not have the devices of all requests, and counts the devices
	// that it has. Then only the ceilings of the daemon, which are the same, apply.
	if d.MPS.Namespace != "" || slices.ContainsFunc(clients, func(c plan.Device) bool { return c.Request != d.Request }) {
		return ""
	}
	var limits []string
	for ordinal, c := range clients {
		if most := c.ProcessMemory(); most > 0 {
			limits = append(limits, fmt.Sprintf("%d=%dM", ordinal, most/catalog.MemoryStep))
		}
	}
	return strings.Join(limits, ",")
}
