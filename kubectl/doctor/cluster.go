// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet"
)

// The releases of Kubernetes that the driver needs, as docs/admin/install.md has them.
func oldestServer() *version.Version   { return version.MustParseGeneric("1.34.0") }
func sharingServer() *version.Version  { return version.MustParseGeneric("1.36.0") }
func countingServer() *version.Version { return version.MustParseGeneric("1.36.2") }

func checkServer(c *Cluster) []Finding {
	v, err := version.ParseGeneric(c.ServerVersion)
	const upgrade = "upgrade API server, scheduler and kubelets to Kubernetes 1.36.2 or newer"
	found := "Kubernetes " + c.ServerVersion
	switch {
	case err != nil:
		return ofCluster("server-version-unknown", fmt.Sprintf("the API server reports the version %q", c.ServerVersion), "the driver's features depend on the version", "compare the version with what the driver needs")
	case v.LessThan(oldestServer()):
		return ofCluster("server-too-old", found, "the driver needs resource.k8s.io/v1, which Kubernetes has from 1.34 on", upgrade)
	case v.LessThan(sharingServer()):
		return ofCluster("server-without-shares", found, "before 1.36 every GPU is published whole, and no claim can get a share", upgrade)
	case v.LessThan(countingServer()):
		return ofCluster("server-without-counters", found, "before 1.36.2 the scheduler could promise a GPU whole, cut and time-sliced at once, so nodes offer no MIG devices and no time slices", upgrade)
	default:
		return ok(found)
	}
}

func checkResources(c *Cluster) []Finding {
	missing := slices.DeleteFunc([]string{"deviceclasses", "resourceclaims", "resourceclaimtemplates", "resourceslices"},
		func(name string) bool { return slices.Contains(c.Resources, name) })
	if len(missing) > 0 {
		return ofCluster("resources-missing", "resource.k8s.io/v1 lacks "+list(missing), "claims for devices cannot be created or scheduled",
			"enable resource.k8s.io/v1 in the API server (--runtime-config) and the feature gate DynamicResourceAllocation in all components")
	}
	if slices.Contains(c.Resources, "devicetaintrules") {
		return ok("resource.k8s.io/v1 is served, with devicetaintrules")
	}
	return ofCluster("taint-rules-not-served", "the API server does not serve devicetaintrules of resource.k8s.io/v1", "kubectl gpu cordon, drain and room --evict fail, and rules of older versions are not shown; the driver's own taints do not need them",
		"upgrade to Kubernetes 1.37")
}

// checkShares reports whether the scheduler can share devices. A feature gate that is off
// drops the field without an error.
func checkShares(c *Cluster) []Finding {
	devices := 0
	for _, slice := range c.ownSlices() {
		for _, d := range slice.Spec.Devices {
			devices++
			if d.AllowMultipleAllocations != nil && *d.AllowMultipleAllocations {
				return ok("devices can be shared")
			}
		}
	}
	if devices == 0 {
		return ok("no node publishes devices, see slices")
	}
	return ofCluster("shares-not-published", fmt.Sprintf("none of %s can be shared", fleet.Number(devices, "published device")),
		"claims for less than a GPU fit nowhere: either no node offers shares, or the feature gate DRAConsumableCapacity is off",
		"to have shares, add share to the offer of the nodes, and enable DRAConsumableCapacity in API server, scheduler and kubelets")
}

// ownClasses returns the classes that select devices of the driver.
func (c *Cluster) ownClasses() []*resourceapi.DeviceClass {
	selects := func(s resourceapi.DeviceSelector) bool {
		return s.CEL != nil && (strings.Contains(s.CEL.Expression, "'"+c.Driver+"'") || strings.Contains(s.CEL.Expression, `"`+c.Driver+`"`))
	}
	return slices.DeleteFunc(slices.Clone(c.Classes), func(class *resourceapi.DeviceClass) bool { return !slices.ContainsFunc(class.Spec.Selectors, selects) })
}

func checkClasses(c *Cluster) []Finding {
	names := fleet.Each(c.ownClasses(), (*resourceapi.DeviceClass).GetName)
	if len(names) == 0 {
		return ofCluster("class-missing", fmt.Sprintf("no DeviceClass selects devices of the driver %s", c.Driver), "a claim names a class, so no claim can request a GPU",
			"install the chart with deviceClasses.gpu.enabled=true, or create a class with the selector device.driver == '"+c.Driver+"'")
	}
	return ok(fmt.Sprintf("%s: %s", fleet.Number(len(names), "class"), list(names)))
}

func checkExtendedResources(c *Cluster) []Finding {
	var findings []Finding
	serving := map[string][]string{}
	for _, class := range c.Classes {
		if name := class.Spec.ExtendedResourceName; name != nil {
			serving[*name] = append(serving[*name], class.Name)
		}
	}
	reported := map[string]bool{}
	for _, class := range c.ownClasses() {
		name := class.Spec.ExtendedResourceName
		if name == nil {
			continue
		}
		object := "class " + class.Name
		if classes := serving[*name]; len(classes) > 1 && !reported[*name] {
			reported[*name] = true
			findings = append(findings, newFinding("extended-resource-twice", object, fmt.Sprintf("the classes %s all serve %s", list(classes), *name),
				"the scheduler uses one of them for pods that request "+*name+", and ignores the others", "set extendedResourceName in one of them only"))
		}
		var nodes []string
		for _, node := range c.Nodes {
			if amount := node.Status.Allocatable[corev1.ResourceName(*name)]; amount.Value() > 0 {
				nodes = append(nodes, node.Name)
			}
		}
		if len(nodes) > 0 {
			findings = append(findings, newFinding("extended-resource-of-device-plugin", object, fmt.Sprintf("a device plugin serves %s on %s too", *name, list(nodes)),
				"pods that request "+*name+" get a GPU from the device plugin on these nodes, and from claims elsewhere",
				"remove the device plugin from these nodes, or empty the class's extended resource in the chart until it is gone"))
		}
	}
	return orOK(findings, "each extended resource of the driver's classes has one class and no device plugin")
}

// stolen begins what an agent can do without a policy.
const stolen = "with a stolen token, an agent can write "

// neededPolicies are the policies that limit agents: the end of the name, and what an agent can do if
// the policy is missing.
var neededPolicies = []struct{ suffix, without string }{
	{"-own-slices", stolen + "the devices of other nodes"},
	{"-own-claims", stolen + "the claims of other nodes"},
	{"-own-events", stolen + "events about any object, in the name of any program"},
}

func checkPolicies(c *Cluster) []Finding {
	var findings []Finding
	for _, needed := range neededPolicies {
		if !slices.ContainsFunc(c.Policies, func(p *admissionv1.ValidatingAdmissionPolicy) bool { return strings.HasSuffix(p.Name, needed.suffix) }) {
			findings = append(findings, newFinding("policy-missing", wholeCluster, "no ValidatingAdmissionPolicy of the driver ends with "+needed.suffix, needed.without,
				"apply the chart again: it always has this policy"))
		}
	}
	for _, policy := range c.Policies {
		binding := fleet.First(c.Bindings, func(b *admissionv1.ValidatingAdmissionPolicyBinding) bool { return b.Spec.PolicyName == policy.Name })
		switch object := "policy " + policy.Name; {
		case binding == nil:
			findings = append(findings, newFinding("policy-not-bound", object, "it has no ValidatingAdmissionPolicyBinding", "the policy has no effect",
				"apply the chart again: it has a binding for each policy"))
		case !slices.Contains(binding.Spec.ValidationActions, admissionv1.Deny):
			findings = append(findings, newFinding("policy-not-enforced", object, fmt.Sprintf("its binding has the actions %v", binding.Spec.ValidationActions),
				"requests against the policy are reported and admitted", "set policies.actions to [Deny] once no request is reported any more"))
		}
	}
	return orOK(findings, fleet.Number(len(c.Policies), "policy")+" with bindings")
}

// ownSlices returns the slices of the driver.
func (c *Cluster) ownSlices() []*resourceapi.ResourceSlice {
	return slices.DeleteFunc(slices.Clone(c.Slices), func(s *resourceapi.ResourceSlice) bool { return s.Spec.Driver != c.Driver })
}

// nodesWithGPUs returns the nodes for which the driver has slices.
func (c *Cluster) nodesWithGPUs() []*corev1.Node {
	published := c.gpuNodes()
	return slices.DeleteFunc(slices.Clone(c.Nodes), func(n *corev1.Node) bool { return !slices.Contains(published, n.Name) })
}

// podsNearGPUs returns the pods on nodes for which the driver has slices.
func (c *Cluster) podsNearGPUs() []*corev1.Pod {
	published := c.gpuNodes()
	return slices.DeleteFunc(slices.Clone(c.Pods), func(p *corev1.Pod) bool { return !slices.Contains(published, p.Spec.NodeName) })
}

// gpuNodes returns the names of the nodes for which the driver has slices, sorted.
func (c *Cluster) gpuNodes() []string {
	names := map[string]bool{}
	for _, slice := range c.ownSlices() {
		if slice.Spec.NodeName != nil {
			names[*slice.Spec.NodeName] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// checkNodes reports nodes with GPUs whose kubelet does not report.
func checkNodes(c *Cluster) []Finding {
	var findings []Finding
	for _, node := range c.nodesWithGPUs() {
		for _, condition := range node.Status.Conditions {
			if condition.Type != corev1.NodeReady || condition.Status == corev1.ConditionTrue {
				continue
			}
			findings = append(findings, newFinding("node-not-ready", onNode(node.Name),
				strings.TrimSuffix(fmt.Sprintf("it is not ready%s: %s: %s", c.since(condition.LastTransitionTime.Time), condition.Reason, condition.Message), ": "),
				"its GPUs and claims are shown as it last reported them, and none of its claims is prepared or released",
				"run kubectl describe node "+node.Name+", and read the log of the kubelet there (journalctl --unit kubelet)"))
		}
	}
	return orOK(findings, "no node with GPUs reports that it is not ready")
}
