// SPDX-License-Identifier: Apache-2.0

package nvmlsim

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"sigs.k8s.io/yaml"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// Sim is a simulated node. Its state is in a directory:
//
//	<dir>/model.yaml   the hardware; never changes
//	<dir>/state.json   the current state; replaced with each change
//	<dir>/lock         held by a process that changes the node
//	<dir>/mps/         the MPS daemons that have run on it
//	<dir>/driver       held by gpu-sim driver
//	<dir>/root/        the root file system of the node
//
// Any number of processes may have the same directory open. All methods are safe for
// concurrent use. A process may change the node if it may write the lock. Otherwise
// changes fail with [gpu.ErrPermission], and through NVML with ERROR_NO_PERMISSION.
type Sim struct {
	dir     string
	node    *node
	last    atomic.Pointer[snapshot]
	library *library
}

// Create creates a node of the given model in dir, and dir if it is missing. It
// returns [gpu.ErrInUse] if dir has a node already.
func Create(dir string, m *Model) (*Sim, error) {
	if err := m.Validate(); err != nil {
		return nil, fmt.Errorf("model %s: %w", m.Name, err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("create a simulated node: %w", err)
	}
	unlock, err := lock(dir)
	if err != nil {
		return nil, err
	}
	defer unlock()
	switch existing, err := Open(dir); {
	case err == nil:
		return nil, fmt.Errorf("%s: %w: it holds a simulated %s", dir, gpu.ErrInUse, existing.node.model.Name)
	case !errors.Is(err, gpu.ErrNotFound):
		return nil, err
	}
	data, err := yaml.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("create a simulated node: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "model.yaml"), data, 0o644); err != nil {
		return nil, fmt.Errorf("create a simulated node: %w", err)
	}
	s := newSim(dir, m)
	st := bootState(s.node, nil)
	if err := s.tree().build(st); err != nil {
		return nil, fmt.Errorf("create a simulated node: %w", err)
	}
	// The state comes last: a directory without it holds no node.
	if err := s.save(st); err != nil {
		return nil, err
	}
	return s, nil
}

// Open opens the node in dir. It returns [gpu.ErrNotFound] if there is none.
func Open(dir string) (*Sim, error) {
	if _, err := os.Stat(filepath.Join(dir, "state.json")); errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: %w: it holds no simulated node; make one with gpu-sim create", dir, gpu.ErrNotFound)
	}
	m, err := LoadModel(filepath.Join(dir, "model.yaml"))
	if err != nil {
		return nil, fmt.Errorf("open the simulated node in %s: %w", dir, err)
	}
	s := newSim(dir, m)
	if _, err := s.load(); err != nil {
		return nil, err
	}
	return s, nil
}

// OpenOrCreate opens the node in dir, or creates one of the given model if there is
// none. It returns [gpu.ErrInUse] if dir has a node of another model. The driver's
// programs below [Sim.Root] call the gpu-sim that this process finds: the one in the
// environment variable GPU_SIM, in the folder of the executable, or on the path.
func OpenOrCreate(dir string, m *Model) (*Sim, error) {
	s, err := Open(dir)
	if errors.Is(err, gpu.ErrNotFound) {
		s, err = Create(dir, m)
		if errors.Is(err, gpu.ErrInUse) {
			// Another process was faster.
			s, err = Open(dir)
		}
	}
	if err != nil {
		return nil, err
	}
	have, err := yaml.Marshal(s.node.model)
	if err != nil {
		return nil, fmt.Errorf("open a simulated node: %w", err)
	}
	want, err := yaml.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("open a simulated node: %w", err)
	}
	if !bytes.Equal(have, want) {
		return nil, fmt.Errorf("%s: %w: it holds a simulated %s that differs from the model %s asked for; destroy it or take another directory",
			dir, gpu.ErrInUse, s.node.model.Name, m.Name)
	}
	st, err := s.load()
	if err != nil {
		return nil, err
	}
	if err := s.tree().refreshPrograms(st); err != nil {
		return nil, err
	}
	return s, nil
}

func newSim(dir string, m *Model) *Sim {
	s := &Sim{dir: dir, node: newNode(m)}
	s.library = newLibrary(s)
	return s
}

// NVML returns the library of this process, the same one for each call. Like
// libnvidia-ml it must be initialised, and counts how often it was.
func (s *Sim) NVML() nvml.Interface { return s.library }

// Root returns the path of the node's root file system: the driver's files below usr,
// and dev, proc and sys.
func (s *Sim) Root() string { return filepath.Join(s.dir, "root") }

// Model returns the model of the node. Callers must not modify it.
func (s *Sim) Model() *Model { return s.node.model }

// State returns the current state of the node. Callers must not modify it.
func (s *Sim) State() (*State, error) { return s.load() }

// FindGPU returns the index of the GPU with the given index, PCI address or UUID. It
// returns [gpu.ErrNotFound] if the node has no such GPU.
func (s *Sim) FindGPU(ref string) (int, error) {
	if i, err := strconv.Atoi(ref); err == nil && i >= 0 && i < len(s.node.gpus) {
		return i, nil
	}
	address, err := gpu.ParsePCIAddress(ref)
	for i, g := range s.node.gpus {
		if g.uuid == ref || err == nil && g.address == address {
			return i, nil
		}
	}
	return 0, fmt.Errorf("GPU %q: %w: want an index below %d, a PCI address or a UUID of this %s", ref, gpu.ErrNotFound, len(s.node.gpus), s.node.model.Name)
}

// checkGPU guards the methods that take an index.
func (s *Sim) checkGPU(index int) error {
	if index < 0 || index >= len(s.node.gpus) {
		return fmt.Errorf("GPU %d: %w: the %s has %d", index, gpu.ErrNotFound, s.node.model.Name, len(s.node.gpus))
	}
	return nil
}

// Reboot restarts the machine: processes, MIG instances, faults and settings
// made at run time are gone, and the boot ID is new. What hardware keeps is
// kept: ECC mode, and MIG mode on GPUs whose mode needs a reset (Ampere).
func (s *Sim) Reboot() error {
	return s.update(func(st *State) error {
		*st = *bootState(s.node, st)
		return nil
	})
}

// ResetGPU resets one GPU: a pending MIG or ECC mode takes hold, MIG instances
// are gone, and so is the recovery action unless it asks for more than a reset.
// It is [gpu.ErrInUse] while a process uses the GPU.
func (s *Sim) ResetGPU(index int) error {
	if err := s.checkGPU(index); err != nil {
		return err
	}
	return s.update(func(st *State) error {
		g := &st.GPUs[index]
		if len(g.Processes) > 0 {
			return fmt.Errorf("reset GPU %d: %w by %s", index, gpu.ErrInUse, describeProcesses(g.Processes))
		}
		g.MIGMode, g.ECC = g.MIGPending, g.ECCPending
		g.Instances, g.Lost, g.ECCErrors, g.TimeSlice = nil, false, 0, ""
		if !outlivesReset(g.Recovery) {
			g.Recovery = ""
		}
		// It registers with the fabric again.
		g.Fabric, g.Clique = "", nil
		return nil
	})
}

// Destroy removes the node from its directory, and nothing else in there.
func (s *Sim) Destroy() error {
	unlock, err := lock(s.dir)
	if err != nil {
		return err
	}
	defer unlock()
	// The state goes first: without it there is no node.
	for _, name := range []string{"state.json", "state.json.new", "model.yaml", "mps", "driver", "root", "lock"} {
		if err := os.RemoveAll(filepath.Join(s.dir, name)); err != nil {
			return fmt.Errorf("destroy the simulated node: %w", err)
		}
	}
	return nil
}
