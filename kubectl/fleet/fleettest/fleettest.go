// SPDX-License-Identifier: Apache-2.0

// Package fleettest makes the objects of clusters with simulated GPUs, for tests of
// their readers.
package fleettest

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet"
	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog"
	"github.com/gpu-dra/gpu-dra-driver/pkg/node/nvml"
	"github.com/gpu-dra/gpu-dra-driver/pkg/node/sysfs"
	"github.com/gpu-dra/gpu-dra-driver/simulator/nvmlsim"
	"github.com/gpu-dra/gpu-dra-driver/test/allocator"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

// World is the objects of a cluster.
type World struct {
	t testing.TB
	fleet.Objects
}

// New returns a cluster with the shipped classes. Each node is "name=model offer".
func New(t testing.TB, nodes ...string) *World {
	t.Helper()
	w := &World{t: t}
	const manifest = "deployments/static/install.yaml"
	top := "../.."
	if _, err := os.Stat(filepath.Join(top, manifest)); err != nil {
		top = "../../.." // the test's folder is one lower
	}
	var err error
	w.Classes, err = allocator.ReadClasses(filepath.Join(top, manifest))
	require.NoError(t, err)
	for _, words := range nodes {
		name, rest, _ := strings.Cut(words, "=")
		model, offer, _ := strings.Cut(rest, " ")
		parsed, err := catalog.ParseOfferLabel(offer)
		require.NoError(t, err)
		c := catalog.New(catalog.Inputs{Settings: catalog.Settings{Pool: name}, NodeConfig: catalog.NodeConfig{
			Offer: parsed, MIG: catalog.MIGOffer{AllowReset: true}, Shares: catalog.ShareOffer{MPS: true, Smallest: 1 << 30},
		}})
		m, err := nvmlsim.LoadModel(model)
		require.NoError(t, err)
		sim, err := nvmlsim.Create(filepath.Join(t.TempDir(), "sim"), m)
		require.NoError(t, err)
		hardware, err := nvml.New(sim.NVML()).Snapshot(t.Context())
		require.NoError(t, err)
		hardware, err = sysfs.Root(sim.Root()).Locate(hardware)
		require.NoError(t, err)
		w.Slices = append(w.Slices, allocator.Slices(name, c.Resources(hardware, nil))...)
		w.Nodes = append(w.Nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	return w
}

// Fleet returns the fleet that the objects describe now.
func (w *World) Fleet() *fleet.Fleet {
	return fleet.New(w.Objects, fleet.Options{Driver: v1alpha1.DriverName, Features: fleet.FeaturesOf(w.Objects)})
}

// Claim returns a claim for "class=mps memory=10Gi count=2 match=nvlinkDomain
// cel=<expression to the end>"; the class without ".nvidia.com".
func Claim(name, words string) *resourceapi.ResourceClaim {
	c := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)}}
	r := &resourceapi.ExactDeviceRequest{DeviceClassName: "gpu.nvidia.com", AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: 1}
	words, expression, selects := strings.Cut(words, "cel=")
	if selects {
		r.Selectors = []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: expression}}}
	}
	for _, word := range strings.Fields(words) {
		key, value, _ := strings.Cut(word, "=")
		switch key {
		case "class":
			r.DeviceClassName = value
		case "count":
			fmt.Sscan(value, &r.Count) //nolint:errcheck // a wrong number makes the test fail
		case "match":
			domain := resourceapi.FullyQualifiedName("gpu.nvidia.com/" + value)
			c.Spec.Devices.Constraints = []resourceapi.DeviceConstraint{{MatchAttribute: &domain}}
		default:
			if r.Capacity == nil {
				r.Capacity = &resourceapi.CapacityRequirements{Requests: map[resourceapi.QualifiedName]resource.Quantity{}}
			}
			r.Capacity.Requests[resourceapi.QualifiedName(key)] = resource.MustParse(value)
		}
	}
	c.Spec.Devices.Requests = []resourceapi.DeviceRequest{{Name: "gpu", Exactly: r}}
	return c
}

// Hold allocates devices of a node to a claim that a pod of the same name uses.
func (w *World) Hold(node, name, words string) {
	w.t.Helper()
	c := Claim(name, words)
	// A busy machine may need longer than the limit of a search.
	found, err := fleet.New(w.Objects, fleet.Options{Driver: v1alpha1.DriverName, Features: fleet.FeaturesOf(w.Objects), SearchLimit: time.Hour}).Fit(w.t.Context(), node, c)
	require.NoError(w.t, err)
	if found == nil {
		w.t.Fatalf("%s does not fit on %s", name, node)
	}
	pod := Pod(name)
	c.Status.Allocation = &found[0]
	c.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: name, UID: pod.UID}}
	w.Pods, w.Claims = append(w.Pods, pod), append(w.Claims, c)
}

// HoldForGroup allocates devices of a node to a claim. The claim is reserved for a PodGroup
// of the same name. The pods of the group have the claim.
func (w *World) HoldForGroup(node, name, words string, pods ...string) {
	w.t.Helper()
	w.Hold(node, name, words)
	last := len(w.Pods) - 1
	w.Pods = w.Pods[:last]
	w.Claims[len(w.Claims)-1].Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{
		{APIGroup: "scheduling.k8s.io", Resource: "podgroups", Name: name, UID: types.UID("group-" + name)},
	}
	for _, pod := range pods {
		w.Pods = append(w.Pods, PodOf(name, pod, name))
	}
}

// PodOf returns a pod of a PodGroup with one container that has the claim.
func PodOf(group, name, claim string) *corev1.Pod {
	pod := Pod(claim)
	pod.Name, pod.UID = name, types.UID("pod-"+name)
	pod.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: &group}
	return pod
}

// Taint marks a device as unhealthy, for a cause.
func (w *World) Taint(device, cause string) {
	w.t.Helper()
	w.AddTaint(device, resourceapi.DeviceTaint{Key: v1alpha1.TaintUnhealthy, Value: cause, Effect: resourceapi.DeviceTaintEffectNoSchedule})
}

// AddTaint adds a taint of a device.
func (w *World) AddTaint(device string, taint resourceapi.DeviceTaint) {
	w.t.Helper()
	for _, slice := range w.Slices {
		for i := range slice.Spec.Devices {
			if d := &slice.Spec.Devices[i]; d.Name == device {
				d.Taints = append(d.Taints, taint)
				return
			}
		}
	}
	w.t.Fatalf("no device %s", device)
}

// SetTaintTimes sets the time since which the taints of all devices are there.
func (w *World) SetTaintTimes(since metav1.Time) {
	for _, slice := range w.Slices {
		for _, device := range slice.Spec.Devices {
			for i := range device.Taints {
				device.Taints[i].TimeAdded = &since
			}
		}
	}
}

// Report adds the report of an agent about the first device of a claim. The share is nil if the claim has
// the device alone.
func Report(t testing.TB, claim *resourceapi.ResourceClaim, share *v1alpha1.ShareData) {
	t.Helper()
	data := v1alpha1.NewDeviceData()
	data.Share = share
	text, err := json.Marshal(data)
	require.NoError(t, err)
	result := claim.Status.Allocation.Devices.Results[0]
	claim.Status.Devices = []resourceapi.AllocatedDeviceStatus{{
		Driver: result.Driver, Pool: result.Pool, Device: result.Device, ShareID: (*string)(result.ShareID), Data: &runtime.RawExtension{Raw: text},
	}}
}

// Pod returns a pod with one container that has the claim of the same name.
func Pod(name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("pod-" + name)},
		Spec: corev1.PodSpec{
			ResourceClaims: []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: &name}},
			Containers:     []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Claims: []corev1.ResourceClaim{{Name: "gpu"}}}}},
		},
	}
}

// Repeat adds copies of the first node until the cluster has that number of nodes. The
// claims of their pods hold the same devices.
func (w *World) Repeat(nodes int) {
	first, published, held, pods := w.Nodes[0].Name, w.Slices, w.Claims, w.Pods
	for i := len(w.Nodes); i < nodes; i++ {
		name := fmt.Sprintf("node-%d", i)
		w.Nodes = append(w.Nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
		for _, slice := range published {
			slice = slice.DeepCopy()
			slice.Name += name
			slice.Spec.NodeName, slice.Spec.Pool.Name = &name, name
			w.Slices = append(w.Slices, slice)
		}
		for _, c := range held {
			c = c.DeepCopy()
			c.Name, c.UID = c.Name+"-"+name, c.UID+types.UID("-"+name)
			for j := range c.Status.ReservedFor {
				c.Status.ReservedFor[j].Name, c.Status.ReservedFor[j].UID = c.Name, "pod-"+c.UID
			}
			for j := range c.Status.Allocation.Devices.Results {
				if result := &c.Status.Allocation.Devices.Results[j]; result.Pool == first {
					result.Pool = name
				}
			}
			w.Claims = append(w.Claims, c)
		}
		for _, pod := range pods {
			w.Pods = append(w.Pods, Pod(pod.Name+"-"+name))
		}
	}
}
