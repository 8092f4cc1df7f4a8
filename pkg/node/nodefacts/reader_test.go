// SPDX-License-Identifier: Apache-2.0

package nodefacts

import (
	"context"
	"testing"

	"k8s.io/utils/ptr"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// reader returns the reader of a node whose last scan found the GPUs.
func reader(roots Roots, gpus ...gpu.GPU) *Reader {
	return &Reader{
		Roots:         roots,
		LastScan:      func() (gpu.Node, error) { return gpu.Node{DriverVersion: "580.65.06", GPUs: gpus}, nil },
		Clocks:        func(context.Context, gpu.PCIAddress) (gpu.Clocks, error) { return gpu.Clocks{}, nil },
		ConfigProblem: func() error { return nil },
		KernelLog:     func() error { return nil },
	}
}

func TestModesOfAGPUAreWords(t *testing.T) {
	for name, tc := range map[string]struct {
		mode *bool
		want string
	}{
		"on": {ptr.To(true), "on"}, "off": {ptr.To(false), "off"}, "a GPU that has none": {nil, ""},
	} {
		facts := reader(roots(tree(t, nil)), gpu.GPU{ECCEnabled: tc.mode}).Read(t.Context()).GPUs[0]
		if facts.ECC.Value != tc.want || facts.ECC.Source != "NVML" || !facts.ECC.IsKnown() {
			t.Errorf("%s: ECC %+v, want %q", name, facts.ECC, tc.want)
		}
		if facts.Persistence.Value != "" {
			t.Errorf("%s: the persistence mode is %q, want none", name, facts.Persistence.Value)
		}
	}
}

// The machine of simulated GPUs is in another folder than that of the agent.
func TestANodeReportsThatItsGPUsAreSimulated(t *testing.T) {
	machine, simulation := tree(t, nil), tree(t, nil)
	if reader(roots(machine)).Read(t.Context()).Simulated {
		t.Error("a node with GPUs is simulated")
	}
	if !reader(Roots{Kernel: machine, GPUs: simulation, Host: machine}).Read(t.Context()).Simulated {
		t.Error("a simulated node is not reported")
	}
}
