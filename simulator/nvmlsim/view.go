// SPDX-License-Identifier: Apache-2.0

package nvmlsim

import (
	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// View is the model and the state of a node, for output.
type View struct {
	Model         string `json:"model"`
	DriverVersion string `json:"driverVersion"`
	CUDAVersion   string `json:"cudaVersion"`
	BootID        string `json:"bootID"`
	Directory     string `json:"directory"`
	// RealDevices is false if plain files replace device nodes. The creator of the
	// tree was then not permitted to make nodes.
	RealDevices  bool      `json:"realDevices"`
	DriverLoaded bool      `json:"driverLoaded"`
	GPUs         []GPUView `json:"gpus"`
	// CallFaults in words.
	CallFaults []string `json:"callFaults,omitempty"`
	// MPSStartFailures is how many MPS daemons will not come up; negative for
	// all of them.
	MPSStartFailures int `json:"mpsStartFailures,omitempty"`
	// MPSServersCharged says that the memory of MPS clients counts in the cgroup of their
	// server.
	MPSServersCharged bool        `json:"mpsServersCharged,omitempty"`
	Events            []EventView `json:"events,omitempty"`
}

// GPUView is one GPU.
type GPUView struct {
	Index       int    `json:"index"`
	Minor       int    `json:"minor"`
	Address     string `json:"address"`
	UUID        string `json:"uuid"`
	Product     string `json:"product"`
	NUMANode    *int   `json:"numaNode,omitempty"`
	PCIeRoot    string `json:"pcieRoot"`
	MemoryMiB   uint64 `json:"memoryMiB"`
	UsedMiB     uint64 `json:"usedMiB"`
	Lost        bool   `json:"lost,omitempty"`
	MIG         string `json:"mig,omitempty"` // on, off; pending changes in words
	ComputeMode string `json:"computeMode"`
	TimeSlice   string `json:"timeSlice,omitempty"` // other than the default
	ECC         *bool  `json:"ecc,omitempty"`
	ECCErrors   uint64 `json:"eccErrors,omitempty"`
	Persistence *bool  `json:"persistence,omitempty"`
	// Recovery is the action that the driver requests; empty for none.
	Recovery string `json:"recovery,omitempty"`
	// Fabric is the state of the registration with the NVSwitch fabric, Clique
	// the clique; empty without a fabric.
	Fabric string  `json:"fabric,omitempty"`
	Clique *uint32 `json:"clique,omitempty"`

	Links     []LinkView     `json:"links,omitempty"`
	Instances []InstanceView `json:"instances,omitempty"`
	Processes []Process      `json:"processes,omitempty"`
}

// LinkView is one NVLink.
type LinkView struct {
	Number  int    `json:"number"`
	Up      bool   `json:"up"`
	Remote  string `json:"remote,omitempty"`
	Address string `json:"address,omitempty"`
}

// InstanceView is a GPU instance without, or a MIG device.
type InstanceView struct {
	Profile           string `json:"profile"`
	Start             int    `json:"start"`
	Size              int    `json:"size"`
	GPUInstanceID     int    `json:"gpuInstanceID"`
	ComputeInstanceID *int   `json:"computeInstanceID,omitempty"`
	UUID              string `json:"uuid,omitempty"`
}

// EventView is an event.
type EventView struct {
	GPU  int    `json:"gpu"`
	Type string `json:"type"`
	XID  uint64 `json:"xid,omitempty"`
}

// View returns a view of the node.
func (s *Sim) View() (View, error) {
	st, err := s.load()
	if err != nil {
		return View{}, err
	}
	v := View{
		Model:         s.node.model.Name,
		DriverVersion: s.node.model.DriverVersion,
		CUDAVersion:   s.node.model.CUDAVersion,
		BootID:        st.BootID,
		Directory:     s.root,
		RealDevices:   s.tree().realDevices(),
		DriverLoaded:  !st.NoDriver,

		MPSStartFailures: st.MPSStartFailures, MPSServersCharged: st.MPSServersCharged,
	}
	for i, spec := range s.node.gpus {
		v.GPUs = append(v.GPUs, viewGPU(s.node, spec, &st.GPUs[i]))
	}
	for _, f := range st.CallFaults {
		v.CallFaults = append(v.CallFaults, f.String())
	}
	for _, e := range st.Events {
		event := EventView{GPU: e.GPU, Type: eventNames[e.Type]}
		if e.Type == nvml.EventTypeXidCriticalError {
			event.XID = e.Data
		}
		v.Events = append(v.Events, event)
	}
	return v, nil
}

var eventNames = map[uint64]string{
	nvml.EventTypeXidCriticalError:  "xid",
	nvml.EventTypeDoubleBitEccError: "ecc",
	nvml.EventTypeGpuRecoveryAction: "recovery",
}

func viewGPU(n *node, s *spec, g *GPUState) GPUView {
	v := GPUView{
		Index: s.index, Minor: s.minor, Address: s.address.String(), UUID: s.uuid, Product: s.kind.Name,
		NUMANode: s.gpu.NUMANode, PCIeRoot: s.pcieRoot,
		MemoryMiB: s.kind.MemoryMiB, UsedMiB: usedBytes(g.Processes) >> 20,
		Lost: g.Lost, ComputeMode: g.ComputeMode, TimeSlice: g.TimeSlice, ECC: g.ECC, ECCErrors: g.ECCErrors, Persistence: g.Persistence,
		Recovery: string(g.Recovery), Processes: g.Processes,
	}
	if s.kind.MIG != nil {
		v.MIG = onOff(g.MIGMode)
		if g.MIGPending != g.MIGMode {
			v.MIG += ", " + onOff(g.MIGPending) + " after a reset"
		}
	}
	if f := n.fabricOf(s, g); f.state != "" {
		v.Fabric = string(f.state)
		if f.state == FabricCompleted {
			v.Clique = &f.clique
		}
	}
	for number, l := range s.links {
		link := LinkView{Number: number, Up: linkActive(s, g, number), Remote: string(l.remote)}
		if l.address != nil {
			link.Address = l.address.String()
		}
		v.Links = append(v.Links, link)
	}
	for i := range g.Instances {
		in := &g.Instances[i]
		p := s.profiles[in.Profile]
		view := InstanceView{Profile: p.Name, Start: in.Start, Size: p.Size, GPUInstanceID: in.ID}
		if len(in.Compute) == 0 {
			v.Instances = append(v.Instances, view)
		}
		for j := range in.Compute {
			ci := &in.Compute[j]
			view.Profile, view.ComputeInstanceID, view.UUID = s.migName(in, ci), &ci.ID, ci.UUID
			v.Instances = append(v.Instances, view)
		}
	}
	return v
}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}
