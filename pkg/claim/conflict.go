package claim

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// exclude reports whether two devices, or two parts of one, cannot be held at
// the same time however small they are. What is not known to go together does
// not.
//
//	             whole GPU   shares   time slices   MIG device
//	whole GPU       ✗           ✗          ✗             ✗
//	shares                      ✓ ¹        ✗             ✗
//	time slices                            ✓             ✗
//	MIG device                                           ✓ ²
//
// Monitoring goes with all of them, and with itself.
//
//	¹ as long as the device has memory for all of them
//	² in another place, or shares of it
func (m *Manager) exclude(ctx context.Context, a allocated, nameA gpu.DeviceName, b allocated, nameB gpu.DeviceName) bool {
	switch {
	case nameA.Kind == gpu.KindMonitor, nameB.Kind == gpu.KindMonitor, nameA.Address != nameB.Address:
		return false
	case nameA == nameB:
		return !a.partOf(nameA) || !b.partOf(nameB)
	case nameA.Kind != gpu.KindMIG || nameB.Kind != gpu.KindMIG:
		return true
	}
	g, err := m.Inventory.GPU(ctx, nameA.Address)
	if err != nil {
		return true
	}
	_, ofA, knownA := g.MIG.Find(nameA)
	_, ofB, knownB := g.MIG.Find(nameB)
	return !knownA || !knownB || ofA.Overlaps(ofB)
}

// partOf reports whether others may have parts of the device too.
func (a allocated) partOf(name gpu.DeviceName) bool {
	return a.Share != nil || name.Kind == gpu.KindTimeSlice
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
func (m *Manager) room(ctx context.Context, j job, name gpu.DeviceName, others []holder) error {
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
func clientsOf(g gpu.GPU, name gpu.DeviceName) int {
	if name.Kind != gpu.KindMIG {
		return gpu.MPSMaxClients
	}
	info, _, _ := g.MIG.Find(name)
	return gpu.MPSClients(info.ComputeSlices, g.MIG.ComputeSlices())
}

// memoryOf returns the memory of a device as it is published, be it shared or not.
func (m *Manager) memoryOf(g gpu.GPU, name gpu.DeviceName, shared bool) (resource.Quantity, error) {
	if name.Kind != gpu.KindMIG {
		return m.Shares.Memory(g, shared), nil
	}
	info, _, known := g.MIG.Find(name)
	if !known {
		return resource.Quantity{}, fmt.Errorf("%w: %s has no MIG profile %s at memory slice %d", gpu.ErrNotFound, describe(name.Address), name.Profile, name.Start)
	}
	return m.Shares.PartitionMemory(g, info, shared), nil
}

// inBytes writes an amount of memory as people do: "10Gi".
func inBytes(n uint64) string {
	return resource.NewQuantity(int64(n), resource.BinarySI).String()
}
