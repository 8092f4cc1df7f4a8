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

// eachGPU returns the most urgent finding about the GPUs of a node. It names
// the GPUs with a finding of that state, and has the meaning and the remedy of the first.
func eachGPU(n agentv1.Node, judge func(agentv1.GPU) Finding) Finding {
	worst := fine("the agent lists no GPU")
	var all []string
	names := map[string][]string{}
	for i, g := range n.GPUs {
		f := judge(g)
		if i == 0 || slices.Index(states(), f.State) < slices.Index(states(), worst.State) {
			worst, all = f, nil
			clear(names)
		}
		if f.State == worst.State {
			if names[f.Found] == nil {
				all = append(all, f.Found)
			}
			names[f.Found] = append(names[f.Found], deviceName(g))
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
		worst.Found = strings.Join(all, "; ")
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
