// SPDX-License-Identifier: Apache-2.0

package cordon

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

// Name is the name of a GPU in a cluster.
type Name struct {
	Driver, Node, GPU string
}

// String returns the name as users write it: "NODE/GPU".
func (n Name) String() string { return n.Node + "/" + n.GPU }

// ParseName returns the name that a user has written as "NODE/GPU". The error wraps
// [gpu.ErrInvalid].
func ParseName(driver, text string) (Name, error) {
	node, device, ok := strings.Cut(text, "/")
	if !ok || node == "" || device == "" || strings.Contains(device, "/") {
		return Name{}, fmt.Errorf("GPU %q: %w: want NODE/GPU, such as node-1/gpu-1b-00", text, gpu.ErrInvalid)
	}
	return Name{driver, node, device}, nil
}

// Target is a GPU of a node, and its devices.
type Target struct {
	Name
	fleet.GPU
}

// String returns the name of the GPU.
func (t Target) String() string { return t.Name.String() }

// Find returns the named GPU, also by its UUID. The error wraps [gpu.ErrNotFound] and
// suggests names.
func Find(nodes []fleet.Node, name Name) (Target, error) {
	i := slices.IndexFunc(nodes, func(n fleet.Node) bool { return n.Name == name.Node })
	if i < 0 {
		known := fleet.Each(nodes, func(n fleet.Node) string { return n.Name })
		return Target{}, fmt.Errorf("node %s: %w: it publishes no GPU%s", name.Node, gpu.ErrNotFound, suggest("; nodes with GPUs: ", name.Node, known))
	}
	var known []string
	for _, g := range nodes[i].GPUs {
		if g.Name == name.GPU || g.UUID != "" && g.UUID == name.GPU {
			name.GPU = g.Name
			return Target{name, g}, nil
		}
		known = append(known, g.Name)
	}
	if whole := fleet.GPUOf(name.GPU); slices.Contains(known, whole) {
		return Target{}, fmt.Errorf("%s: %w: it is a part of a GPU: name the GPU, %s/%s", name, gpu.ErrInvalid, name.Node, whole)
	}
	return Target{}, fmt.Errorf("%s: %w%s", name, gpu.ErrNotFound, suggest(": GPUs of node "+name.Node+": ", name.GPU, known))
}

// suggest returns the known names that are most like the wrong one, after the heading.
func suggest(heading, wrong string, known []string) string {
	if len(known) == 0 {
		return ""
	}
	known = slices.Clone(known)
	slices.Sort(known)
	slices.SortStableFunc(known, func(a, b string) int { return cmp.Compare(fleet.Distance(a, wrong), fleet.Distance(b, wrong)) })
	return heading + fleet.List(8, known)
}

// Devices returns the names of the devices to cordon, in order: all published and held
// devices of the GPU, and the devices of the whole GPU of each kind.
func (t Target) Devices() []string {
	var names []string
	for _, d := range t.GPU.Devices {
		names = append(names, d.ID.Device)
	}
	if whole := fleet.NameOf(t.Name.GPU); whole.IsWholeGPU() {
		for _, k := range kind.All() {
			if k.Scope() == kind.ScopeGPU {
				names = append(names, kind.Name{Kind: k, Address: whole.Address}.String())
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Faults returns the taints of a fault of the GPU, each value once.
func (t Target) Faults() []resourceapi.DeviceTaint {
	var faults []resourceapi.DeviceTaint
	for _, d := range t.GPU.Devices {
		if d.Published == nil {
			continue
		}
		for _, taint := range d.Published.Taints {
			known := func(other resourceapi.DeviceTaint) bool { return other.Value == taint.Value }
			if taint.Key == v1alpha1.TaintUnhealthy && !slices.ContainsFunc(faults, known) {
				faults = append(faults, taint)
			}
		}
	}
	return faults
}
