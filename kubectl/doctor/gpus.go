// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
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
	if len(n.GPUs) == 0 {
		return fine("the agent lists no GPU")
	}
	findings := fleet.Each(n.GPUs, judge)
	worst := slices.MinFunc(findings, func(a, b Finding) int { return cmp.Compare(urgency(a), urgency(b)) })
	var texts []string
	names := map[string][]string{}
	for i, f := range findings {
		if f.State != worst.State {
			continue
		}
		if names[f.Found] == nil {
			texts = append(texts, f.Found)
		}
		names[f.Found] = append(names[f.Found], deviceName(n.GPUs[i]))
	}
	for i, text := range texts {
		gpus := list(names[text])
		if len(names[text]) == len(n.GPUs) {
			gpus = fleet.Number(len(n.GPUs), "GPU")
		}
		texts[i] += " (" + gpus + ")"
	}
	worst.Found = strings.Join(texts, "; ")
	return worst
}

// eachFact returns the most urgent finding about a fact of the GPUs of a node, or that the fact is
// unknown.
func eachFact[T any](n agentv1.Node, fact func(agentv1.GPU) agentv1.Fact[T], judge func(T) Finding) Finding {
	return eachGPU(n, func(g agentv1.GPU) Finding { return known(fact(g), judge) })
}

// deviceName returns the name of the GPU's device.
func deviceName(g agentv1.GPU) string {
	address, err := gpu.ParsePCIAddress(g.Address)
	if err != nil {
		return g.Address
	}
	return kind.Whole(address).String()
}
