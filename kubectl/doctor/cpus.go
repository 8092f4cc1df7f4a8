// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"

	agentv1 "github.com/gpu-dra/gpu-dra-driver/api/agent/v1"
)

// cpuDriver is the name of the DRA driver of kubernetes-sigs/dra-driver-cpu.
const cpuDriver = "dra.cpu"

// checkCPUManager reports nodes whose containers do not get CPUs near their GPUs. The kubelet
// prepares claims after it has assigned CPUs, so no policy of it considers claimed GPUs: see
// docs/user/topology.md.
func checkCPUManager(c *Cluster) []Finding {
	claimed := map[string]bool{}
	for _, slice := range c.Slices {
		if slice.Spec.Driver == cpuDriver && slice.Spec.NodeName != nil && len(slice.Spec.Devices) > 0 {
			claimed[*slice.Spec.NodeName] = true
		}
	}
	return c.onAllNodes(func(name string, n agentv1.Node) Finding { return judgeCPUManager(n, claimed[name]) })
}

// judgeCPUManager judges the kubelet's policy. claimed is set if the CPUs of the node are
// devices of claims.
func judgeCPUManager(n agentv1.Node, claimed bool) Finding {
	return known(n.CPUManager, func(policy string) Finding {
		nodes := n.NUMANodes.Value
		switch {
		case policy == "":
			return fine("the kubelet has no state of a CPU manager")
		case policy == "none" && claimed:
			return fine("CPU manager policy none, and claims get CPUs of %s", cpuDriver)
		case claimed:
			return nodeFinding("cpu-manager-conflict", fmt.Sprintf("CPU manager policy %s, and CPUs of %s", policy, cpuDriver),
				"the kubelet and the CPU driver assign the same CPUs",
				"set cpuManagerPolicy: none in the kubelet's configuration, drain the node, delete its cpu_manager_state and restart the kubelet")
		case policy == "none" && nodes > 1:
			return nodeFinding("cpus-far-from-gpus", fmt.Sprintf("CPU manager policy none on %d NUMA nodes", nodes),
				"containers run on CPUs of all NUMA nodes, also far from their GPU",
				"bind programs to the CPUs of their GPU (taskset and GPU_CPUS_…, torchrun --numa-binding), or install dra-driver-cpu and claim GPU and CPUs together; no policy of the kubelet considers claimed GPUs")
		case nodes > 1:
			return fine("CPU manager policy %s, which does not consider claimed GPUs", policy)
		default:
			return fine("CPU manager policy %s", policy)
		}
	})
}
