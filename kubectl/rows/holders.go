// SPDX-License-Identifier: Apache-2.0

package rows

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	agentv1 "github.com/gpu-dra/gpu-dra-driver/api/agent/v1"
	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

// Holder is a container with a device, in JSON and YAML. A claim that no pod uses has a row
// without a pod.
type Holder struct {
	Namespace string `json:"namespace"`
	Pod       string `json:"pod,omitempty"`
	// PodGroup is the group that the claim is reserved for.
	PodGroup  string            `json:"podGroup,omitempty"`
	Container string            `json:"container,omitempty"`
	Claim     string            `json:"claim"`
	Node      string            `json:"node"`
	Device    string            `json:"device"`
	Memory    resource.Quantity `json:"memory"`
	// Compute is 0 if the claim has requested none.
	Compute int64 `json:"computePercent,omitempty"`
	// Share is the share and its limits from the agent's report. It is absent if the
	// claim has the device alone.
	Share *v1alpha1.ShareData `json:"share,omitempty"`
	// Admin is true for a claim that only monitors.
	Admin bool `json:"adminAccess,omitempty"`
	// Health is the health of the device's GPU.
	Health Health `json:"health"`
	Use
	// Foreign is nil if it is not known.
	Foreign *Foreign `json:"foreign,omitempty"`
	// alone is true if no other claim can hold the device.
	alone bool
}

// Holders returns the holders of devices, with their known use. They are in order of
// namespace, pod, container, claim and device.
func (c *Cluster) Holders(nodes []fleet.Node, namespace string, used Uses) []Holder {
	rows, withAgent := []Holder{}, c.healths()
	for _, node := range nodes {
		for _, g := range node.GPUs {
			health := withAgent(node.Name, healthOf(g))
			for _, d := range g.Devices {
				for _, h := range d.Holders {
					if namespace == metav1.NamespaceAll || h.Claim.Namespace == namespace {
						for _, row := range rowsOf(node.Name, d, h, used) {
							row.Health = health
							rows = append(rows, row)
						}
					}
				}
			}
		}
	}
	slices.SortStableFunc(rows, func(a, b Holder) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Pod, b.Pod), cmp.Compare(a.Container, b.Container), cmp.Compare(a.Claim, b.Claim), cmp.Compare(a.Device, b.Device))
	})
	return rows
}

// rowsOf returns the rows of a claim that holds a device, without the health of its GPU.
func rowsOf(node string, d fleet.Device, h fleet.Holder, used Uses) []Holder {
	memory, compute := d.Promised(h)
	limits, reported := h.Share()
	row := Holder{
		Namespace: h.Claim.Namespace, Claim: h.Claim.Name, Node: node, Device: d.ID.Device,
		Memory: memory, Compute: compute, Share: limits, Admin: h.Admin(),
		Foreign: used.foreignOn(node, []string{d.ID.Device}),
		alone:   !h.Shared() || compute == kind.WholeCompute || reported && limits == nil,
	}
	if groups := fleet.PodGroups(h.Claim); len(groups) > 0 {
		row.PodGroup = groups[0]
	}
	var rows []Holder
	for _, pod := range h.Pods {
		for _, container := range containersWith(pod, h) {
			row.Pod, row.Container = pod.Name, container
			rows = append(rows, row.withUse(used, string(pod.UID)))
		}
	}
	if rows == nil {
		return []Holder{row.withUse(used, "")}
	}
	return rows
}

// withUse returns the row with the use of its container and device. The agent has the UIDs of
// a PodGroup's pods only.
func (h Holder) withUse(used Uses, podUID string) Holder {
	h.Use = used.sum([]string{h.Node}, func(l agentv1.Labels) bool {
		return l.Namespace == h.Namespace && l.Claim == h.Claim && l.Device == h.Device && l.Container == h.Container &&
			(l.Pod == h.Pod || h.PodGroup != "" && l.Pod == podUID)
	})
	return h
}

// containersWith returns the containers of a pod that have the device.
func containersWith(pod *corev1.Pod, h fleet.Holder) []string {
	entries, request := fleet.EntriesOf(pod, h.Claim), resourceclaim.BaseRequestRef(h.Result.Request)
	var names []string
	for _, container := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		if slices.ContainsFunc(container.Resources.Claims, func(c corev1.ResourceClaim) bool {
			return slices.Contains(entries, c.Name) && (c.Request == "" || c.Request == request)
		}) {
			names = append(names, container.Name)
		}
	}
	if extended := pod.Status.ExtendedResourceClaimStatus; extended != nil && extended.ResourceClaimName == h.Claim.Name {
		for _, mapping := range extended.RequestMappings {
			if mapping.RequestName == request {
				names = append(names, mapping.ContainerName)
			}
		}
	}
	if names == nil {
		return []string{""}
	}
	return names
}

// ComputeText returns the requested compute, or a dash.
func (h Holder) ComputeText() string {
	if h.Compute <= 0 {
		return "-"
	}
	return fmt.Sprintf("%d%%", h.Compute)
}

// HeldBy returns how the limits of the share are kept, or a dash without a share.
func (h Holder) HeldBy() string {
	switch {
	case h.Admin:
		return "monitors"
	case h.Share == nil:
		return "-"
	}
	return fmt.Sprintf("%s, memory %s, compute %s", strings.ToLower(string(h.Share.Strategy)), h.Share.MemoryEnforcement, h.Share.ComputeEnforcement)
}
