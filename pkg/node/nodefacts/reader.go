// SPDX-License-Identifier: Apache-2.0

package nodefacts

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/component-base/version"

	agentv1 "github.com/gpu-dra/gpu-dra-driver/api/agent/v1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// clocksPatience is longer than the limit of one reading, and shorter than that of an answer.
const clocksPatience = 5 * time.Second

// nvml is the source of facts that NVML reads.
const nvml = "NVML"

// Reader reads the facts about the node.
type Reader struct {
	Roots Roots
	// LastScan returns the result of the last scan of the GPUs by NVML.
	LastScan func() (gpu.Node, error)
	// Clocks reads the clocks of a GPU by NVML.
	Clocks func(ctx context.Context, address gpu.PCIAddress) (gpu.Clocks, error)
	// ConfigProblem returns why the node's labels or files are not followed; nil if they are.
	ConfigProblem func() error
	// KernelLog returns why the programs in the kernel's log are not known; nil if they are.
	KernelLog func() error
}

// Read returns the facts. Those of NVML are of the last scan, except for the clocks.
func (r *Reader) Read(ctx context.Context) agentv1.Node {
	scan, scanErr := r.LastScan()
	var addresses []gpu.PCIAddress
	for _, g := range scan.GPUs {
		addresses = append(addresses, g.Address)
	}
	node := r.Roots.Read(addresses)
	node.Simulated = r.Roots.GPUs != r.Roots.Kernel
	node.AgentVersion, node.ConfigProblem = version.Get().GitVersion, Line(r.ConfigProblem())
	node.DriverVersion, node.CUDAVersion = driverFacts(scan, scanErr)
	node.KernelLog = factOf("/dev/kmsg", true, r.KernelLog())
	ctx, cancel := context.WithTimeout(ctx, clocksPatience)
	defer cancel()
	var all sync.WaitGroup
	peers := gpu.NVLinkPeers(scan.GPUs)
	for i, g := range scan.GPUs {
		all.Go(func() {
			clocks, err := r.Clocks(ctx, g.Address)
			node.GPUs[i].Clocks = factOf(nvml, clocksOf(clocks), err)
		})
		describe(&node.GPUs[i], g, peers[g.Address])
	}
	all.Wait()
	return node
}

// driverFacts returns the versions of the driver and of CUDA.
func driverFacts(scan gpu.Node, err error) (driver, cuda agentv1.Fact[string]) {
	if scan.DriverVersion == "" && err == nil {
		err = fmt.Errorf("%w: the driver finds no GPU", gpu.ErrNotFound)
	}
	v := scan.CUDADriverVersion
	return factOf(nvml, scan.DriverVersion, err), factOf(nvml, fmt.Sprintf("%d.%d", v.Major, v.Minor), err)
}

// describe adds the facts of the last scan of a GPU and of the GPUs linked to it.
func describe(facts *agentv1.GPU, g gpu.GPU, peers []gpu.Peer) {
	facts.PCIeSwitch, facts.Links = g.PCIeSwitch, map[string]int{}
	for _, peer := range peers {
		facts.Links[peer.Address.String()] = peer.Links
	}
	facts.UUID, facts.Model = g.UUID, g.ProductName
	facts.Persistence, facts.ECC = factOf(nvml, onOff(g.PersistenceMode), nil), factOf(nvml, onOff(g.ECCEnabled), nil)
	facts.NVSwitch = factOf(nvml, slices.ContainsFunc(g.Links, func(l gpu.Link) bool { return l.Remote == gpu.RemoteSwitch }), nil)
	facts.FabricState = factOf(nvml, string(g.FabricState), nil)
}

// onOff returns a mode in a word; "" for nil.
func onOff(mode *bool) string {
	switch {
	case mode == nil:
		return ""
	case *mode:
		return "on"
	default:
		return "off"
	}
}

func clocksOf(c gpu.Clocks) agentv1.Clocks {
	clocks := agentv1.Clocks{SMMHz: c.SMMHz, MaxSMMHz: c.MaxSMMHz}
	for _, reason := range c.Reasons {
		clocks.Reasons = append(clocks.Reasons, string(reason))
	}
	return clocks
}
