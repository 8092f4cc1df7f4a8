// SPDX-License-Identifier: Apache-2.0

package nvmlsim

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/gpu-dra/gpu-dra-driver/simulator/simerr"
)

// What the simulator knows of MPS: which control daemons there are, and what
// their servers take of the GPUs. Package mpssim has the daemon itself.

// MPSServerName is what NVML calls an MPS server.
const MPSServerName = "nvidia-cuda-mps-server"

// MPSServer is what an MPS server and its clients take of the GPUs.
type MPSServer struct {
	PID int
	// Daemon is the name under which the server's daemon is registered. Name is the
	// server's own name if the daemon has several servers.
	Daemon, Name string
	// Memory in bytes of the server itself, by the UUID of a GPU or MIG device.
	Memory map[string]uint64
	// Clients that have a context, each with its own memory on these devices. From
	// Volta on they are processes of the GPU themselves.
	Clients []MPSClient
}

// MPSClient is what a client of an MPS server takes of the GPUs.
type MPSClient struct {
	PID int
	// Memory in bytes, by the UUID of a GPU or MIG device.
	Memory map[string]uint64
}

// SetMPSServer makes a server and its clients processes of their devices. For a
// server that exists, it changes the processes and their memory. All of it is
// refused where one device does, for the reasons of [Sim.AddProcess]. They end with
// their daemon.
func (s *Sim) SetMPSServer(server MPSServer) error {
	return s.update(func(st *State) error {
		isOwn := func(p Process) bool { return p.Daemon == server.Daemon && p.Server == server.Name }
		starts := !slices.ContainsFunc(st.GPUs, func(g GPUState) bool { return slices.ContainsFunc(g.Processes, isOwn) })
		wanted, err := s.placements(st, Process{PID: server.PID, Name: MPSServerName, Daemon: server.Daemon, Server: server.Name}, server.Memory)
		if err != nil {
			return err
		}
		for _, w := range wanted {
			// CUDA asks for the fabric when it initialises, and not later.
			if err := checkFabric(&st.GPUs[w.gpu]); err != nil && starts {
				return fmt.Errorf("%s: %w", cmp.Or(w.process.Device, s.node.gpus[w.gpu].uuid), err)
			}
		}
		for _, c := range server.Clients {
			charged := c.PID
			if st.MPSServersCharged {
				charged = server.PID
			}
			cgroups, err := s.node.cgroupsOf(charged)
			if err != nil {
				return err
			}
			p := Process{PID: c.PID, MPSClient: true, Daemon: server.Daemon, Server: server.Name, Cgroups: cgroups}
			more, err := s.placements(st, p, c.Memory)
			if err != nil {
				return err
			}
			wanted = append(wanted, more...)
		}
		return s.node.replaceProcesses(st, isOwn, wanted)
	})
}

// placements returns a process with its memory on each device, by the UUID of the
// device.
func (s *Sim) placements(st *State, p Process, memory map[string]uint64) ([]placement, error) {
	var found []placement
	for _, uuid := range slices.Sorted(maps.Keys(memory)) {
		d, err := s.findDevice(st, uuid)
		if err != nil {
			return nil, err
		}
		p.Device, p.MemoryBytes = d.mig, memory[uuid]
		found = append(found, placement{gpu: d.gpu, process: p})
	}
	return found, nil
}

// RemoveMPSServer removes the server of a daemon and its clients from their
// devices. It succeeds if there is none.
func (s *Sim) RemoveMPSServer(daemon, server string) error {
	return s.update(func(st *State) error {
		removeProcesses(st, func(p Process) bool { return p.Daemon == daemon && p.Server == server })
		return nil
	})
}

// removeMPSDaemon removes all servers of a daemon and their clients.
func (s *Sim) removeMPSDaemon(name string) error {
	return s.update(func(st *State) error {
		removeProcesses(st, func(p Process) bool { return p.Daemon == name })
		return nil
	})
}

// ComputeDevice is a GPU or MIG device as a process sees it.
type ComputeDevice struct {
	UUID string `json:"uuid"`
	Name string `json:"name"`
	// ComputeCapability of CUDA.
	ComputeCapability Version `json:"-"`
	// MemoryBytes that processes can have of it.
	MemoryBytes uint64 `json:"memoryBytes"`
	// Multiprocessors (SMs) of the device.
	Multiprocessors int `json:"-"`
	// NotReady says why CUDA does not initialise on it; empty if it does.
	NotReady string `json:"-"`
	// MPSClients that MPS admits to it at a time, on Volta and newer.
	MPSClients int `json:"-"`
}

// ComputeDevices are the devices of the given UUIDs, in that order; with none
// given, all GPUs. It is [simerr.ErrNotFound] where the node does not have one.
func (s *Sim) ComputeDevices(uuids ...string) ([]ComputeDevice, error) {
	st, err := s.load()
	if err != nil {
		return nil, err
	}
	if len(uuids) == 0 {
		for _, g := range s.node.gpus {
			uuids = append(uuids, g.uuid)
		}
	}
	var devices []ComputeDevice
	for _, uuid := range uuids {
		d, err := s.findDevice(st, uuid)
		if err != nil {
			return nil, err
		}
		spec := s.node.gpus[d.gpu]
		device := ComputeDevice{UUID: uuid, Name: spec.kind.Name, ComputeCapability: spec.capability, MemoryBytes: spec.usableBytes(), Multiprocessors: spec.kind.Multiprocessors, MPSClients: MPSMaxClients}
		if err := checkFabric(&st.GPUs[d.gpu]); err != nil {
			device.NotReady = err.Error()
		}
		if in, ci := findMIGDevice(&st.GPUs[d.gpu], d.mig); in != nil {
			device.Name = spec.kind.Name + " MIG " + spec.migName(in, ci)
			profile := spec.profiles[in.Profile]
			device.MemoryBytes, device.Multiprocessors = profile.MemoryMiB<<20, profile.Multiprocessors
			device.MPSClients = mpsClients(profile.slices, spec.kind.MIG.ComputeSlices)
		}
		devices = append(devices, device)
	}
	return devices, nil
}

// deviceAt says which GPU a device is, and which MIG device of it.
type deviceAt struct {
	gpu int
	mig string
}

func (s *Sim) findDevice(st *State, uuid string) (deviceAt, error) {
	for i, g := range s.node.gpus {
		if g.uuid == uuid {
			return deviceAt{gpu: i}, nil
		}
		if in, _ := findMIGDevice(&st.GPUs[i], uuid); in != nil {
			return deviceAt{gpu: i, mig: uuid}, nil
		}
	}
	return deviceAt{}, fmt.Errorf("GPU or MIG device %s: %w", uuid, simerr.ErrNotFound)
}

// MPSRegistration is a daemon that has run on the node.
type MPSRegistration struct {
	Name string
	// Data is what the daemon says of itself.
	Data []byte
	// Running is false if the daemon has ended or was killed.
	Running bool
}

// RegisterMPSDaemon makes a daemon known under a name until release is called
// or the process ends. It is [simerr.ErrInUse] while another process has the name.
func (s *Sim) RegisterMPSDaemon(name string, data []byte) (release func(), err error) {
	if err := os.MkdirAll(s.mpsDir(), 0o755); err != nil {
		return nil, fmt.Errorf("register an MPS daemon: %w", err)
	}
	file, err := lockFile(s.mpsFile(name))
	if err != nil {
		return nil, fmt.Errorf("register an MPS daemon: %w", err)
	}
	// What an earlier daemon of the name could not remove would count as alive again.
	if err := errors.Join(file.Truncate(0), writeAt(file, data), s.removeMPSDaemon(name)); err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("register an MPS daemon: %w", err)
	}
	return func() { _ = file.Close() }, nil
}

// lockFile opens a file that one process at a time can lock, and creates the file if
// necessary. It returns [simerr.ErrInUse] while another process has it.
func lockFile(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	// A lock of the open file: it can be queried without taking it, and the kernel
	// releases it when the process ends.
	lock := unix.Flock_t{Type: unix.F_WRLCK}
	if err := unix.FcntlFlock(file.Fd(), unix.F_OFD_SETLK, &lock); err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("%w: %w", simerr.ErrInUse, err)
	}
	return file, nil
}

func writeAt(file *os.File, data []byte) error {
	_, err := file.WriteAt(data, 0)
	return err
}

// MPSDaemons lists the daemons that have run on the node, by name.
func (s *Sim) MPSDaemons() ([]MPSRegistration, error) {
	entries, err := os.ReadDir(s.mpsDir())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list MPS daemons: %w", err)
	}
	var daemons []MPSRegistration
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), ".json")
		if !ok {
			continue
		}
		data, err := os.ReadFile(s.mpsFile(name))
		if err != nil {
			return nil, fmt.Errorf("list MPS daemons: %w", err)
		}
		daemons = append(daemons, MPSRegistration{Name: name, Data: data, Running: s.mpsRunning(name)})
	}
	return daemons, nil
}

func (s *Sim) mpsDir() string { return filepath.Join(s.dir, "mps") }

func (s *Sim) mpsFile(name string) string { return filepath.Join(s.mpsDir(), name+".json") }

// mpsRunning reports whether a daemon's process has its lock.
func (s *Sim) mpsRunning(name string) bool { return isLocked(s.mpsFile(name)) }

// isLocked reports whether a process has the lock of [lockFile] on a file.
func isLocked(path string) bool {
	file, err := os.Open(path)
	if err != nil {
		return false
	}
	defer func() { _ = file.Close() }()
	lock := unix.Flock_t{Type: unix.F_RDLCK}
	err = unix.FcntlFlock(file.Fd(), unix.F_OFD_GETLK, &lock)
	return err == nil && lock.Type != unix.F_UNLCK
}

// withoutDead returns the state without the processes that have ended: processes of this
// machine, the MPS servers of ended daemons and the processes of an ended gpu-sim driver. A killed
// program does not remove them.
func (s *Sim) withoutDead(st *State) *State {
	served := sync.OnceValue(s.driverRunning)
	dead := func(p Process) bool {
		return p.Daemon != "" && !s.mpsRunning(p.Daemon) || p.Followed && !served() || p.Started != 0 && StartOf(p.PID) != p.Started
	}
	for i := range st.GPUs {
		if !slices.ContainsFunc(st.GPUs[i].Processes, dead) {
			continue
		}
		st = st.clone()
		for j := range st.GPUs {
			st.GPUs[j].Processes = slices.DeleteFunc(st.GPUs[j].Processes, dead)
		}
		return st
	}
	return st
}

// MPSMaxClients is the number of MPS clients on one GPU at a time, on Volta and newer.
const MPSMaxClients = 48

// mpsClients returns the number of clients that MPS admits at a time to a MIG device. The
// device has slices of the ofGPU compute slices of the GPU. Source: NVIDIA Multi-Instance GPU
// User Guide, CUDA MPS on MIG.
func mpsClients(slices, ofGPU int) int { return max(1, MPSMaxClients*slices/ofGPU) }
