// SPDX-License-Identifier: Apache-2.0

package nvmlsim

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/gpu-dra/gpu-dra-driver/simulator/simerr"
)

// SMITables are the facts that nvidia-smi prints. Below the root they are a file of the
// GPU's firmware, because NVIDIA's CDI generator mounts that file into containers. They
// have all GPUs of the node; nvidia-smi prints the ones whose device nodes exist.
type SMITables struct {
	DriverVersion string `json:"driverVersion"`
	// ModuleVersion as of the model; empty if it is DriverVersion.
	ModuleVersion string `json:"moduleVersion,omitempty"`
	CUDAVersion   string `json:"cudaVersion"`
	// MonitorNode is the device node that makes all MIG devices visible, below dev.
	MonitorNode string `json:"monitorNode"`
	// GPUs in the order of the model.
	GPUs []SMIGPU `json:"gpus"`
}

// SMIGPU is one GPU. A fact that it does not have is empty or nil.
type SMIGPU struct {
	// Node is its device node, below dev.
	Node              string `json:"node"`
	UUID              string `json:"uuid"`
	Name              string `json:"name"`
	BusID             string `json:"busID"`
	Serial            string `json:"serial,omitempty"`
	MemoryMiB         uint64 `json:"memoryMiB"`
	ReservedMiB       uint64 `json:"reservedMiB"`
	ComputeCapability string `json:"computeCapability"`
	ComputeMode       string `json:"computeMode"`
	// Enabled or Disabled:
	MIGMode     string `json:"migMode,omitempty"`
	MIGPending  string `json:"migPending,omitempty"`
	Persistence string `json:"persistence,omitempty"`
	ECC         string `json:"ecc,omitempty"`
	ECCPending  string `json:"eccPending,omitempty"`

	NUMANode       *int   `json:"numaNode,omitempty"`
	CPUs           string `json:"cpus,omitempty"`
	MemoryNUMANode *int   `json:"memoryNUMANode,omitempty"`
	// Paths are the connections to the GPUs before this one, such as NV18 or PHB.
	Paths      []string `json:"paths,omitempty"`
	MIGDevices []SMIMIG `json:"migDevices,omitempty"`
}

// SMIMIG is one MIG device.
type SMIMIG struct {
	// Nodes are the device nodes of its capabilities, below dev.
	Nodes           []string `json:"nodes"`
	UUID            string   `json:"uuid"`
	Profile         string   `json:"profile"`
	MemoryMiB       uint64   `json:"memoryMiB"`
	GPUInstance     int      `json:"gpuInstance"`
	ComputeInstance int      `json:"computeInstance"`
}

// firmware returns the path of the file with the tables, below a root.
func firmware(version string) string {
	return filepath.Join("lib/firmware/nvidia", version, "gsp_ga10x.bin")
}

// SMITables returns the tables for the current state.
func (s *Sim) SMITables() (*SMITables, error) {
	st, err := s.load()
	if err != nil {
		return nil, err
	}
	return s.node.smiTables(st), nil
}

// ReadSMITables returns the tables in a root, which may have nothing else of the node. It
// returns [simerr.ErrNotFound] if there are none.
func ReadSMITables(root string) (*SMITables, error) {
	files, err := filepath.Glob(filepath.Join(root, firmware("*")))
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("read the tables of nvidia-smi: %w", err)
		}
		tables := &SMITables{}
		// The image of a container may have the firmware of a real driver.
		if err := json.Unmarshal(data, tables); err == nil {
			return tables, nil
		}
	}
	return nil, fmt.Errorf("read the tables of nvidia-smi: %w: %s has no %s of a simulated node", simerr.ErrNotFound, root, firmware("*"))
}

// syncSMITables replaces the file if nvidia-smi prints something else after a change.
func (t tree) syncSMITables(before, after *State) error {
	old, err := json.Marshal(t.node.smiTables(before))
	if err != nil {
		return err
	}
	changed, err := json.Marshal(t.node.smiTables(after))
	if err != nil || bytes.Equal(old, changed) {
		return err
	}
	return replaceFile(t.path(firmware(t.node.model.DriverVersion)), changed, 0o644)
}

// refreshSMITables replaces the file if it is missing or of another release.
func (t tree) refreshSMITables(st *State) error {
	want, err := json.Marshal(t.node.smiTables(st))
	if err != nil {
		return err
	}
	return updateFile(t.path(firmware(t.node.model.DriverVersion)), want, 0o644)
}

func (n *node) smiTables(st *State) *SMITables {
	tables := &SMITables{DriverVersion: n.model.DriverVersion, ModuleVersion: n.model.ModuleVersion, CUDAVersion: n.model.CUDAVersion, MonitorNode: capFile(capMonitor)}
	for i, s := range n.gpus {
		g := n.smiGPU(s, &st.GPUs[i])
		for _, other := range n.gpus[:i] {
			g.Paths = append(g.Paths, n.relation(s, other))
		}
		tables.GPUs = append(tables.GPUs, g)
	}
	return tables
}

func (n *node) smiGPU(s *spec, st *GPUState) SMIGPU {
	g := SMIGPU{
		Node: fmt.Sprintf("nvidia%d", s.minor), UUID: s.uuid, Name: s.kind.Name, BusID: longAddress(s.address), Serial: s.gpu.Serial,
		MemoryMiB: s.kind.MemoryMiB, ReservedMiB: s.kind.ReservedMiB, ComputeCapability: s.kind.ComputeCapability, ComputeMode: st.ComputeMode,
		Persistence: enabled(st.Persistence), ECC: enabled(st.ECC), ECCPending: enabled(st.ECCPending),
		NUMANode: s.gpu.NUMANode, MemoryNUMANode: s.gpu.MemoryNUMANode,
	}
	if g.ComputeMode == string(ComputeModeExclusiveProcess) {
		g.ComputeMode = "Exclusive_Process"
	}
	if s.kind.MIG != nil {
		g.MIGMode, g.MIGPending = enabled(&st.MIGMode), enabled(&st.MIGPending)
	}
	if g.NUMANode != nil {
		g.CPUs = n.model.NUMANodes[*g.NUMANode].CPUs
	}
	for i := range st.Instances {
		in := &st.Instances[i]
		for j := range in.Compute {
			ci := &in.Compute[j]
			g.MIGDevices = append(g.MIGDevices, SMIMIG{
				Nodes: []string{capFile(instanceCap(s.minor, in.ID)), capFile(computeCap(s.minor, in.ID, ci.ID))},
				UUID:  ci.UUID, Profile: s.migName(in, ci), MemoryMiB: s.profiles[in.Profile].MemoryMiB, GPUInstance: in.ID, ComputeInstance: ci.ID,
			})
		}
	}
	return g
}

// enabled is the word for a mode; empty for nil.
func enabled(mode *bool) string {
	switch {
	case mode == nil:
		return ""
	case *mode:
		return "Enabled"
	default:
		return "Disabled"
	}
}
