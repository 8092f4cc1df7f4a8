// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"

	agentv1 "github.com/gpu-dra/gpu-dra-driver/api/agent/v1"
	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

// Readings are facts about the use of GPUs at one time.
type Readings struct {
	// GPUs that answered.
	GPUs map[gpu.PCIAddress]Reading
	// Limited are the containers that the driver limits.
	Limited []Limited
	// Uses reports whether a container uses a claim, by the kubelet's list; nil for
	// no. It is called only for containers of pods with several claims on one device.
	Uses func(c Container, claim claim.Ref) bool
}

// Reading has the processes of one GPU.
type Reading struct {
	// Partitions of a GPU in MIG mode.
	Partitions []gpu.Partition
	// Processes of pods.
	Processes []Process
	// HasSM is set if the driver measures how processes use the multiprocessors.
	HasSM bool
}

// Process is a process of a container on a GPU.
type Process struct {
	Container
	// MemoryBytes is 0 if the driver does not report it.
	MemoryBytes uint64
	// GPUInstance is nil on a GPU that is not in MIG mode.
	GPUInstance *int
	// SM is the part of the time for which it uses the multiprocessors; nil without a
	// sample.
	SM *float64
}

// Container is a container of a pod. The names are empty if they are not known.
type Container struct {
	PodUID, ID string
	Pod, Name  string
}

// Limited is the memory of a container on a GPU, as the driver limits and counts it.
type Limited struct {
	Address gpu.PCIAddress
	Container
	gpu.MemoryLimit
	// Devices by which the container has memory of the GPU.
	Devices []LimitedDevice
}

// LimitedDevice is a device of a claim by which a container has so much memory.
type LimitedDevice struct {
	Claim  types.UID
	Device string
	Bytes  uint64
}

// ReportOf returns the use of a node by its claims. Processes are counted once, for the claims of
// their pod on the device: of several claims for the one that the container uses, and if it
// uses several of them in proportion to their memory. A container that the driver limits
// has the memory that the driver counts.
func ReportOf(claims []claim.Claim, node Node, readings Readings) agentv1.Report {
	all := rows{}
	holders := map[gpu.PCIAddress][]*holder{}
	for _, c := range claims {
		for _, d := range c.Devices {
			if d.Name.Kind.Scope() == kind.ScopeNode {
				continue // to monitor GPUs, not to use them
			}
			h := newHolder(c, d, node, readings.GPUs[d.Name.Address])
			h.addPromise(all, node)
			// A claim can have several shares of a device.
			same := func(other *holder) bool { return other.labels == h.labels }
			if at := slices.IndexFunc(holders[d.Name.Address], same); at >= 0 {
				holders[d.Name.Address][at].promise.memory += h.promise.memory
				continue
			}
			holders[d.Name.Address] = append(holders[d.Name.Address], h)
		}
	}
	counted := map[onGPU]bool{}
	for _, l := range readings.Limited {
		if l.Bytes == gpu.NoMemoryLimit {
			continue
		}
		// The driver counts for the whole container.
		counted[onGPU{l.Address, l.PodUID, l.ID}] = true
		users, weights := l.holders(holders[l.Address])
		limits, used := split(l.Bytes, weights), split(l.UsedBytes, weights)
		for i, h := range users {
			row := h.row(all, l.Container)
			add(&row.MemoryLimitBytes, limits[i])
			add(&row.MemoryUsedBytes, used[i])
		}
	}
	for address, reading := range readings.GPUs {
		unknown, foreign := map[*agentv1.Row]bool{}, false
		for _, p := range reading.Processes {
			users := p.holders(holders[address], readings.Uses)
			foreign = foreign || len(users) == 0
			weights := make([]uint64, len(users))
			for i, h := range users {
				weights[i] = h.promise.memory
			}
			for i, bytes := range split(p.MemoryBytes, weights) {
				row := users[i].row(all, p.Container)
				if !counted[onGPU{address, p.PodUID, p.ID}] {
					unknown[row] = unknown[row] || p.MemoryBytes == 0
					add(&row.MemoryUsedBytes, bytes)
				}
				if p.SM != nil {
					add(&row.SMUsed, *p.SM/float64(len(users)))
					*row.SMUsed = min(*row.SMUsed, 1)
				}
			}
		}
		for row := range unknown {
			if unknown[row] {
				row.MemoryUsedBytes = nil
			}
		}
		for _, h := range holders[address] {
			h.addZeros(all, reading, foreign)
		}
	}
	return all.report()
}

// onGPU is a container on a GPU.
type onGPU struct {
	address        gpu.PCIAddress
	pod, container string
}

// holder is a device of a claim.
type holder struct {
	labels  agentv1.Labels
	claim   claim.Claim
	device  claim.Device
	promise promise
	known   bool
	// instance is the GPU instance of a MIG device. It is nil for other devices, and if
	// it is not known.
	instance *int
	// used is set if a container uses the device.
	used map[agentv1.Labels]bool
}

func newHolder(c claim.Claim, d claim.Device, node Node, reading Reading) *holder {
	h := &holder{
		labels: agentv1.Labels{Namespace: c.Namespace, Claim: c.Name, Device: d.Name.String(), UUID: d.UUID, Enforcement: enforcement(d)},
		claim:  c, device: d, used: map[agentv1.Labels]bool{},
	}
	h.promise, h.known = node.promised(d)
	for _, p := range reading.Partitions {
		if d.Name.Kind.Scope() == kind.ScopePartition && p.UUID != "" && p.UUID == d.UUID {
			h.instance = &p.GPUInstanceID
		}
	}
	return h
}

// enforcement returns how strictly the memory of a device is limited.
func enforcement(d claim.Device) string {
	switch {
	case d.Terms.IsUnknown():
		return ""
	case d.Strategy() == "":
		return agentv1.EnforcementHardware
	case d.Terms.Share == nil && d.Name.Kind.Takes() == kind.TakesMemory:
		return agentv1.EnforcementHardware
	default:
		memory, _ := d.Terms.Enforcement()
		return string(memory)
	}
}

func (h *holder) addPromise(all rows, node Node) {
	row := all.getOrAdd(h.labels)
	if h.known {
		if h.promise.memory > 0 {
			add(&row.MemoryPromisedBytes, h.promise.memory)
		}
		add(&row.ComputePromised, h.promise.compute)
		if h.labels.Enforcement == agentv1.EnforcementHardware {
			add(&row.MemoryLimitBytes, h.promise.memory)
		}
	}
	if g, known := node.GPUs[h.device.Name.Address]; known {
		row.Healthy = &g.Healthy
	}
}

// row returns the row of a container that uses the device.
func (h *holder) row(all rows, c Container) *agentv1.Row {
	labels := h.labels
	labels.Pod, labels.Container = c.Pod, c.Name
	if c.Pod == "" {
		labels.Pod = c.PodUID
	}
	if c.Name == "" {
		labels.Container = c.ID
	}
	h.used[labels] = true
	return all.getOrAdd(labels)
}

// addZeros adds that nothing uses the device, if the reading shows it. foreign is set for
// processes of pods that may have joined a claim. A client of MPS without a sample may
// compute, because the driver need not distinguish the clients of a server.
func (h *holder) addZeros(all rows, reading Reading, foreign bool) {
	if h.device.Name.Kind.Scope() == kind.ScopePartition && h.instance == nil {
		return
	}
	if len(h.used) == 0 && !foreign {
		row := all.getOrAdd(h.labels)
		add(&row.MemoryUsedBytes, 0)
		if reading.HasSM {
			add(&row.SMUsed, 0)
		}
	}
	if reading.HasSM && h.device.Strategy() != v1alpha1.StrategyMPS {
		for labels := range h.used {
			add(&all.getOrAdd(labels).SMUsed, 0)
		}
	}
}

// holders returns the devices by which the container has memory, and how much each.
func (l Limited) holders(all []*holder) (of []*holder, weights []uint64) {
	for _, d := range l.Devices {
		at := slices.IndexFunc(all, func(h *holder) bool { return h.claim.UID == d.Claim && h.labels.Device == d.Device })
		if at >= 0 {
			of, weights = append(of, all[at]), append(weights, d.Bytes)
		}
	}
	return of, weights
}

// holders returns the devices that the process uses.
func (p Process) holders(all []*holder, uses func(Container, claim.Ref) bool) []*holder {
	var of []*holder
	for _, h := range all {
		if p.isOn(h) {
			of = append(of, h)
		}
	}
	if len(of) < 2 || uses == nil {
		return of
	}
	used := slices.DeleteFunc(slices.Clone(of), func(h *holder) bool { return !uses(p.Container, h.claim.Ref) })
	if len(used) == 0 {
		return of
	}
	return used
}

// isOn reports whether the process may use the device: its pod has the claim, and it runs
// on the device.
func (p Process) isOn(h *holder) bool {
	if p.PodUID == "" || !slices.Contains(h.claim.Pods, types.UID(p.PodUID)) {
		return false
	}
	if h.device.Name.Kind.Scope() == kind.ScopePartition {
		return p.GPUInstance != nil && h.instance != nil && *p.GPUInstance == *h.instance
	}
	return p.GPUInstance == nil
}

// split divides an amount in proportion to the weights; equally if there are none. The
// parts add up to the amount.
func split(amount uint64, weights []uint64) []uint64 {
	parts := make([]uint64, len(weights))
	var whole float64
	for _, w := range weights {
		whole += float64(w)
	}
	left := amount
	for i, w := range weights {
		part := float64(amount) / float64(len(weights))
		if whole > 0 {
			part = float64(amount) * (float64(w) / whole)
		}
		parts[i] = min(uint64(part), left)
		if i == len(weights)-1 {
			parts[i] = left
		}
		left -= parts[i]
	}
	return parts
}
