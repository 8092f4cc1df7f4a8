// SPDX-License-Identifier: Apache-2.0

package kubectlgpu

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	agentv1 "github.com/gpu-dra/gpu-dra-driver/api/agent/v1"
	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/fleet"
)

// holderItem is a container with a device, in JSON and YAML. A claim that no pod uses has
// an item without a pod.
type holderItem struct {
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
	// Share is the share and its limits as the agent has reported them; absent if the
	// claim has the device alone.
	Share *v1alpha1.ShareData `json:"share,omitempty"`
	// Admin is true for a claim that only monitors.
	Admin bool `json:"adminAccess,omitempty"`
	use
	podUID types.UID
}

func (o *options) newWho() *cobra.Command {
	var everywhere bool
	cmd := &cobra.Command{
		Use:   "who [NODE...]",
		Short: "The pods, containers and claims of each device, and their limits",
		RunE: func(cmd *cobra.Command, nodes []string) error {
			v, err := o.read(cmd.Context())
			if err != nil {
				return err
			}
			namespace := v.namespace
			if everywhere {
				namespace = metav1.NamespaceAll
			}
			used, err := o.readUses(cmd.Context(), v, nodes)
			if err != nil {
				return err
			}
			items := holderItems(v.nodesNamed(nodes), namespace)
			for i, h := range items {
				items[i].use = used.of(h.Node, h.isRow)
			}
			return o.printHolders(items)
		},
	}
	o.usedFlag(cmd.Flags())
	cmd.Flags().BoolVarP(&everywhere, "all-namespaces", "A", false, "claims of all namespaces")
	return cmd
}

// isRow reports whether a row of the agent is about the container and the device. The agent
// has the UIDs of a PodGroup's pods only.
func (h holderItem) isRow(l agentv1.Labels) bool {
	return l.Namespace == h.Namespace && l.Claim == h.Claim && l.Device == h.Device && l.Container == h.Container &&
		(l.Pod == h.Pod || h.PodGroup != "" && l.Pod == string(h.podUID))
}

// holderItems returns the holders of devices in order of namespace, pod, container and device.
func holderItems(nodes []fleet.Node, namespace string) []holderItem {
	items := []holderItem{}
	for _, node := range nodes {
		for _, g := range node.GPUs {
			for _, d := range g.Devices {
				for _, h := range d.Holders {
					if namespace == metav1.NamespaceAll || h.Claim.Namespace == namespace {
						items = append(items, itemsOf(node.Name, d, h)...)
					}
				}
			}
		}
	}
	slices.SortStableFunc(items, func(a, b holderItem) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Pod, b.Pod), cmp.Compare(a.Container, b.Container), cmp.Compare(a.Claim, b.Claim), cmp.Compare(a.Device, b.Device))
	})
	return items
}

func itemsOf(node string, d fleet.Device, h fleet.Holder) []holderItem {
	memory, compute := d.Promised(h)
	item := holderItem{
		Namespace: h.Claim.Namespace, Claim: h.Claim.Name, Node: node, Device: d.ID.Device,
		Memory: memory, Compute: compute, Share: share(h), Admin: h.Admin(),
	}
	if groups := fleet.PodGroups(h.Claim); len(groups) > 0 {
		item.PodGroup = groups[0]
	}
	var items []holderItem
	for _, pod := range h.Pods {
		for _, container := range containersWith(pod, h) {
			item.Pod, item.podUID, item.Container = pod.Name, pod.UID, container
			items = append(items, item)
		}
	}
	if items == nil {
		return []holderItem{item}
	}
	return items
}

// containersWith returns the containers of a pod that have the device.
func containersWith(pod *corev1.Pod, h fleet.Holder) []string {
	entry := ""
	for i := range pod.Spec.ResourceClaims {
		if name, _, err := resourceclaim.Name(pod, &pod.Spec.ResourceClaims[i]); err == nil && name != nil && *name == h.Claim.Name {
			entry = pod.Spec.ResourceClaims[i].Name
		}
	}
	request := resourceclaim.BaseRequestRef(h.Result.Request)
	var names []string
	for _, container := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		if slices.ContainsFunc(container.Resources.Claims, func(c corev1.ResourceClaim) bool {
			return c.Name == entry && (c.Request == "" || c.Request == request)
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

// share returns the share that the agent reports for the claim; nil if there is none, or if
// the agent has not prepared it yet.
func share(h fleet.Holder) *v1alpha1.ShareData {
	for _, status := range h.Claim.Status.Devices {
		if status.Driver != h.Result.Driver || status.Pool != h.Result.Pool || status.Device != h.Result.Device || status.Data == nil {
			continue
		}
		if status.ShareID != nil && h.Result.ShareID != nil && *status.ShareID != string(*h.Result.ShareID) {
			continue
		}
		var data v1alpha1.DeviceData
		if json.Unmarshal(status.Data.Raw, &data) == nil {
			return data.Share
		}
	}
	return nil
}

func (o *options) printHolders(items []holderItem) error {
	t := table{heading: []string{"NAMESPACE", "POD", "CONTAINER", "CLAIM", "NODE", "DEVICE", "MEMORY", "COMPUTE", "HELD BY"}, wide: []string{"LIMIT OF A PROCESS", "LIMIT OF A CONTAINER"}}
	for _, h := range items {
		memory, compute, enforcement, process, container := "-", "-", "-", "-", "-"
		if !h.Memory.IsZero() {
			memory = gibibytes(h.Memory)
		}
		if h.Compute > 0 {
			compute = fmt.Sprintf("%d%%", h.Compute)
		}
		if s := h.Share; s != nil {
			enforcement = fmt.Sprintf("%s, memory %s, compute %s", strings.ToLower(string(s.Strategy)), s.MemoryEnforcement, s.ComputeEnforcement)
			if s.MemoryLimit != nil {
				process = gibibytes(*s.MemoryLimit)
			}
			if s.ContainerMemoryLimit != nil {
				container = gibibytes(*s.ContainerMemoryLimit)
			}
		}
		if h.Admin {
			enforcement = "monitors"
		}
		pod := h.Pod
		if pod == "" && h.PodGroup != "" {
			pod = "PodGroup " + h.PodGroup
		}
		t.rows = append(t.rows, []string{h.Namespace, orDash(pod), orDash(h.Container), h.Claim, h.Node, h.Device, memory, compute, enforcement, process, container})
	}
	o.addUse(&t, func(i int) (use, float64) { return items[i].use, 0 })
	return o.print(items, t)
}
