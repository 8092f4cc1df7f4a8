// SPDX-License-Identifier: Apache-2.0

package allocatortest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

// Naive publishes a node the obvious way, to compare with: every placement of
// every profile with all attributes of its GPU, a counter for each memory slice
// and each kind of engine, and a slice for each GPU.
func Naive(pool string, node gpu.Node) resourceslice.DriverResources {
	wholes := catalog.New(catalog.Inputs{Settings: catalog.Settings{Pool: pool}, NodeConfig: catalog.NodeConfig{Offer: "share"}}).Resources(node, nil).Pools[pool].Slices
	attributes := map[string]map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{}
	devices := map[string]resourceapi.Device{}
	for _, slice := range wholes {
		for _, device := range slice.Devices {
			attributes[device.Name], devices[device.Name] = device.Attributes, device
		}
	}
	var all []resourceslice.Slice
	var sets []resourceapi.CounterSet
	for _, g := range node.GPUs {
		name := g.Address.DeviceName()
		set := resourceapi.CounterSet{Name: name + "-counters", Counters: map[string]resourceapi.Counter{}}
		var parts []resourceapi.Device
		for _, profile := range g.MIG.Profiles {
			for _, placement := range profile.Placements {
				part := kind.Partition(g.Address, profile.Profile, placement.Start)
				taken := naiveCounters(profile, placement)
				for counter, n := range taken {
					if total, known := set.Counters[counter]; !known || total.Value.Cmp(n.Value) < 0 {
						set.Counters[counter] = n
					}
				}
				a := maps.Clone(attributes[name])
				a["type"], a["profile"], a["parentUUID"] = text(string(kind.MIG)), text(profile.Profile.String()), a["uuid"]
				parts = append(parts, resourceapi.Device{
					Name:             part.String(),
					Attributes:       a,
					Capacity:         map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{v1alpha1.CapacityMemory: {Value: catalog.ShareOffer{}.PartitionMemory(g, profile, false)}},
					ConsumesCounters: []resourceapi.DeviceCounterConsumption{{CounterSet: set.Name, Counters: taken}},
				})
			}
		}
		whole := devices[name]
		if len(set.Counters) > 0 {
			whole.ConsumesCounters = []resourceapi.DeviceCounterConsumption{{CounterSet: set.Name, Counters: set.Counters}}
			sets = append(sets, set)
		}
		all = append(all, resourceslice.Slice{Devices: append([]resourceapi.Device{whole}, parts...)})
	}
	for chunk := range slices.Chunk(sets, resourceapi.ResourceSliceMaxCounterSets) {
		all = append(all, resourceslice.Slice{SharedCounters: chunk})
	}
	return resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{pool: {Slices: all}}}
}

func naiveCounters(p gpu.ProfileInfo, at gpu.Placement) map[string]resourceapi.Counter {
	counters := map[string]resourceapi.Counter{}
	for slice := at.Start; slice < at.Start+at.Size; slice++ {
		counters[fmt.Sprintf("memory-slice-%d", slice)] = counter(1)
	}
	for name, n := range map[string]int{
		"multiprocessors": p.Multiprocessors, "compute-slices": p.ComputeSlices, "ofa-engines": p.OFAs,
	} {
		counters[name] = counter(n)
	}
	return counters
}

func counter(n int) resourceapi.Counter {
	return resourceapi.Counter{Value: *resource.NewQuantity(int64(n), resource.DecimalSI)}
}

func text(value string) resourceapi.DeviceAttribute {
	return resourceapi.DeviceAttribute{StringValue: &value}
}

// Cost returns the median time that the scheduler needs to allocate the claim on
// this node. The claim may fit or not. It frees the devices after each round.
func (n *Node) Cost(ctx context.Context, claim resourceapi.DeviceClaim, rounds int) (time.Duration, error) {
	const name = "cost"
	times := make([]time.Duration, rounds)
	for i := range times {
		began := time.Now()
		_, err := n.Allocate(ctx, name, claim)
		times[i] = time.Since(began)
		if err != nil && !errors.Is(err, ErrNoFit) {
			return 0, err
		}
		n.Free(name)
	}
	slices.Sort(times)
	return times[rounds/2], nil
}

// Comparison is the cost of one kind of claim on two publications of one node.
type Comparison struct {
	// Claim describes the requested devices.
	Claim string
	// Ours and Naive are the median times.
	Ours, Naive time.Duration
}

// Compare returns the allocator's cost on our publication of a node and on the
// naive one. It measures claims that fit and claims that do not: a whole GPU, the
// smallest and the largest MIG device, a MIG device of a profile that no node has,
// and the smallest MIG device of a full node. classes are the shipped ones.
func Compare(ctx context.Context, ours catalog.Inputs, node gpu.Node, rounds int, classes ...*resourceapi.DeviceClass) ([]Comparison, error) {
	layouts := map[bool]resourceslice.DriverResources{false: catalog.New(ours).Resources(node, nil), true: Naive(ours.Pool, node)}
	small, large := "", ""
	for _, p := range node.GPUs[0].MIG.Profiles {
		if small == "" {
			small = p.Profile.String()
		}
		if p.ComputeSlices > 2 && large == "" {
			large = p.Profile.String()
		}
	}
	all := []struct {
		name  string
		claim resourceapi.DeviceClaim
		full  bool
	}{
		{"a whole GPU", Request("gpu.nvidia.com", "", 1), false},
		{small, Request("mig.nvidia.com", small, 1), false},
		{large, Request("mig.nvidia.com", large, 1), false},
		{"a profile that there is not", Request("mig.nvidia.com", "9g.999gb", 1), false},
		{"a whole GPU on a full node", Request("gpu.nvidia.com", "", 1), true},
		{small + " on a full node", Request("mig.nvidia.com", small, 1), true},
	}
	var compared []Comparison
	for _, c := range all {
		comparison := Comparison{Claim: c.name}
		for naive, resources := range layouts {
			n := NewNode(resources, Features(), classes...)
			if c.full {
				if _, err := n.Allocate(ctx, "all", Request("gpu.nvidia.com", "", int64(len(node.GPUs)))); err != nil {
					return nil, fmt.Errorf("fill the node: %w", err)
				}
			}
			cost, err := n.Cost(ctx, c.claim, rounds)
			if err != nil {
				return nil, fmt.Errorf("claim of %s: %w", c.name, err)
			}
			if naive {
				comparison.Naive = cost
			} else {
				comparison.Ours = cost
			}
		}
		compared = append(compared, comparison)
	}
	return compared, nil
}

// Request asks for a number of devices of a class, and of a profile unless that
// is empty.
func Request(class, profile string, count int64) resourceapi.DeviceClaim {
	exactly := &resourceapi.ExactDeviceRequest{DeviceClassName: class, AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: count}
	if profile != "" {
		exactly.Selectors = []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{
			Expression: fmt.Sprintf("device.attributes['gpu.nvidia.com'].profile == '%s'", profile),
		}}}
	}
	return resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{{Name: "device", Exactly: exactly}}}
}
