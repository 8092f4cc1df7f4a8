// SPDX-License-Identifier: Apache-2.0

package cordon

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

// Options are the settings of a drain. They mean the same as the flags of kubectl drain.
type Options struct {
	// Force admits pods that no controller creates again.
	Force bool
	// IgnoreDaemonSets leaves pods of DaemonSets on the GPU.
	IgnoreDaemonSets bool
	// DeleteEmptyDirData admits pods with emptyDir volumes, whose data are lost.
	DeleteEmptyDirData bool
}

// Fate is what a drain does with a pod.
type Fate string

const (
	// Evict means that the pod is evicted.
	Evict Fate = "evict"
	// Leave means that the pod keeps the GPU.
	Leave Fate = "leave"
	// Ends means that the drain waits for the pod, which is ending already.
	Ends Fate = "ends"
	// Refuse means that the drain does not begin.
	Refuse Fate = "refuse"
)

// Pod is a pod with claims on a GPU.
type Pod struct {
	*corev1.Pod
	// Claims are the names of its claims on the GPU.
	Claims []string
	Fate   Fate
	// Reason is why the pod is not evicted, or why the drain does not begin. It is empty
	// for a pod to evict.
	Reason string
}

// String returns the pod as "namespace/name".
func (p Pod) String() string { return fleet.FullName(p) }

// Drain is what a drain of a GPU does.
type Drain struct {
	// Pods in order of their names.
	Pods []Pod
	// Claims are the claims that must release the GPU, in order of their names.
	Claims []*resourceapi.ResourceClaim
	// Left are the claims that pods to leave use: they keep the GPU.
	Left []*resourceapi.ResourceClaim
}

// NewDrain returns what a drain of the GPU does.
func NewDrain(t Target, o Options) Drain {
	var d Drain
	pods, seen := map[types.UID]*Pod{}, map[types.UID]bool{}
	for _, h := range t.Holders() {
		if seen[h.Claim.UID] {
			continue
		}
		seen[h.Claim.UID] = true
		left := false
		for _, user := range h.Pods {
			p := pods[user.UID]
			if p == nil {
				p = &Pod{Pod: user}
				p.Fate, p.Reason = FateOf(user, o)
				pods[user.UID] = p
			}
			p.Claims = append(p.Claims, h.Claim.Name)
			left = left || p.Fate == Leave
		}
		if left {
			d.Left = append(d.Left, h.Claim)
		} else {
			d.Claims = append(d.Claims, h.Claim)
		}
	}
	for _, p := range pods {
		slices.Sort(p.Claims)
		d.Pods = append(d.Pods, *p)
	}
	slices.SortFunc(d.Pods, fleet.ByName[Pod])
	for _, claims := range [][]*resourceapi.ResourceClaim{d.Claims, d.Left} {
		slices.SortFunc(claims, fleet.ByName[*resourceapi.ResourceClaim])
	}
	return d
}

// FateOf returns what a drain does with a pod, and why it does not evict it. It
// follows the rules of kubectl drain.
func FateOf(pod *corev1.Pod, o Options) (Fate, string) {
	owner := metav1.GetControllerOf(pod)
	_, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]
	switch daemon := owner != nil && owner.Kind == "DaemonSet"; {
	case fleet.HasEnded(pod):
		return Ends, "it has ended"
	case mirror:
		return Leave, "its node runs it from a file, so it cannot be evicted"
	case pod.DeletionTimestamp != nil:
		return Ends, "it is being deleted"
	case daemon && o.IgnoreDaemonSets:
		return Leave, fmt.Sprintf("the DaemonSet %s would create it again", owner.Name)
	case daemon:
		return Refuse, fmt.Sprintf("the DaemonSet %s would create it again; --ignore-daemonsets leaves it", owner.Name)
	case owner == nil && !o.Force:
		return Refuse, "no controller creates it again; --force evicts it"
	case hasEmptyDir(pod) && !o.DeleteEmptyDirData:
		return Refuse, "it has an emptyDir volume, whose data would be lost; --delete-emptydir-data evicts it"
	}
	return Evict, ""
}

func hasEmptyDir(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.EmptyDir != nil })
}

// With returns the pods of a fate.
func (d Drain) With(fate Fate) []Pod {
	return slices.DeleteFunc(slices.Clone(d.Pods), func(p Pod) bool { return p.Fate != fate })
}

// Holds reports whether a claim holds a device of the GPU, apart from admin access.
func (n Name) Holds(claim *resourceapi.ResourceClaim) bool {
	return slices.ContainsFunc(fleet.Results(claim, n.Driver), func(r resourceapi.DeviceRequestAllocationResult) bool {
		return r.Pool == n.Node && fleet.GPUOf(r.Device) == n.GPU && !(fleet.Holder{Result: r}).Admin()
	})
}

// KeptBy returns why a claim without pods keeps its devices. It returns "" if pods use the
// claim.
func KeptBy(claim *resourceapi.ResourceClaim) string {
	switch groups := fleet.PodGroups(claim); {
	case len(groups) > 0:
		return "it is reserved for the PodGroup " + strings.Join(groups, ", ") + " until that is deleted"
	case len(claim.Status.ReservedFor) == 0:
		return "no pod uses it: the cluster releases it, or delete it"
	}
	return ""
}

// Monitors returns the pods that read the GPU with admin access, in order of their names. A
// drain leaves them; a program that resets the GPU may have to wait until they end.
func Monitors(n Name, claims []*resourceapi.ResourceClaim, pods []*corev1.Pod) []string {
	var names []string
	for _, claim := range claims {
		if !slices.ContainsFunc(fleet.Results(claim, n.Driver), n.isMonitor) {
			continue
		}
		for _, pod := range fleet.Consumers(claim, pods) {
			names = append(names, fleet.FullName(pod))
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func (n Name) isMonitor(r resourceapi.DeviceRequestAllocationResult) bool {
	return r.Pool == n.Node && (fleet.Holder{Result: r}).Admin() &&
		(fleet.GPUOf(r.Device) == n.GPU || fleet.NameOf(r.Device).Kind == kind.Monitor)
}
