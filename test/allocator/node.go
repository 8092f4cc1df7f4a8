// SPDX-License-Identifier: Apache-2.0

// Package allocator lets tests put published devices before the scheduler's
// own allocator. A [Node] holds the slices of one node and what claims have
// taken from it, and accounts for it as the scheduler's plugin does. There is
// no API server, no scheduler and no pod; that is for end-to-end tests.
package allocator

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/resourceslice"
	"k8s.io/dynamic-resource-allocation/structured"

	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet"
	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog"
)

// Driver is the name under which the slices of a [Node] are published.
const Driver = "gpu.nvidia.com"

// ErrNoFit is the error of [Node.Allocate] for a claim that does not fit.
var ErrNoFit = errors.New("cannot allocate all claims")

// Features returns the features of Kubernetes 1.37 without alpha gates.
func Features() structured.Features {
	return fleet.FeaturesOf(fleet.Objects{})
}

// Node is one node with its slices and the claims that hold its devices.
type Node struct {
	features structured.Features
	slices   []*resourceapi.ResourceSlice
	classes  fleet.Classes
	claims   map[string]resourceapi.AllocationResult
	cel      *cel.Cache
}

// NewNode returns a node that publishes the resources and knows the classes.
func NewNode(resources resourceslice.DriverResources, features structured.Features, known ...*resourceapi.DeviceClass) *Node {
	n := &Node{
		features: features,
		classes:  known,
		claims:   make(map[string]resourceapi.AllocationResult),
		cel: cel.NewCache(10, cel.Features{
			EnableConsumableCapacity: features.ConsumableCapacity,
			EnableListTypeAttributes: features.ListTypeAttributes,
		}),
	}
	n.Publish(resources)
	return n
}

// Publish replaces the node's slices; claims keep their devices.
func (n *Node) Publish(resources resourceslice.DriverResources) {
	node := ""
	if pools := slices.Sorted(maps.Keys(resources.Pools)); len(pools) > 0 {
		node = pools[0] // one node has all pools
	}
	n.slices = Slices(node, resources)
}

// Slices returns the slices of the node with the resources, with names as the API server makes
// them: the allocator takes slices in the order of their names.
func Slices(node string, resources resourceslice.DriverResources) []*resourceapi.ResourceSlice {
	var all []*resourceapi.ResourceSlice
	for _, slice := range catalog.SlicesOf(resources, Driver, node, "") {
		slice.ObjectMeta = metav1.ObjectMeta{Name: slice.GenerateName + "xxxxx"}
		all = append(all, &slice)
	}
	return all
}

// Allocate allocates devices of the node to the named claim. The error is [ErrNoFit]
// if the free devices are not enough, and another one if the claim is invalid.
func (n *Node) Allocate(ctx context.Context, name string, requests resourceapi.DeviceClaim) ([]resourceapi.DeviceRequestAllocationResult, error) {
	if _, held := n.claims[name]; held {
		return nil, fmt.Errorf("claim %s is allocated already", name)
	}
	allocator, err := structured.NewAllocator(ctx, n.features, n.allocated(), n.classes, n.slices, n.cel)
	if err != nil {
		return nil, err
	}
	node := &corev1.Node{}
	if len(n.slices) > 0 {
		node.Name = *n.slices[0].Spec.NodeName
	}
	claim := &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"},
		Spec:       resourceapi.ResourceClaimSpec{Devices: requests},
	}
	results, err := allocator.Allocate(ctx, node, []*resourceapi.ResourceClaim{claim})
	switch {
	case errors.Is(err, structured.ErrFailedAllocationOnNode):
		return nil, fmt.Errorf("%w: %w", ErrNoFit, err)
	case err != nil:
		return nil, err
	case len(results) == 0:
		return nil, ErrNoFit
	}
	n.claims[name] = results[0]
	return results[0].Devices.Results, nil
}

// Free releases the devices of the named claim.
func (n *Node) Free(name string) {
	delete(n.claims, name)
}

// String returns the node's claims, one per line, with their devices and the
// capacity that they take.
func (n *Node) String() string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(n.claims)) {
		fmt.Fprintf(&b, "%s:", name)
		for _, result := range n.claims[name].Devices.Results {
			fmt.Fprintf(&b, " %s", result.Device)
			for _, capacity := range slices.Sorted(maps.Keys(result.ConsumedCapacity)) {
				quantity := result.ConsumedCapacity[capacity]
				fmt.Fprintf(&b, " %s=%s", capacity, quantity.String())
			}
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// allocated adds up the claims as the scheduler does.
func (n *Node) allocated() structured.AllocatedState {
	state := fleet.NewState()
	for _, claim := range n.claims {
		for _, result := range claim.Devices.Results {
			fleet.Count(state, result)
		}
	}
	return state
}
