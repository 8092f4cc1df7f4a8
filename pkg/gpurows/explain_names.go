// SPDX-License-Identifier: Apache-2.0

package gpurows

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	"github.com/gpu-dra/gpu-dra-driver/pkg/doctor"
	"github.com/gpu-dra/gpu-dra-driver/pkg/fleet"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// notFound returns the error for a name of no pod and no claim: with the command for the same
// name in another namespace, or the nearest names.
func (c *Cluster) notFound(q Question) error {
	err := fmt.Errorf("%s: %w: no pod and no claim of the namespace %s has this name", q.Name, gpu.ErrNotFound, q.Namespace)
	name, ofPods, ofClaims := strings.TrimPrefix(q.Name, "pod/"), true, true
	if claim, ok := strings.CutPrefix(q.Name, "claim/"); ok {
		name, ofPods = claim, false
	} else if name != q.Name {
		ofClaims = false
	}
	var elsewhere, here []string
	add := func(namespace, found, subject string) {
		switch {
		case namespace == q.Namespace:
			here = append(here, found)
		case found == name:
			addOnce(&elsewhere, fmt.Sprintf("kubectl gpu explain %s --namespace %s", subject, namespace))
		}
	}
	for _, pod := range c.Objects.Pods {
		if ofPods {
			add(pod.Namespace, pod.Name, pod.Name)
		}
	}
	for _, claim := range c.Objects.Claims {
		if ofClaims && !ofPods {
			add(claim.Namespace, claim.Name, "claim/"+claim.Name)
		}
	}
	slices.Sort(elsewhere)
	near := fleet.Nearest(name, here)
	prefix := ""
	if !ofPods {
		prefix = "claim/"
	}
	const most = 3
	switch {
	case len(elsewhere) > 0:
		return fmt.Errorf("%w; it is in another namespace: %s", err, strings.Join(elsewhere[:min(most, len(elsewhere))], ", or "))
	case len(near) > 0:
		return fmt.Errorf("%w; did you mean %s? kubectl gpu explain %s%s --namespace %s", err, strings.Join(near, ", "), prefix, near[0], q.Namespace)
	case ofPods && len(c.Objects.Pods) == 0 && c.Refused[doctor.Pods] != "":
		return fmt.Errorf("%w; %s", err, strings.TrimSuffix(c.Refused[doctor.Pods], "."))
	default:
		return err
	}
}

// The extended resources of other projects for shares of a GPU, by HAMi and its predecessor.
// Amounts of memory are in MiB, and cores in percent of a GPU.
const (
	otherMemory        = "nvidia.com/gpumem"
	otherMemoryPercent = "nvidia.com/gpumem-percentage"
	otherCores         = "nvidia.com/gpucores"
	otherShared        = "nvidia.com/gpu.shared"
	otherMIG           = "nvidia.com/mig-"
	wholeGPU           = "nvidia.com/gpu"
)

// The classes of the chart for claims in place of extended resources of others.
const (
	classShare     = "mps.nvidia.com"
	classTimeSlice = "timeslice.nvidia.com"
	classMIG       = "mig.nvidia.com"
)

// addResources adds the extended resources of a pod for which there is neither a class nor a
// node: other projects' names, and misspelt ones.
func (e *explaining) addResources(pod *corev1.Pod) {
	if e.isUnreadable() {
		return
	}
	for _, container := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		var unserved []string
		for _, name := range slices.Sorted(maps.Keys(container.Resources.Limits)) {
			if strings.Contains(string(name), "/") && !e.isServed(pod, name) {
				unserved = append(unserved, string(name))
			}
		}
		for _, name := range unserved {
			e.addResource(pod, container, name)
		}
	}
}

// isServed reports whether a class or a node serves an extended resource. If the user may not
// list nodes, the message of the scheduler decides.
func (e *explaining) isServed(pod *corev1.Pod, name corev1.ResourceName) bool {
	if e.cluster.ClassOf(name) != nil {
		return true
	}
	if e.cluster.Refused[doctor.Nodes] != "" {
		message, _ := Unscheduled(pod)
		return !strings.Contains(message, "Insufficient "+string(name))
	}
	return slices.ContainsFunc(e.cluster.Objects.Nodes, func(n *corev1.Node) bool {
		q, ok := n.Status.Allocatable[name]
		return ok && !q.IsZero()
	})
}

func (e *explaining) addResource(pod *corev1.Pod, container corev1.Container, name string) {
	served := e.servedNames()
	claim := ""
	switch {
	case slices.Contains([]string{otherMemory, otherMemoryPercent, otherCores}, name):
		claim = e.shareOf(pod, container)
	case name == otherShared:
		claim = request(pod, container, classTimeSlice, "")
	case strings.HasPrefix(name, otherMIG):
		if profile, ok := profileOf(name); ok {
			claim = request(pod, container, classMIG, fmt.Sprintf(`, selectors: [{cel: {expression: "device.attributes[\"%s\"].profile == \"%s\""}}]`, e.cluster.Driver, profile))
		}
	}
	near := fleet.Nearest(name, served)
	switch {
	case claim != "":
		e.Causes = append(e.Causes, fmt.Sprintf("container %s requests %s, which nothing in this cluster serves", container.Name, name))
		if strings.HasPrefix(name, otherMIG) || name == otherShared {
			addOnce(&e.Advice, e.offerFor(name)...)
		}
		addOnce(&e.Advice, "make a claim template instead: "+claim,
			fmt.Sprintf("and create the pod again without %s: spec.resourceClaims: [{name: gpu, resourceClaimTemplateName: %s}], and in container %s resources.claims: [{name: gpu}]", strings.Join(gpuResources(container), ", "), templateName(pod), container.Name))
	case len(near) > 0:
		e.Causes = append(e.Causes, fmt.Sprintf("container %s requests %s, which nothing in this cluster serves", container.Name, name))
		addOnce(&e.Advice, fmt.Sprintf("did you mean %s? %s", strings.Join(near, ", "), recreate(pod, name, near[0])))
	case strings.HasPrefix(name, "nvidia.com/"):
		e.Causes = append(e.Causes, fmt.Sprintf("container %s requests %s, which nothing in this cluster serves", container.Name, name))
		addOnce(&e.Advice, "name one of these resources instead, or write a claim: "+List(served))
	}
}

// gpuResources returns the extended resources of NVIDIA in a container.
func gpuResources(container corev1.Container) []string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(container.Resources.Limits)) {
		if strings.HasPrefix(string(name), "nvidia.com/") {
			names = append(names, string(name))
		}
	}
	return names
}

// servedNames returns the extended resources that classes serve.
func (e *explaining) servedNames() []string {
	var names []string
	for _, class := range e.cluster.Objects.Classes {
		if own := class.Spec.ExtendedResourceName; own != nil {
			names = append(names, *own)
		}
	}
	slices.Sort(names)
	return names
}

// recreate returns the command that replaces a pod by one with another word. Resources of a pod
// cannot be changed.
func recreate(pod *corev1.Pod, old, new string) string {
	if len(pod.OwnerReferences) > 0 {
		return fmt.Sprintf("correct the %s %s, which makes the pod", pod.OwnerReferences[0].Kind, pod.OwnerReferences[0].Name)
	}
	return fmt.Sprintf("kubectl get pod %s --namespace %s --output yaml | sed 's|%s|%s|' | kubectl replace --force --filename -", pod.Name, pod.Namespace, old, new)
}

// addMissingClaims adds the remedy for each claim that a pod names and that its namespace lacks:
// the command that makes a copy of the claim of another namespace, or the nearest name.
func (e *explaining) addMissingClaims(pod *corev1.Pod) {
	for _, entry := range pod.Spec.ResourceClaims {
		name := entry.ResourceClaimName
		if name == nil || FindClaim(e.cluster.Objects, pod.Namespace, *name) != nil || e.cluster.Refused[doctor.Claims] != "" {
			continue
		}
		var here []string
		elsewhere := ""
		for _, claim := range e.cluster.Objects.Claims {
			switch {
			case claim.Namespace == pod.Namespace:
				here = append(here, claim.Name)
			case claim.Name == *name && (elsewhere == "" || claim.Namespace < elsewhere):
				elsewhere = claim.Namespace
			}
		}
		switch near := fleet.Nearest(*name, here); {
		case elsewhere != "":
			e.Causes = append(e.Causes, fmt.Sprintf("the claim %s is in the namespace %s, and pods use claims of their own namespace only", *name, elsewhere))
			addOnce(&e.Advice, fmt.Sprintf("make a claim like it in the namespace of the pod: kubectl get resourceclaim %s --namespace %s --output yaml | sed '/^  resourceVersion:/d; /^  uid:/d; /^  finalizers:/,/^  - /d; s|^  namespace: .*|  namespace: %s|' | kubectl create --filename -",
				*name, elsewhere, pod.Namespace))
		case len(near) > 0:
			addOnce(&e.Advice, fmt.Sprintf("did you mean the claim %s? %s", strings.Join(near, ", "), recreate(pod, "resourceClaimName: "+*name+"$", "resourceClaimName: "+near[0])))
		default:
			addOnce(&e.Advice, fmt.Sprintf("create the claim, or name one of the namespace: kubectl get resourceclaims --namespace %s", pod.Namespace))
		}
	}
}

func templateName(pod *corev1.Pod) string { return pod.Name + "-gpu" }

// request returns the command that creates a claim template with one request. more follows the
// class in the request.
func request(pod *corev1.Pod, container corev1.Container, class, more string) string {
	count := ""
	if n := container.Resources.Limits[wholeGPU]; n.Value() > 1 {
		count = fmt.Sprintf(", count: %d", n.Value())
	}
	return fmt.Sprintf(`echo '{apiVersion: resource.k8s.io/v1, kind: ResourceClaimTemplate, metadata: {name: %s}, spec: {spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: %s%s%s}}]}}}}' | kubectl apply --namespace %s --filename -`,
		templateName(pod), class, count, more, pod.Namespace)
}

// shareOf returns the command for the claim that stands for amounts of HAMi.
func (e *explaining) shareOf(pod *corev1.Pod, container corev1.Container) string {
	limits := container.Resources.Limits
	var amounts []string
	if q, ok := limits[otherMemory]; ok {
		amounts = append(amounts, fmt.Sprintf("memory: %dMi", q.Value()))
	} else if q, ok := limits[otherMemoryPercent]; ok {
		if whole := e.smallestGPU(); whole > 0 {
			amounts = append(amounts, fmt.Sprintf("memory: %dMi", whole/100*q.Value()>>20))
		}
	}
	if q, ok := limits[otherCores]; ok {
		amounts = append(amounts, fmt.Sprintf("compute: %d", min(100, q.Value())))
	}
	if len(amounts) == 0 || !strings.Contains(amounts[0], "memory") {
		// A share has an amount of memory.
		amounts = append([]string{"memory: 10Gi"}, amounts...)
	}
	return request(pod, container, classShare, fmt.Sprintf(", capacity: {requests: {%s}}", strings.Join(amounts, ", ")))
}

// smallestGPU returns the memory of the smallest GPU, in bytes; 0 without one.
func (e *explaining) smallestGPU() int64 {
	var least int64
	for _, node := range e.cluster.Nodes() {
		for _, g := range node.GPUs {
			if total := g.Memory.Total; total.Value() > 0 && (least == 0 || total.Value() < least) {
				least = total.Value()
			}
		}
	}
	return least
}

// profileOf returns the MIG profile of an extended resource, such as 1g.10gb+me of
// nvidia.com/mig-1g.10gb.me.
func profileOf(resource string) (string, bool) {
	text := strings.TrimPrefix(resource, otherMIG)
	if slice, rest, ok := strings.Cut(text, "gb."); ok {
		text = slice + "gb+" + rest
	}
	profile, err := gpu.ParseProfile(text)
	return profile.String(), err == nil
}

// MissingClasses returns a remedy for each DeviceClass that does not exist.
func MissingClasses(f *fleet.Fleet, claims []*resourceapi.ResourceClaim) []string {
	return missingClasses(f, nil, nil, claims)
}

// missingClasses is like [MissingClasses], with the commands that correct a misspelt class of a
// pod's claims.
func missingClasses(f *fleet.Fleet, classes []*resourceapi.DeviceClass, pod *corev1.Pod, claims []*resourceapi.ResourceClaim) []string {
	var existing []string
	for _, class := range classes {
		existing = append(existing, class.Name)
	}
	var all []string
	for _, claim := range claims {
		for _, r := range claim.Spec.Devices.Requests {
			var names []string
			if r.Exactly != nil {
				names = append(names, r.Exactly.DeviceClassName)
			}
			for _, alternative := range r.FirstAvailable {
				names = append(names, alternative.DeviceClassName)
			}
			for _, name := range names {
				if f.HasClass(name) {
					continue
				}
				if near := fleet.Nearest(name, existing); len(near) > 0 {
					all = append(all, fmt.Sprintf("did you mean the DeviceClass %s?", strings.Join(near, ", ")))
					addOnce(&all, corrections(pod, claim, name, near[0])...)
					continue
				}
				all = append(all, fmt.Sprintf("create the DeviceClass %s of request %s of claim %s, or name another: kubectl get deviceclasses", name, r.Name, claim.Name))
			}
		}
	}
	return all
}

// corrections returns the commands that replace a class in a claim or its template. The specs
// of both cannot be changed.
func corrections(pod *corev1.Pod, claim *resourceapi.ResourceClaim, old, new string) []string {
	kind, name := "resourceclaim", claim.Name
	if pod != nil {
		for i := range pod.Spec.ResourceClaims {
			entry := &pod.Spec.ResourceClaims[i]
			own, _, err := resourceclaim.Name(pod, entry)
			if err == nil && own != nil && *own == claim.Name && entry.ResourceClaimTemplateName != nil {
				kind, name = "resourceclaimtemplate", *entry.ResourceClaimTemplateName
			}
		}
	}
	namespace := cmp.Or(claim.Namespace, "default")
	texts := []string{fmt.Sprintf("kubectl get %s %s --namespace %s --output yaml | sed 's|deviceClassName: %s$|deviceClassName: %s|' | kubectl replace --force --filename -", kind, name, namespace, old, new)}
	if kind == "resourceclaimtemplate" {
		texts = append(texts, fmt.Sprintf("then kubectl delete pod %s --namespace %s, so that its controller makes it again with a new claim", pod.Name, namespace))
	}
	return texts
}
