// SPDX-License-Identifier: Apache-2.0

package rows

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	agentv1 "github.com/gpu-dra/gpu-dra-driver/api/agent/v1"
	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// ContainerDevice is a device of a container, with its limits in the words of a program. It
// has its fields in JSON and YAML.
type ContainerDevice struct {
	Container string `json:"container"`
	Claim     string `json:"claim"`
	Node      string `json:"node"`
	Device    string `json:"device"`
	// Memory and Compute are promised by the scheduler, as in [Holder].
	Memory  resource.Quantity `json:"memory"`
	Compute int64             `json:"computePercent,omitempty"`
	// Share is absent if the claim has the device alone.
	Share *v1alpha1.ShareData `json:"share,omitempty"`
	// Limits are a sentence each: of memory, then of compute.
	Limits []string `json:"limits,omitempty"`
	Use
}

// addContainers adds the devices of a pod's containers. It also adds their use and that of
// their neighbours, and the place of the devices in the node.
func (e *explaining) addContainers(pod *corev1.Pod, claims []*resourceapi.ResourceClaim) {
	places := map[string][]fleet.Device{}
	for _, claim := range claims {
		if claim.Status.Allocation == nil {
			continue
		}
		e.addAllocated(claim)
		e.addUnnamed(pod, claim)
		for _, id := range e.cluster.devicesOf(claim) {
			d := e.cluster.Device(id)
			places[id.Pool] = append(places[id.Pool], d)
			for _, h := range d.Holders {
				if h.Claim.UID != claim.UID {
					continue
				}
				for _, row := range rowsOf(id.Pool, d, h, e.Uses) {
					if row.Pod == pod.Name || row.Pod == "" {
						e.Containers = append(e.Containers, ContainerDevice{
							Container: row.Container, Claim: claim.Name, Node: id.Pool, Device: id.Device,
							Memory: row.Memory, Compute: row.Compute, Share: row.Share, Limits: row.Terms(), Use: row.Use,
						})
						if row.Share != nil && row.Share.Strategy == v1alpha1.StrategyMPS {
							e.addReplacedShm(pod, row.Container)
						}
					}
				}
			}
			e.addNeighbours(d, claim)
		}
	}
	for _, node := range slices.Sorted(maps.Keys(places)) {
		e.addPlacement(node, places[node])
	}
}

// addReplacedShm adds a fact if the container with a share has a volume at /dev/shm.
func (e *explaining) addReplacedShm(pod *corev1.Pod, container string) {
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		if (c.Name == container || container == "") && slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return path.Clean(m.MountPath) == "/dev/shm" }) {
			fleet.AddOnce(&e.Facts, fmt.Sprintf("container %s does not see its volume at /dev/shm: the MPS daemon's is there, which all shares of the GPU fill together (supervisor.shmSize of the chart is its size)", c.Name))
		}
	}
}

// addUnnamed adds a cause if no container of a pod names a claim. No program gets its devices
// then.
func (e *explaining) addUnnamed(pod *corev1.Pod, claim *resourceapi.ResourceClaim) {
	entries := fleet.EntriesOf(pod, claim) // none of a claim for extended resources
	if len(entries) == 0 || slices.ContainsFunc(entries, func(entry string) bool { return fleet.IsNamed(pod, entry) }) {
		return
	}
	e.Causes = append(e.Causes, fmt.Sprintf("no container of the pod names the claim %s, so no program gets its devices", claim.Name))
	e.advise(fmt.Sprintf("add resources.claims: [{name: %s}] to the container that computes, and create the pod again", entries[0]))
}

// Terms returns the limits of a program in words, a sentence each.
func (h Holder) Terms() []string {
	s := h.Share
	switch {
	case h.Admin:
		return []string{"it monitors the device, and may not compute on it"}
	case s == nil && h.alone:
		return []string{fmt.Sprintf("it has the device alone: %s of memory, and all SMs of the device", amount(h.Memory))}
	case s == nil && h.Memory.IsZero():
		return nil
	case s == nil:
		return []string{fmt.Sprintf("%s of memory are promised; the agent has not reported the limits", amount(h.Memory))}
	}
	terms := memoryTerms(s)
	switch {
	case s.ThreadPercentage > 0:
		terms = append(terms, fmt.Sprintf("a process uses at most %d%% of the SMs", s.ThreadPercentage))
	case s.Strategy == v1alpha1.StrategyTimeSlicing:
		terms = append(terms, "it shares the time of all SMs with the other programs on the GPU")
	case s.Compute > 0:
		terms = append(terms, fmt.Sprintf("%d%% of the SMs are promised, and nothing limits them", s.Compute))
	}
	return terms
}

// memoryTerms returns the limits of memory of a share.
func memoryTerms(s *v1alpha1.ShareData) []string {
	var terms []string
	switch {
	case s.MemoryLimit != nil && s.ContainerMemoryLimit != nil && s.MemoryLimit.Cmp(*s.ContainerMemoryLimit) == 0:
	case s.MemoryLimit != nil && s.Processes > 1:
		terms = append(terms, fmt.Sprintf("each of %d processes may use %s, its context included", s.Processes, amount(*s.MemoryLimit)))
	case s.MemoryLimit != nil:
		terms = append(terms, fmt.Sprintf("a process may use %s, its context included", amount(*s.MemoryLimit)))
	}
	switch {
	case s.ContainerMemoryLimit != nil:
		terms = append(terms, fmt.Sprintf("the container may use %s, contexts included", amount(*s.ContainerMemoryLimit)))
	case s.MemoryLimit == nil && s.Memory != nil:
		terms = append(terms, fmt.Sprintf("%s of memory are promised, and nothing limits them", amount(*s.Memory)))
	case s.MemoryLimit == nil:
		terms = append(terms, "no memory is promised: it shares the memory of the GPU with other programs")
	}
	return terms
}

// amount prints a limit of memory without rounding it up: in Gi if it is a multiple of a half,
// or else in Mi.
func amount(q resource.Quantity) string {
	const mebi, gibi = 1 << 20, 1 << 30
	if v := q.Value(); v < gibi || v%(gibi/2) != 0 {
		return fmt.Sprintf("%dMi", v/mebi)
	}
	return Gibibytes(q)
}

// addNeighbours adds the claims on the GPU of a device that use more memory than they were
// promised. It names claims of other namespaces only for users who may list all claims.
func (e *explaining) addNeighbours(d fleet.Device, own *resourceapi.ResourceClaim) {
	name := fleet.NameOf(d.ID.Device)
	if !name.OnGPU() {
		return
	}
	type neighbour struct{ namespace, claim, device string }
	use, promised := map[neighbour]uint64{}, map[neighbour]uint64{}
	for _, row := range e.Uses[d.ID.Pool].Rows {
		n := neighbour{row.Namespace, row.Claim, row.Device}
		if other := fleet.NameOf(row.Device); !other.OnGPU() || other.Address != name.Address || n.namespace == own.Namespace && n.claim == own.Name {
			continue
		}
		if row.MemoryUsedBytes != nil {
			use[n] += *row.MemoryUsedBytes
		}
		if isOfClaim(row.Labels) && row.MemoryPromisedBytes != nil {
			promised[n] = *row.MemoryPromisedBytes
		}
	}
	for _, n := range slices.SortedFunc(maps.Keys(promised), func(a, b neighbour) int { return strings.Compare(a.namespace+a.claim, b.namespace+b.claim) }) {
		if use[n] <= promised[n] {
			continue
		}
		who := fmt.Sprintf("claim %s/%s", n.namespace, n.claim)
		if n.namespace != own.Namespace && e.cluster.IsPartial() {
			who = "a claim of another namespace"
		}
		fleet.AddOnce(&e.Causes, fmt.Sprintf("%s on the GPU of %s uses %s, more than the %s that it was promised: memory may run out before the limits here",
			who, d.ID.Device, amount(bytes(use[n])), amount(bytes(promised[n]))))
		e.advise(fmt.Sprintf("have the administrator of node %s end that program, or offer limits that the driver keeps: %s", d.ID.Pool, gpu.Page("docs/user/share-guarantees.md#the-levels")))
	}
}

func isOfClaim(l agentv1.Labels) bool { return l.Pod == "" && l.Container == "" }

func bytes(n uint64) resource.Quantity {
	return *resource.NewQuantity(int64(n), resource.BinarySI) //nolint:gosec // less than 2^63 bytes
}

// addPlacement adds a fact if the GPUs of a pod are far from each other.
func (e *explaining) addPlacement(node string, devices []fleet.Device) {
	numa, domains, known := map[string]bool{}, map[string]bool{}, true
	gpus := map[string]bool{}
	for _, d := range devices {
		place := d.Place()
		if name := fleet.NameOf(d.ID.Device); name.OnGPU() {
			gpus[name.Address.String()] = true
		}
		if place.NUMANode != "" {
			numa[place.NUMANode] = true
		}
		domains[place.NVLinkDomain] = true
		known = known && place.NVLinkDomain != ""
	}
	if len(gpus) < 2 {
		return
	}
	if len(numa) > 1 {
		e.Facts = append(e.Facts, fmt.Sprintf("placement: its %d GPUs span the NUMA nodes %s of node %s, so transfers between them may cross sockets: kubectl gpu topo %s",
			len(gpus), strings.Join(slices.Sorted(maps.Keys(numa)), ", "), node, node))
	}
	if known && len(domains) > 1 {
		e.Facts = append(e.Facts, fmt.Sprintf("placement: its %d GPUs span %d NVLink domains, so transfers between these use PCIe; the constraint matchAttribute: %s/%s keeps a claim in one: %s",
			len(gpus), len(domains), e.cluster.Driver, v1alpha1.AttributeNVLinkDomain, gpu.Page("docs/user/topology.md#four-linked-gpus")))
	}
}
