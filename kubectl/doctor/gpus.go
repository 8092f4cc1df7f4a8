// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"slices"
	"strings"

	agentv1 "github.com/gpu-dra/gpu-dra-driver/api/agent/v1"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

// eachGPU returns the most urgent verdict on the GPUs of a node. It names
// the GPUs with a verdict of that state, and has the meaning and the remedy of the first.
func eachGPU(n agentv1.Node, judge func(agentv1.GPU) verdict) verdict {
	verdicts := make([]verdict, len(n.GPUs))
	worst := fine("the agent lists no GPU")
	for i, g := range n.GPUs {
		verdicts[i] = judge(g)
		if i == 0 || slices.Index(states(), verdicts[i].state) < slices.Index(states(), worst.state) {
			worst = verdicts[i]
		}
	}
	var all []string
	names := map[string][]string{}
	for i, g := range n.GPUs {
		if v := verdicts[i]; v.state == worst.state {
			if names[v.found] == nil {
				all = append(all, v.found)
			}
			names[v.found] = append(names[v.found], deviceName(g))
		}
	}
	for i, found := range all {
		if gpus := names[found]; len(gpus) == len(n.GPUs) {
			all[i] += " (" + fleet.Number(len(gpus), "GPU") + ")"
		} else {
			all[i] += " (" + list(gpus) + ")"
		}
	}
	if all != nil {
		worst.found = strings.Join(all, "; ")
	}
	return worst
}

// deviceName returns the name of the GPU's device.
func deviceName(g agentv1.GPU) string {
	address, err := gpu.ParsePCIAddress(g.Address)
	if err != nil {
		return g.Address
	}
	return kind.Whole(address).String()
}
