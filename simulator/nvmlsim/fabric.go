// SPDX-License-Identifier: Apache-2.0

package nvmlsim

import (
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-dra/gpu-dra-driver/simulator/simerr"
)

// fabric is a GPU's view of its NVSwitch fabric.
type fabric struct {
	// state is empty if the GPU does not join a fabric.
	state FabricState
	// cluster is zero if the fabric has only the machine's own switches.
	cluster [16]uint8
	clique  uint32
}

// fabricStates are NVML's states and the status with them.
var fabricStates = map[FabricState]struct {
	state  uint8
	status nvml.Return
}{
	"":               {nvml.GPU_FABRIC_STATE_NOT_SUPPORTED, nvml.SUCCESS},
	FabricNotStarted: {nvml.GPU_FABRIC_STATE_NOT_STARTED, nvml.SUCCESS},
	FabricInProgress: {nvml.GPU_FABRIC_STATE_IN_PROGRESS, nvml.SUCCESS},
	FabricCompleted:  {nvml.GPU_FABRIC_STATE_COMPLETED, nvml.SUCCESS},
	FabricFailed:     {nvml.GPU_FABRIC_STATE_COMPLETED, nvml.ERROR_UNKNOWN},
}

// fabricOf returns the fabric of a GPU. From Hopper on GPUs register with it; older
// ones behind NVSwitch need the fabric manager too, but do not report it.
func (n *node) fabricOf(s *spec, g *GPUState) fabric {
	if !s.knowsFabric() || n.model.Fabric == nil {
		return fabric{}
	}
	if g.Fabric != "" {
		return fabric{state: g.Fabric}
	}
	f := fabric{state: FabricCompleted, cluster: parseUUID(n.model.Fabric.ClusterUUID), clique: n.model.Fabric.CliqueID}
	if g.Clique != nil {
		f.clique = *g.Clique
	}
	return f
}

// knowsFabric reports whether NVML has a fabric state for the GPU's architecture.
func (s *spec) knowsFabric() bool {
	return architectures[s.kind.Architecture] >= nvml.DEVICE_ARCH_HOPPER
}

// SetFabric sets the state of a GPU's registration with its NVSwitch fabric, until a
// reset. No event reports it. It returns [simerr.ErrNotSupported] if the GPU does not
// join a fabric.
func (s *Sim) SetFabric(index int, state FabricState) error {
	if _, ok := fabricStates[state]; !ok || state == "" {
		return fmt.Errorf("fabric state %q: %w: want one of not-started, in-progress, completed, failed", state, simerr.ErrInvalid)
	}
	return s.changeGPU(index, func(_ *State, g *GPUState) error {
		if s.node.fabricOf(s.node.gpus[index], g).state == "" {
			return fmt.Errorf("fabric of GPU %d: %w: it joins none", index, simerr.ErrNotSupported)
		}
		g.Fabric = state
		if state == FabricCompleted {
			g.Fabric = ""
		}
		return nil
	})
}

// SetClique moves a GPU to another clique of its multi-node fabric, until a reset.
// It returns [simerr.ErrNotSupported] if the GPU has not joined one.
func (s *Sim) SetClique(index int, clique uint32) error {
	return s.changeGPU(index, func(_ *State, g *GPUState) error {
		if s.node.fabricOf(s.node.gpus[index], g).cluster == [16]uint8{} {
			return fmt.Errorf("clique of GPU %d: %w: it has joined no multi-node fabric", index, simerr.ErrNotSupported)
		}
		g.Clique = &clique
		return nil
	})
}

// checkFabric returns CUDA's initialisation error on a GPU that has not joined its
// fabric.
func checkFabric(g *GPUState) error {
	if g.Fabric == "" {
		return nil
	}
	return fmt.Errorf("%w: CUDA error 802 (system not yet initialized): the GPU's registration with its NVSwitch fabric is %s", simerr.ErrNotReady, g.Fabric)
}

func (d device) GetGpuFabricInfo() (nvml.GpuFabricInfo, nvml.Return) {
	f, ret := d.enterFabric("DeviceGetGpuFabricInfo")
	if ret != nvml.SUCCESS {
		return nvml.GpuFabricInfo{}, ret
	}
	nv := fabricStates[f.state]
	return nvml.GpuFabricInfo{ClusterUuid: f.cluster, CliqueId: f.clique, State: nv.state, Status: uint32(nv.status)}, nvml.SUCCESS
}

func (d device) GetGpuFabricInfo_v4() (nvml.GpuFabricInfo_v4, nvml.Return) { //nolint:revive // the name is go-nvml's
	f, ret := d.enterFabric("DeviceGetGpuFabricInfo_v4")
	if ret != nvml.SUCCESS {
		return nvml.GpuFabricInfo_v4{}, ret
	}
	nv := fabricStates[f.state]
	info := nvml.GpuFabricInfo_v4{ClusterUuid: f.cluster, State: nv.state, Status: uint32(nv.status)}
	info.Cliques[0].Id = f.clique
	info.HealthSummary = f.health()
	if f.state == FabricCompleted {
		info.NumCliques = 1
	}
	return info, nvml.SUCCESS
}

// health returns NVML's summary of the fabric's health, which only a GPU that has joined
// it has.
func (f fabric) health() uint8 {
	if f.state == FabricCompleted {
		return nvml.GPU_FABRIC_HEALTH_SUMMARY_HEALTHY
	}
	return nvml.GPU_FABRIC_HEALTH_SUMMARY_NOT_SUPPORTED
}

// enterFabric begins a call that GPUs support from Hopper on.
func (d device) enterFabric(method string) (fabric, nvml.Return) {
	c, ret := d.enterGPU(method)
	if ret == nvml.SUCCESS && !c.spec.knowsFabric() {
		return fabric{}, nvml.ERROR_NOT_SUPPORTED
	}
	if ret != nvml.SUCCESS {
		return fabric{}, ret
	}
	return c.node.fabricOf(c.spec, c.gpu), nvml.SUCCESS
}
