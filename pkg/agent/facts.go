// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/component-base/version"

	agentv1 "github.com/gpu-dra/gpu-dra-driver/api/agent/v1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/nodefacts"
	"github.com/gpu-dra/gpu-dra-driver/pkg/state"
)

// clocksPatience is longer than the limit of one reading, and shorter than that of an answer.
const clocksPatience = 5 * time.Second

// facts reads the facts about the node.
type facts struct {
	roots  nodefacts.Roots
	state  *state.State
	clocks func(ctx context.Context, address gpu.PCIAddress) (gpu.Clocks, error)
	// configProblem returns why the node's labels or files are not followed; nil if they are.
	configProblem func() error
}

// newViewers returns the users who may read the facts; nil if none may.
func (c *Config) newViewers(client kubernetes.Interface) (*viewers, error) {
	if c.ViewerAccount == "" {
		return nil, nil
	}
	v, err := newViewers(c.ViewerAccount, c.DriverName, c.PodUID, client.AuthenticationV1().TokenReviews())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.Names.ViewerAccount, err)
	}
	return v, nil
}

// factRoots returns the file systems of the node. The agent needs no mount of the host's
// root: as a privileged process in the host's PID namespace it sees that of the host's
// first process.
func (c *Config) factRoots(hw *hardware) nodefacts.Roots {
	return nodefacts.Roots{
		Kernel: "/", GPUs: nodefacts.Root(hw.machine), Host: "/proc/1/root",
		Kubelet: filepath.Dir(c.KubeletPluginsDir),
	}
}

// read returns the facts. Those of NVML are of the last scan, except for the clocks.
func (f *facts) read(ctx context.Context) agentv1.Node {
	now := f.state.Snapshot()
	gpus := now.Node().GPUs
	var addresses []gpu.PCIAddress
	for _, g := range gpus {
		addresses = append(addresses, g.Address)
	}
	node := f.roots.Read(addresses)
	node.AgentVersion, node.ConfigProblem = version.Get().GitVersion, nodefacts.Line(f.configProblem())
	node.DriverVersion, node.CUDAVersion = driverFacts(now.Hardware)
	ctx, cancel := context.WithTimeout(ctx, clocksPatience)
	defer cancel()
	var all sync.WaitGroup
	peers := gpu.NVLinkPeers(gpus)
	for i, g := range gpus {
		all.Go(func() {
			clocks, err := f.clocks(ctx, g.Address)
			node.GPUs[i].Clocks = ofNVML(clocksOf(clocks), err)
		})
		describe(&node.GPUs[i], g, peers[g.Address])
	}
	all.Wait()
	return node
}

// driverFacts returns the versions of the driver and of CUDA.
func driverFacts(h state.Hardware) (driver, cuda agentv1.Fact[string]) {
	err := h.Err
	if !h.Scanned {
		err = fmt.Errorf("%w: the agent has not scanned the GPUs yet", gpu.ErrNotReady)
	}
	if h.DriverVersion == "" && err == nil {
		err = fmt.Errorf("%w: the driver finds no GPU", gpu.ErrNotFound)
	}
	v := h.CUDADriverVersion
	return ofNVML(h.DriverVersion, err), ofNVML(fmt.Sprintf("%d.%d", v.Major, v.Minor), err)
}

// describe adds the facts of the last scan of a GPU and of the GPUs that it is linked to.
func describe(facts *agentv1.GPU, g gpu.GPU, peers []gpu.Peer) {
	facts.PCIeSwitch, facts.Links = g.PCIeSwitch, map[string]int{}
	for _, peer := range peers {
		facts.Links[peer.Address.String()] = peer.Links
	}
	facts.UUID, facts.Model = g.UUID, g.ProductName
	persistence := ""
	if on := g.PersistenceMode; on != nil {
		persistence = map[bool]string{true: "on", false: "off"}[*on]
	}
	facts.Persistence = ofNVML(persistence, nil)
	facts.NVSwitch = ofNVML(slices.ContainsFunc(g.Links, func(l gpu.Link) bool { return l.Remote == gpu.RemoteSwitch }), nil)
	facts.FabricState = ofNVML(string(g.FabricState), nil)
}

func clocksOf(c gpu.Clocks) agentv1.Clocks {
	clocks := agentv1.Clocks{SMMHz: c.SMMHz, MaxSMMHz: c.MaxSMMHz}
	for _, reason := range c.Reasons {
		clocks.Reasons = append(clocks.Reasons, string(reason))
	}
	return clocks
}

func ofNVML[T any](value T, err error) agentv1.Fact[T] {
	if err != nil {
		var none T
		return agentv1.Fact[T]{Value: none, Source: "NVML", Unknown: err.Error()}
	}
	return agentv1.Fact[T]{Value: value, Source: "NVML"}
}
