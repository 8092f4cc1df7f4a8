// SPDX-License-Identifier: Apache-2.0

package rows

// ObjectName returns NODE/GPU, or NODE for a node without published GPUs.
func (g GPU) ObjectName() string {
	if g.Name == "" {
		return g.Node
	}
	return g.Node + "/" + g.Name
}

// ObjectName returns the pod as kubectl names it, or the claim if no pod uses it.
func (h Holder) ObjectName() string {
	if h.Pod == "" {
		return "resourceclaim.resource.k8s.io/" + h.Claim
	}
	return "pod/" + h.Pod
}

// ObjectName returns the DeviceClass as kubectl names it.
func (f Free) ObjectName() string { return "deviceclass.resource.k8s.io/" + f.Class }

// ObjectName returns the namespace as kubectl names it.
func (u Usage) ObjectName() string { return "namespace/" + u.Namespace }

// ObjectName returns the name of the GPU.
func (t Topology) ObjectName() string { return t.Name }

// ObjectName returns the pod or claim as kubectl names it.
func (e Explanation) ObjectName() string {
	if e.Pod == "" {
		return "resourceclaim.resource.k8s.io/" + e.Claim
	}
	return "pod/" + e.Pod
}
