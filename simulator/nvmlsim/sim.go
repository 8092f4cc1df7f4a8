// SPDX-License-Identifier: Apache-2.0

package nvmlsim

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"golang.org/x/sys/unix"
	"sigs.k8s.io/yaml"

	"github.com/gpu-dra/gpu-dra-driver/simulator/simerr"
)

// stateDir is the folder with the state of a node, below its root.
const stateDir = "var/lib/gpu-sim"

// Sim is a simulated node. It is a folder with the root file system of the node: the driver's
// files below usr and lib, and dev, proc and sys. The state of the node is below var/lib/gpu-sim,
// so that a program which has the folder, under whatever path, has all:
//
//	model.yaml   the hardware; never changes
//	state.json   the current state; replaced with each change
//	lock         held by a process that changes the node
//	changing     there while a process changes the node
//	mps/         the MPS daemons that have run on it
//	driver       held by gpu-sim driver
//
// Any number of processes may have the same folder open. All methods are safe for
// concurrent use. A process may change the node if it may write the lock. Otherwise
// changes fail with [simerr.ErrPermission], and through NVML with ERROR_NO_PERMISSION.
type Sim struct {
	root string
	// dir is the folder with the state.
	dir string
	// modelID identifies the content of model.yaml.
	modelID string
	node    *node
	last    atomic.Pointer[snapshot]
	library *library
	// every is set if changes are looked for at intervals, see [Sim.PollEvents].
	every time.Duration
}

// Create creates a node of the given model in the folder root. It creates the folder if it is
// missing. It returns [simerr.ErrInUse] if the folder has a node already, or files of others.
func Create(root string, m *Model) (*Sim, error) {
	if err := m.Validate(); err != nil {
		return nil, fmt.Errorf("model %s: %w", m.Name, err)
	}
	data, err := yaml.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("create a simulated node: %w", err)
	}
	s := newSim(root, m, data)
	if err := checkFree(root); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(s.dir, 0o755); err != nil {
		return nil, fmt.Errorf("create a simulated node: %w", err)
	}
	unlock, err := lock(s.dir)
	if err != nil {
		return nil, err
	}
	defer unlock()
	switch existing, err := open(root); {
	case err == nil:
		return nil, fmt.Errorf("%s: %w: it holds a simulated %s", root, simerr.ErrInUse, existing.node.model.Name)
	case !errors.Is(err, simerr.ErrNotFound):
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(s.dir, "model.yaml"), data, 0o644); err != nil {
		return nil, fmt.Errorf("create a simulated node: %w", err)
	}
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

// checkFree returns [simerr.ErrInUse] if the folder has files of others that a node would
// replace. The lock shows that files are of a node, even of one that was not finished.
func checkFree(root string) error {
	for _, name := range treeDirs {
		if _, err := os.Lstat(filepath.Join(root, name)); err != nil {
			continue
		}
		// Another process that creates the node has made the lock before the folder.
		if _, err := os.Stat(filepath.Join(root, stateDir, "lock")); err != nil {
			return fmt.Errorf("create a simulated node in %s: %w: it has a folder %s that is of no node; take an empty folder", root, simerr.ErrInUse, name)
		}
	}
	return nil
}

// Open opens the node in the folder root. It returns [simerr.ErrNotFound] if there is none,
// and [simerr.ErrMismatch] if another release has made it.
func Open(root string) (*Sim, error) {
	s, err := open(root)
	if err != nil {
		return nil, err
	}
	if err := s.repairOpened(); err != nil {
		return nil, err
	}
	return s, nil
}

// open is [Open] without a repair, for a caller that may hold the lock.
func open(root string) (*Sim, error) {
	dir := filepath.Join(root, stateDir)
	if _, err := os.Stat(filepath.Join(dir, "state.json")); errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: %w: it holds no simulated node; make one with gpu-sim create", root, simerr.ErrNotFound)
	}
	file := filepath.Join(dir, "model.yaml")
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("open the simulated node in %s: %w", root, err)
	}
	m, err := parseModel(file, data)
	if err != nil {
		// It was valid when the node was created.
		return nil, fmt.Errorf("open the simulated node in %s: %w: another release has made it: %w; remove the folder and create the node again", root, simerr.ErrMismatch, err)
	}
	s := newSim(root, m, data)
	if _, err := s.load(); err != nil {
		return nil, err
	}
	return s, nil
}

// OpenOwner opens the node whose root file system has the file at the path. It returns
// [simerr.ErrNotFound] if there is no such node.
func OpenOwner(path string) (*Sim, error) {
	path, err := filepath.EvalSymlinks(path)
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		return nil, fmt.Errorf("find the simulated node of a file: %w", err)
	}
	for dir := path; dir != "/"; {
		dir = filepath.Dir(dir)
		if s, err := Open(dir); !errors.Is(err, simerr.ErrNotFound) {
			return s, err
		}
	}
	return nil, fmt.Errorf("%s: %w: it is in no root file system of a simulated node", path, simerr.ErrNotFound)
}

// OpenOrCreate opens the node in the folder root. It creates one of the given model if there
// is none. It returns [simerr.ErrInUse] if the folder has a node of another model. Several
// processes may call it at the same time.
func OpenOrCreate(root string, m *Model) (*Sim, error) {
	s, err := Open(root)
	if errors.Is(err, simerr.ErrNotFound) {
		s, err = Create(root, m)
		if existing, open := Open(root); errors.Is(err, simerr.ErrInUse) && open == nil {
			// Another process was faster.
			s, err = existing, nil
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
			root, simerr.ErrInUse, s.node.model.Name, m.Name)
	}
	return s, nil
}

// newSim returns the node in the folder root. The model comes with the content of its file.
func newSim(root string, m *Model, file []byte) *Sim {
	id := sha256.Sum256(file)
	s := &Sim{root: root, dir: filepath.Join(root, stateDir), modelID: hex.EncodeToString(id[:8]), node: newNode(m)}
	s.library = newLibrary(s)
	return s
}

// NVML returns the library of this process, the same one for each call. Like
// libnvidia-ml it must be initialised, and counts how often it was.
func (s *Sim) NVML() nvml.Interface { return s.library }

// Root returns the path of the node's root file system.
func (s *Sim) Root() string { return s.root }

// Model returns the model of the node. Callers must not modify it.
func (s *Sim) Model() *Model { return s.node.model }

// State returns the current state of the node. Callers must not modify it.
func (s *Sim) State() (*State, error) { return s.load() }

// FindGPU returns the index of the GPU with the given index, PCI address or UUID. It
// returns [simerr.ErrNotFound] if the node has no such GPU.
func (s *Sim) FindGPU(ref string) (int, error) {
	if i, err := strconv.Atoi(ref); err == nil && i >= 0 && i < len(s.node.gpus) {
		return i, nil
	}
	address, err := parsePCIAddress(ref)
	for i, g := range s.node.gpus {
		if g.uuid == ref || err == nil && g.address == address {
			return i, nil
		}
	}
	return 0, fmt.Errorf("GPU %q: %w: want an index below %d, a PCI address or a UUID of this %s", ref, simerr.ErrNotFound, len(s.node.gpus), s.node.model.Name)
}

// checkGPU guards the methods that take an index.
func (s *Sim) checkGPU(index int) error {
	if index < 0 || index >= len(s.node.gpus) {
		return fmt.Errorf("GPU %d: %w: the %s has %d", index, simerr.ErrNotFound, s.node.model.Name, len(s.node.gpus))
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
// It is [simerr.ErrInUse] while a process uses the GPU.
func (s *Sim) ResetGPU(index int) error {
	if err := s.checkGPU(index); err != nil {
		return err
	}
	return s.update(func(st *State) error {
		g := &st.GPUs[index]
		if len(g.Processes) > 0 {
			return fmt.Errorf("reset GPU %d: %w by %s", index, simerr.ErrInUse, describeProcesses(g.Processes))
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

// Destroy removes the node from its folder, and nothing else in there.
func (s *Sim) Destroy() error {
	unlock, err := lock(s.dir)
	if err != nil {
		return err
	}
	defer unlock()
	// The state goes first: without it there is no node. The lock goes last: without it
	// [Create] takes the files for files of others.
	for _, name := range append(append([]string{stateDir + "/state.json"}, treeDirs...), stateDir) {
		if err := os.RemoveAll(filepath.Join(s.root, name)); err != nil {
			return fmt.Errorf("destroy the simulated node: %w", err)
		}
	}
	// They may hold files of others.
	for dir := filepath.Dir(s.dir); dir != s.root; dir = filepath.Dir(dir) {
		if err := os.Remove(dir); err != nil && !errors.Is(err, unix.ENOTEMPTY) {
			return fmt.Errorf("destroy the simulated node: %w", err)
		}
	}
	return nil
}
