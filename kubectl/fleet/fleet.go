// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"cmp"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
)

// Fleet is the devices of a cluster and the claims that hold them, at one time. Its methods
// may be called from any goroutine.
type Fleet struct {
	Options
	objects Objects
	nodes   map[string]*corev1.Node
	// published are the slices of each node, with the taints of the rules. The slices
	// that are not of a single node are under "".
	published map[string][]*resourceapi.ResourceSlice
	classes   Classes
	holders   map[DeviceID][]Holder
	// requested are the resources of the pods of each node.
	requested map[string]corev1.ResourceList
	cel       *cel.Cache
}

// DeviceID names a device of the cluster.
type DeviceID struct{ Driver, Pool, Device string }

func (id DeviceID) compare(other DeviceID) int {
	return cmp.Or(cmp.Compare(id.Driver, other.Driver), cmp.Compare(id.Pool, other.Pool), cmp.Compare(id.Device, other.Device))
}

// New returns the fleet that the objects describe. It keeps them: they must not change
// afterwards.
func New(objects Objects, options Options) *Fleet {
	f := &Fleet{
		Options: options, objects: objects,
		nodes:     map[string]*corev1.Node{},
		published: map[string][]*resourceapi.ResourceSlice{},
		classes:   objects.Classes,
		requested: map[string]corev1.ResourceList{},
		cel: cel.NewCache(100, cel.Features{
			EnableConsumableCapacity: options.Features.ConsumableCapacity,
			EnableListTypeAttributes: options.Features.ListTypeAttributes,
		}),
	}
	for _, node := range objects.Nodes {
		f.nodes[node.Name] = node
	}
	for _, slice := range objects.Slices {
		node := ""
		if slice.Spec.NodeName != nil {
			node = *slice.Spec.NodeName
		}
		f.published[node] = append(f.published[node], withTaints(slice, objects.TaintRules))
	}
	for _, pod := range objects.Pods {
		f.addPod(pod.Spec.NodeName, pod)
	}
	f.holders = holders(objects.Claims, objects.Pods)
	return f
}

// nodeOf returns the node's object; one with the name only if the caller may not read it.
func (f *Fleet) nodeOf(name string) *corev1.Node {
	if node := f.nodes[name]; node != nil {
		return node
	}
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

// HasClass reports whether the cluster has a DeviceClass of the name.
func (f *Fleet) HasClass(name string) bool {
	_, err := f.classes.Get(name)
	return err == nil
}

// NodeNames returns the names of all nodes. It includes nodes with devices whose Node
// object the caller may not read.
func (f *Fleet) NodeNames() []string {
	names := sets.KeySet(f.nodes).Union(sets.KeySet(f.published))
	return sets.List(names.Delete(""))
}

// slicesFor returns the slices that the scheduler considers for a node.
func (f *Fleet) slicesFor(node string) []*resourceapi.ResourceSlice {
	return slices.Concat(f.published[node], f.published[""])
}

// withTaints returns a slice with the taints that rules add to its devices.
func withTaints(slice *resourceapi.ResourceSlice, rules []*resourceapi.DeviceTaintRule) *resourceapi.ResourceSlice {
	changed := slice
	for _, rule := range rules {
		for i := range slice.Spec.Devices {
			if !concerns(rule, DeviceID{slice.Spec.Driver, slice.Spec.Pool.Name, slice.Spec.Devices[i].Name}) {
				continue
			}
			if changed == slice {
				changed = slice.DeepCopy()
			}
			changed.Spec.Devices[i].Taints = append(changed.Spec.Devices[i].Taints, rule.Spec.Taint)
		}
	}
	return changed
}

// concerns reports whether a rule taints a device. Without a selector it concerns no device, and
// with an empty one all.
func concerns(rule *resourceapi.DeviceTaintRule, id DeviceID) bool {
	matches := func(want *string, have string) bool { return want == nil || *want == have }
	s := rule.Spec.DeviceSelector
	return s != nil && matches(s.Driver, id.Driver) && matches(s.Pool, id.Pool) && matches(s.Device, id.Device)
}

// stateOf returns the allocations of devices in the pools of the slices, as the scheduler
// counts them.
func (f *Fleet) stateOf(all []*resourceapi.ResourceSlice) structured.AllocatedState {
	state := NewState()
	for _, id := range slices.SortedFunc(maps.Keys(pooled(all)), DeviceID.compare) {
		for _, h := range f.holders[id] {
			Count(state, h.Result)
		}
	}
	return state
}

func pooled(all []*resourceapi.ResourceSlice) map[DeviceID]bool {
	ids := map[DeviceID]bool{}
	for _, slice := range all {
		for _, device := range slice.Spec.Devices {
			ids[DeviceID{slice.Spec.Driver, slice.Spec.Pool.Name, device.Name}] = true
		}
	}
	return ids
}

// NewState returns a state without allocations.
func NewState() structured.AllocatedState {
	return structured.AllocatedState{
		AllocatedDevices:         sets.New[structured.DeviceID](),
		AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
		AggregatedCapacity:       structured.NewConsumedCapacityCollection(),
	}
}
