// SPDX-License-Identifier: Apache-2.0

package step

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/internal/journal"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/ports"
	"github.com/gpu-dra/gpu-dra-driver/pkg/disk/store"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/use"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

// node is a node in memory. It refuses what a real one refuses, and prints its state
// as text.
type node struct {
	modes      map[gpu.PCIAddress]bool
	partitions map[gpu.PCIAddress][]gpu.Partition
	slices     map[gpu.PCIAddress]gpu.TimeSlice
	compute    map[gpu.PCIAddress]gpu.ComputeMode
	daemons    map[string]gpu.MPSDaemon
	specs      map[types.UID][]gpu.Injection
	limits     limitFolder
	made       int // partitions
	// namespaces is set if the driver has namespaces of MPS.
	namespaces bool

	modeRecords, keptRecords, sliceRecords, computeRecords *store.Store
	journal                                                *journal.Journal
	list                                                   List
}

var oneSlice = gpu.Profile{Slices: 1, MemoryGB: 10}

func newNode(t *testing.T) *node {
	t.Helper()
	open := func(name string) *store.Store {
		s, err := store.Open(filepath.Join(t.TempDir(), name), store.Unsynced{})
		must(t, err)
		return s
	}
	n := &node{
		modes: map[gpu.PCIAddress]bool{}, partitions: map[gpu.PCIAddress][]gpu.Partition{},
		slices: map[gpu.PCIAddress]gpu.TimeSlice{}, compute: map[gpu.PCIAddress]gpu.ComputeMode{}, daemons: map[string]gpu.MPSDaemon{}, specs: map[types.UID][]gpu.Injection{},
		limits: limitFolder{}, modeRecords: open("modes"), keptRecords: open("kept"), sliceRecords: open("slices"), computeRecords: open("compute"),
	}
	n.list = New(ports.Node{
		BootID: "boot-1", Inventory: n, CDI: n, MonitorNodes: func() ([]string, error) { return nil, nil },
		Partitioning: &ports.Partitioning{MIG: n, Modes: n.modeRecords, Kept: n.keptRecords, CapabilityNodes: func(g gpu.GPU, gpuInstance, computeInstance int) ([]string, error) {
			return []string{fmt.Sprintf("/dev/nvidia-caps/%s-%d-%d", g.Address.DeviceName(), gpuInstance, computeInstance)}, nil
		}, Openers: func([]string) (map[int]gpu.Task, error) { return nil, nil }},
		MPS: n, TimeSlicing: &ports.TimeSlicing{Slices: n, Intervals: n.sliceRecords}, Limits: &ports.MemoryLimits{Folder: n.limits, Hook: limitHook},
		ExclusiveCompute: &ports.ExclusiveCompute{Modes: n, Changed: n.computeRecords},
	})
	n.journal = &journal.Journal{Records: open("records"), Specs: n, BootID: "boot-1", Lost: n.list.Lost}
	t.Cleanup(func() { _ = n.journal.Close() })
	return n
}

// String renders everything on the node but the records of claims.
func (n *node) String() string {
	var b strings.Builder
	for a, on := range n.modes {
		if on {
			fmt.Fprintf(&b, "MIG mode of %s\n", a)
		}
	}
	for a, all := range n.partitions {
		for _, p := range all {
			fmt.Fprintf(&b, "partition %s@%d of %s: %s\n", p.Profile, p.Placement.Start, a, p.UUID)
		}
	}
	for a, slice := range n.slices {
		if slice != gpu.TimeSliceDefault {
			fmt.Fprintf(&b, "time slice of %s: %s\n", a, slice)
		}
	}
	for a, mode := range n.compute {
		if mode != gpu.ComputeModeDefault {
			fmt.Fprintf(&b, "compute mode of %s: %s\n", a, mode)
		}
	}
	for _, d := range n.daemons {
		fmt.Fprintf(&b, "daemon %+v\n", d)
	}
	for claim, spec := range n.specs {
		text, _ := json.Marshal(spec)
		fmt.Fprintf(&b, "spec of %s: %s\n", claim, text)
	}
	for device := range n.limits {
		fmt.Fprintf(&b, "limits of %s\n", device)
	}
	for name, s := range map[string]*store.Store{"mode": n.modeRecords, "MIG device": n.keptRecords, "time slice": n.sliceRecords, "compute mode": n.computeRecords} {
		keys, err := s.Keys()
		for _, key := range keys {
			fmt.Fprintf(&b, "record of a %s: %s %v\n", name, key, err)
		}
	}
	lines := strings.SplitAfter(b.String(), "\n")
	slices.Sort(lines)
	return strings.Join(lines, "")
}

func (n *node) GPU(ctx context.Context, a gpu.PCIAddress) (use.GPU, error) {
	mig, err := n.MIG(ctx, a)
	return use.GPU{GPU: gpu.GPU{Address: a, UUID: "GPU-" + a.DeviceName(), MIG: mig}}, err
}

func (n *node) GPUs(context.Context) ([]use.GPU, error) { return nil, gpu.ErrNotReady }

func (n *node) MIG(_ context.Context, a gpu.PCIAddress) (gpu.MIG, error) {
	return gpu.MIG{
		Capable: true, Enabled: n.modes[a], PendingEnabled: n.modes[a], Partitions: slices.Clone(n.partitions[a]),
		Profiles: []gpu.ProfileInfo{{Profile: oneSlice, Placements: []gpu.Placement{{Start: 0, Size: 1}}}},
	}, nil
}

func (n *node) MIGMode(_ context.Context, a gpu.PCIAddress) (on, pending bool, err error) {
	return n.modes[a], n.modes[a], nil
}

func (n *node) SetMIGMode(_ context.Context, a gpu.PCIAddress, on bool) error {
	if len(n.partitions[a]) > 0 && !on {
		return gpu.ErrInUse
	}
	n.modes[a] = on
	return nil
}

func (n *node) CancelPendingMIGMode(context.Context, gpu.PCIAddress) error { return nil }

func (n *node) CreatePartition(_ context.Context, a gpu.PCIAddress, profile gpu.Profile, start int) (gpu.Partition, error) {
	if !n.modes[a] {
		return gpu.Partition{}, fmt.Errorf("%w: MIG mode is off", gpu.ErrInvalid)
	}
	for _, p := range n.partitions[a] {
		if p.Profile == profile && p.Placement.Start == start {
			return p, nil
		}
	}
	n.made++
	p := gpu.Partition{Profile: profile, Placement: gpu.Placement{Start: start, Size: 1}, UUID: fmt.Sprintf("MIG-%d", n.made), GPUInstanceID: n.made}
	n.partitions[a] = append(n.partitions[a], p)
	return p, nil
}

func (n *node) DestroyPartition(_ context.Context, a gpu.PCIAddress, profile gpu.Profile, start int) error {
	n.partitions[a] = slices.DeleteFunc(n.partitions[a], func(p gpu.Partition) bool { return p.Profile == profile && p.Placement.Start == start })
	return nil
}

func (n *node) TimeSlice(_ context.Context, a gpu.PCIAddress) (gpu.TimeSlice, error) {
	if slice, ok := n.slices[a]; ok {
		return slice, nil
	}
	return gpu.TimeSliceDefault, nil
}

func (n *node) SetTimeSlice(_ context.Context, a gpu.PCIAddress, slice gpu.TimeSlice) error {
	n.slices[a] = slice
	return nil
}

func (n *node) ComputeMode(_ context.Context, a gpu.PCIAddress) (gpu.ComputeMode, error) {
	if n.modes[a] {
		return "", gpu.ErrNotSupported
	}
	if mode, ok := n.compute[a]; ok {
		return mode, nil
	}
	return gpu.ComputeModeDefault, nil
}

func (n *node) SetComputeMode(_ context.Context, a gpu.PCIAddress, mode gpu.ComputeMode) error {
	if n.modes[a] {
		return gpu.ErrNotSupported
	}
	n.compute[a] = mode
	return nil
}

func (n *node) EnsureMPS(_ context.Context, d gpu.MPSDaemon) (gpu.MPSDirs, error) {
	if len(d.Devices) == 0 || slices.Contains(d.Devices, "") {
		return gpu.MPSDirs{}, fmt.Errorf("%w: daemon %s without a device", gpu.ErrInvalid, d.Name)
	}
	if old, runs := n.daemons[d.Name]; runs && old.HasNamespaces() != d.HasNamespaces() {
		return gpu.MPSDirs{}, fmt.Errorf("%w: daemon %s has the other protocol", gpu.ErrInUse, d.Name)
	}
	n.daemons[d.Name] = d
	return gpu.MPSDirs{Pipe: "/pipe/" + d.Name, Shm: "/shm/" + d.Name}, nil
}

func (n *node) StopMPS(_ context.Context, name string) error {
	delete(n.daemons, name)
	return nil
}

func (n *node) MPSDaemons(context.Context) ([]gpu.MPSStatus, error) {
	var all []gpu.MPSStatus
	for _, name := range slices.Sorted(maps.Keys(n.daemons)) {
		all = append(all, gpu.MPSStatus{Daemon: n.daemons[name]})
	}
	return all, nil
}

func (n *node) MultiUser(context.Context) (bool, error) { return false, nil }

func (n *node) Write(_ context.Context, claim types.UID, _ types.NamespacedName, injections []gpu.Injection) ([]string, error) {
	n.specs[claim] = injections
	var ids []string
	for _, in := range injections {
		ids = append(ids, "driver/claim="+in.ID)
	}
	return ids, nil
}

func (n *node) Close(context.Context, types.UID, types.NamespacedName, []gpu.Injection) error {
	return errors.ErrUnsupported
}

func (n *node) Remove(_ context.Context, claim types.UID) error {
	delete(n.specs, claim)
	return nil
}

func (n *node) List(context.Context) ([]types.UID, error) {
	return slices.Sorted(maps.Keys(n.specs)), nil
}

func (n *node) Read(_ context.Context, claim types.UID) (types.NamespacedName, []gpu.Injection, error) {
	spec, ok := n.specs[claim]
	if !ok {
		return types.NamespacedName{}, nil, gpu.ErrNotFound
	}
	return types.NamespacedName{Namespace: "team-a", Name: string(claim)}, spec, nil
}

// limitFolder has the open devices.
type limitFolder map[string]bool

func (f limitFolder) Open(device string) error {
	f[device] = true
	return nil
}

func (f limitFolder) Close(device string) error {
	delete(f, device)
	return nil
}

func (f limitFolder) Devices() ([]string, error) { return slices.Sorted(maps.Keys(f)), nil }

func limitHook(device string, address gpu.PCIAddress, bytes uint64, containers int) (gpu.Hook, error) {
	return gpu.Hook{Path: "/hook", Args: []string{"hook", device, address.String(), fmt.Sprint(bytes), fmt.Sprint(containers)}}, nil
}

var must = require.NoError
