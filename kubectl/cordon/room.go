// SPDX-License-Identifier: Apache-2.0

package cordon

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet"
)

// roomPrefix begins the names of rules that keep devices for a pod.
const roomPrefix = "gpu-room"

// Maker is the program that makes a room.
type Maker string

const (
	// Command is kubectl gpu.
	Command Maker = manager
	// Controller is the controller that makes room. One runs at a time.
	Controller Maker = "gpu-room"
)

// NewRoom returns the rules that keep the allocated devices for a pod, and all devices of their GPUs. It
// returns none if a request of its claims does not tolerate the taint: the pod could not get them either.
// A claim with an allocation needs no toleration.
func NewRoom(by Maker, pod *corev1.Pod, claims []*resourceapi.ResourceClaim, allocations []resourceapi.AllocationResult, nodes []fleet.Node, until time.Time) []*resourceapi.DeviceTaintRule {
	taint := resourceapi.DeviceTaint{Key: v1alpha1.TaintRoom, Value: string(pod.UID), Effect: resourceapi.DeviceTaintEffectNoSchedule}
	var all [][]resourceapi.DeviceToleration
	for _, claim := range claims {
		if claim.Status.Allocation == nil {
			for _, r := range fleet.Requests(claim.Spec.Devices) {
				all = append(all, r.Exactly.Tolerations)
			}
		}
	}
	for _, t := range slices.Concat(all...) {
		if t.Key == taint.Key {
			taint.Value = cmp.Or(t.Value, taint.Value)
		}
	}
	for _, tolerations := range all {
		if !slices.ContainsFunc(tolerations, func(t resourceapi.DeviceToleration) bool { return resourceclaim.ToleratesTaint(t, taint) }) {
			return nil
		}
	}
	var rules []*resourceapi.DeviceTaintRule
	for _, id := range devicesOf(allocations, nodes) {
		rules = append(rules, &resourceapi.DeviceTaintRule{
			ObjectMeta: metav1.ObjectMeta{
				Name:        ruleName(roomPrefix, Name{id.Driver, id.Pool, id.Device}, id.Device),
				Labels:      map[string]string{managedBy: string(by), v1alpha1.LabelRoom: string(pod.UID)},
				Annotations: map[string]string{v1alpha1.AnnotationRoomUntil: until.UTC().Format(time.RFC3339Nano)}, // no two runs have the same
			},
			Spec: resourceapi.DeviceTaintRuleSpec{
				DeviceSelector: &resourceapi.DeviceTaintSelector{Driver: &id.Driver, Pool: &id.Pool, Device: &id.Device},
				Taint:          taint,
			},
		})
	}
	return rules
}

// devicesOf returns the allocated devices, and all devices of their GPUs.
func devicesOf(allocations []resourceapi.AllocationResult, nodes []fleet.Node) []fleet.DeviceID {
	var ids []fleet.DeviceID
	for _, allocation := range allocations {
		for _, r := range allocation.Devices.Results {
			fleet.AddOnce(&ids, fleet.DeviceID{Driver: r.Driver, Pool: r.Pool, Device: r.Device})
			of := Name{r.Driver, r.Pool, fleet.GPUOf(r.Device)}
			if t, err := Find(nodes, of); err == nil && slices.ContainsFunc(t.GPU.Devices, func(d fleet.Device) bool { return d.ID.Driver == r.Driver }) {
				for _, device := range t.Devices() {
					fleet.AddOnce(&ids, fleet.DeviceID{Driver: r.Driver, Pool: r.Pool, Device: device})
				}
			}
		}
	}
	return ids
}

// DeviceOf returns the device of a rule.
func DeviceOf(rule *resourceapi.DeviceTaintRule) string { return *rule.Spec.DeviceSelector.Device }

// LeftRooms returns the rules whose time has passed. The time is of the clock of the machine that wrote them.
func LeftRooms(rules []*resourceapi.DeviceTaintRule, now time.Time) []*resourceapi.DeviceTaintRule {
	return left(rules, now, func(Maker, types.UID) bool { return false })
}

// LeftByController returns the rules that an earlier controller has left behind, and those of all makers whose time
// has passed. It makes rooms for the pods of active.
func LeftByController(rules []*resourceapi.DeviceTaintRule, active []types.UID, now time.Time) []*resourceapi.DeviceTaintRule {
	return left(rules, now, func(by Maker, uid types.UID) bool { return by == Controller && !slices.Contains(active, uid) })
}

// left returns the rules of rooms whose time has passed, or that isLeft reports.
func left(rules []*resourceapi.DeviceTaintRule, now time.Time, isLeft func(by Maker, uid types.UID) bool) []*resourceapi.DeviceTaintRule {
	return slices.DeleteFunc(slices.Clone(rules), func(rule *resourceapi.DeviceTaintRule) bool {
		by, uid := Maker(rule.Labels[managedBy]), types.UID(rule.Labels[v1alpha1.LabelRoom])
		until, err := time.Parse(time.RFC3339, rule.Annotations[v1alpha1.AnnotationRoomUntil])
		return uid == "" || by != Command && by != Controller || !isLeft(by, uid) && (err != nil || !until.Before(now))
	})
}
