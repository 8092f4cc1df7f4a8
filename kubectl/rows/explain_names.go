// SPDX-License-Identifier: Apache-2.0

package rows

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpu-dra/gpu-dra-driver/kubectl/doctor"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// The page about the names that claims and pods use.
const classesPage = "docs/user/claim-reference.md#deviceclasses-and-extended-resources"

// notFound returns the error for a name of no pod and no claim: with the command for the same
// name in another namespace, or the nearest names.
func (c *Cluster) notFound(q Question) error {
	err := fmt.Errorf("%s: %w: no pod and no claim of the namespace %s has this name", q.Name, gpu.ErrNotFound, q.Namespace)
	name, isClaim := strings.CutPrefix(q.Name, "claim/")
	prefix, all := "claim/", fleet.Each(c.Objects.Claims, func(c *resourceapi.ResourceClaim) metav1.Object { return c })
	if !isClaim {
		name, prefix, all = strings.TrimPrefix(name, "pod/"), "", fleet.Each(c.Objects.Pods, func(p *corev1.Pod) metav1.Object { return p })
	}
	var elsewhere, here []string
	for _, o := range all {
		switch {
		case o.GetNamespace() == q.Namespace:
			here = append(here, o.GetName())
		case o.GetName() == name:
			fleet.AddOnce(&elsewhere, fmt.Sprintf("kubectl gpu explain %s%s --namespace %s", prefix, name, o.GetNamespace()))
		}
	}
	slices.Sort(elsewhere)
	near := fleet.Nearest(name, here)
	const most = 3
	switch {
	case len(elsewhere) > 0:
		return fmt.Errorf("%w; it is in another namespace: %s", err, strings.Join(elsewhere[:min(most, len(elsewhere))], ", or "))
	case len(near) > 0:
		return fmt.Errorf("%w; did you mean %s? kubectl gpu explain %s%s --namespace %s", err, strings.Join(near, ", "), prefix, near[0], q.Namespace)
	case !isClaim && len(c.Objects.Pods) == 0 && c.Refused[doctor.Pods] != "":
		return fmt.Errorf("%w; %s", err, strings.TrimSuffix(c.Refused[doctor.Pods], "."))
	default:
		return err
	}
}

// addResources adds the extended resources of a pod for which there is neither a class nor a
// node.
func (e *explaining) addResources(pod *corev1.Pod) {
	if e.isUnreadable() {
		return
	}
	for _, container := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		for _, name := range slices.Sorted(maps.Keys(container.Resources.Limits)) {
			near := e.servedNames(string(name))
			if !strings.Contains(string(name), "/") || e.isServed(pod, name) || len(near) == 0 && !strings.HasPrefix(string(name), "nvidia.com/") {
				continue
			}
			e.Causes = append(e.Causes, fmt.Sprintf("container %s requests %s, which nothing in this cluster serves", container.Name, name))
			if len(near) > 0 {
				e.advise(fmt.Sprintf("did you mean %s? Resources of a pod cannot be changed: create it again", strings.Join(near, ", ")))
			} else {
				e.advise("request a resource that a DeviceClass serves, or write a claim: " + gpu.Page(classesPage))
			}
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

// servedNames returns the extended resources of classes that differ from a name by two letters at
// most. Names of MIG profiles differ by so little, and mean other devices.
func (e *explaining) servedNames(misspelt string) []string {
	const most = 2
	var names []string
	for _, class := range e.cluster.Objects.Classes {
		if own := class.Spec.ExtendedResourceName; own != nil && !strings.Contains(misspelt, "/mig-") && fleet.Distance(misspelt, *own) <= most {
			names = append(names, *own)
		}
	}
	slices.Sort(names)
	return names
}

// addMissingClaims adds the remedy for each claim that a pod names and that its namespace lacks.
func (e *explaining) addMissingClaims(pod *corev1.Pod) {
	for _, entry := range pod.Spec.ResourceClaims {
		name := entry.ResourceClaimName
		if name == nil || FindClaim(e.cluster.Objects, pod.Namespace, *name) != nil {
			continue
		}
		var here []string
		for _, claim := range e.cluster.Objects.Claims {
			if claim.Namespace == pod.Namespace {
				here = append(here, claim.Name)
			} else if claim.Name == *name {
				fleet.AddOnce(&e.Causes, fmt.Sprintf("a claim %s is in the namespace %s, and pods use claims of their own namespace only", *name, claim.Namespace))
			}
		}
		if near := fleet.Nearest(*name, here); len(near) > 0 {
			e.advise(fmt.Sprintf("did you mean the claim %s? The claims of a pod cannot be changed: create it again", strings.Join(near, ", ")))
		} else {
			e.advise(fmt.Sprintf("create the claim %s in the namespace %s", *name, pod.Namespace))
		}
	}
}

// MissingClasses returns a sentence for each DeviceClass that does not exist, with the remedy.
func (c *Cluster) MissingClasses(claims []*resourceapi.ResourceClaim) []string {
	var all []string
	existing := fleet.Each(c.Objects.Classes, (*resourceapi.DeviceClass).GetName)
	for _, claim := range claims {
		for _, name := range doctor.ClassesOf(claim.Spec.Devices) {
			near := fleet.Nearest(name, existing)
			switch missing := "the DeviceClass " + name + " does not exist"; {
			case c.HasClass(name):
			case doctor.IsOwnClass(name):
				fleet.AddOnce(&all, missing+": an administrator switches it on in the chart, below deviceClasses: "+gpu.Page(classesPage))
			case len(near) > 0:
				fleet.AddOnce(&all, missing+": did you mean "+strings.Join(near, ", ")+"? Claims and templates cannot be changed: create them again")
			default:
				fleet.AddOnce(&all, missing+": name another: kubectl get deviceclasses")
			}
		}
	}
	return all
}
