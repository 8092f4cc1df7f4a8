package claim

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

// exclude reports whether two devices, or two parts of one, cannot be held at
// the same time however small they are; see [kind.Excludes]. Partitions of a GPU
// that cannot be read exclude each other.
func (m *Manager) exclude(ctx context.Context, a allocated, nameA kind.Name, b allocated, nameB kind.Name) bool {
	var mig gpu.MIG
	if nameA != nameB && nameA.IsPartition() && nameB.IsPartition() && nameA.Address == nameB.Address {
		if g, err := m.Inventory.GPU(ctx, nameA.Address); err == nil {
			mig = g.MIG
		}
	}
	return kind.Excludes(mig, a.holding(nameA), b.holding(nameB))
}

// holding returns the device as the claim holds it.
func (a allocated) holding(name kind.Name) kind.Holding {
	return kind.Holding{Name: name, Share: a.Share != nil}
}

// partOf reports whether others may have parts of the device too.
func (a allocated) partOf(name kind.Name) bool {
	return a.holding(name).Divisible()
}

// free reports an error where another claim holds what the record wants, or
// what cannot be beside it. It wraps [gpu.ErrInUse] unless waiting is no use.
// The caller holds the locks of these GPUs, so no claim can come to hold one
// meanwhile.
func (m *Manager) free(ctx context.Context, j job) error {
	names, err := j.names()
	if err != nil {
		return err
	}
	others, err := j.others(ctx)
	if err != nil {
		return err
	}
	for i, want := range j.Devices {
		for _, other := range others {
			for k, d := range other.Devices {
				if m.exclude(ctx, want, names[i], d, other.names[k]) {
					return refused{
						fmt.Errorf("device %s: %w: another claim holds %s (%s); it is free when the pods of that claim have ended", want.Device, gpu.ErrInUse, d.Device, strings.ToLower(string(other.phase))),
						[]any{"holder", other.Claim},
					}
				}
				if want.TimeSlice != "" && d.TimeSlice != "" && want.TimeSlice != d.TimeSlice && names[i].Address == other.names[k].Address {
					return refused{
						fmt.Errorf("device %s: %w with the time slice %s by another claim; a GPU has one time slice for all: use %s or leave the interval out", want.Device, gpu.ErrInUse, d.TimeSlice, d.TimeSlice),
						[]any{"holder", other.Claim},
					}
				}
			}
		}
		if want.Share != nil && slices.IndexFunc(j.Devices, func(d allocated) bool { return d.Device == want.Device }) == i {
			if err := m.room(ctx, j, names[i], others); err != nil {
				return fmt.Errorf("device %s: %w", want.Device, err)
			}
		}
	}
	return nil
}

// room reports an error where the shares of a device, all taken together, have
// more memory than the device or more clients than MPS admits.
func (m *Manager) room(ctx context.Context, j job, name kind.Name, others []holder) error {
	device := name.String()
	taken, clients := j.taken(device)
	var holding []Ref
	var before uint64
	beforeClients := 0
	for _, other := range others {
		memory, processes := other.taken(device)
		before, beforeClients = before+memory, beforeClients+processes
		if memory > 0 {
			holding = append(holding, other.Claim)
		}
	}
	g, err := m.Inventory.GPU(ctx, name.Address)
	if err != nil {
		return err
	}
	all, err := m.memoryOf(g, name, true)
	if err != nil {
		return err
	}
	admitted := clientsOf(g, name)
	switch {
	case before+taken > uint64(all.Value()) && len(holding) > 0:
		return refused{
			fmt.Errorf("%w: %s of its %s memory are wanted, and %s are held by %s", gpu.ErrInUse, inBytes(taken), all.String(), inBytes(before), otherClaims(len(holding))),
			[]any{"holders", holding},
		}
	case taken > uint64(all.Value()):
		return fmt.Errorf("%w: the claim's shares have %s memory together, and the device has %s", gpu.ErrInvalid, inBytes(taken), all.String())
	case clients > 0 && beforeClients+clients > admitted:
		return refused{
			fmt.Errorf("%w: MPS admits %d processes to the device at a time; shares for %d are held by %s, and this claim is for %d more; let it go to another device, or have fewer processes in the ShareConfig",
				gpu.ErrNoCapacity, admitted, beforeClients, otherClaims(len(holding)), clients),
			[]any{"holders", holding},
		}
	}
	return nil
}

// otherClaims counts the claims of others, whose names are for administrators.
func otherClaims(n int) string {
	if n == 1 {
		return "one other claim"
	}
	return fmt.Sprintf("%d other claims", n)
}

// taken gives the memory that a claim's shares of a device have, and the number
// of clients that they are for.
func (r *record) taken(device string) (memory uint64, clients int) {
	for _, d := range r.Devices {
		if d.Device != device || d.Share == nil {
			continue
		}
		memory += d.Share.Memory
		if d.MPS != nil {
			clients += d.MPS.Processes
		}
	}
	return memory, clients
}

// clientsOf a device, that MPS admits at a time.
func clientsOf(g gpu.GPU, name kind.Name) int {
	if name.Kind != kind.MIG {
		return gpu.MPSMaxClients
	}
	info, _, _ := name.FindIn(g.MIG)
	return gpu.MPSClients(info.ComputeSlices, g.MIG.ComputeSlices())
}

// memoryOf returns the memory of a device as it is published, be it shared or not.
func (m *Manager) memoryOf(g gpu.GPU, name kind.Name, shared bool) (resource.Quantity, error) {
	if name.Kind != kind.MIG {
		return m.Shares.Memory(g, shared), nil
	}
	info, _, known := name.FindIn(g.MIG)
	if !known {
		return resource.Quantity{}, fmt.Errorf("%w: %s has no MIG profile %s at memory slice %d", gpu.ErrNotFound, describe(name.Address), name.Profile, name.Start)
	}
	return m.Shares.PartitionMemory(g, info, shared), nil
}

// inBytes writes an amount of memory as people do: "10Gi".
func inBytes(n uint64) string {
	return resource.NewQuantity(int64(n), resource.BinarySI).String()
}
