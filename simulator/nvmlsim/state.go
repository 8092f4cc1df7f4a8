// SPDX-License-Identifier: Apache-2.0

package nvmlsim

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpu-dra/gpu-dra-driver/simulator/cgroup"
	"github.com/gpu-dra/gpu-dra-driver/simulator/simerr"
)

// State is what changes about a simulated node. It is one JSON file, replaced
// as a whole by every change.
type State struct {
	// Format is the format of the file: 0 before there were numbers. A release reads the
	// formats of earlier releases.
	Format int `json:"format,omitempty"`
	// Model identifies the model to which the state belongs. It is empty before format 1.
	Model string `json:"model,omitempty"`
	// BootID changes with every reboot.
	BootID string `json:"bootID"`
	// Serial grows with everything that is made: instances and events.
	Serial uint64 `json:"serial"`
	// NoDriver says that the kernel driver is not loaded.
	NoDriver bool `json:"noDriver,omitempty"`
	// GPUs in the order of the model.
	GPUs []GPUState `json:"gpus"`
	// CallFaults that are still to strike.
	CallFaults []CallFault `json:"callFaults,omitempty"`
	// MPSStartFailures is how many MPS daemons will not come up; negative for
	// all of them.
	MPSStartFailures int `json:"mpsStartFailures,omitempty"`
	// MPSServersCharged says that the memory of MPS clients counts in the cgroup of their
	// server.
	MPSServersCharged bool `json:"mpsServersCharged,omitempty"`
	// FaultsCleared counts how often faults were cleared; it ends hangs.
	FaultsCleared uint64 `json:"faultsCleared,omitempty"`
	// Events are the latest ones, oldest first.
	Events []Event `json:"events,omitempty"`
	// EventsToAllSets is true if the driver delivers the events of all GPUs to each
	// event set. Otherwise a set receives only the events of its GPUs.
	EventsToAllSets bool `json:"eventsToAllSets,omitempty"`
}

// GPUState is what changes about one GPU.
type GPUState struct {
	// MIGMode now, MIGPending after the next reset.
	MIGMode    bool `json:"migMode,omitempty"`
	MIGPending bool `json:"migPending,omitempty"`
	// ECC now, ECCPending after the next reset; absent without ECC.
	ECC         *bool  `json:"ecc,omitempty"`
	ECCPending  *bool  `json:"eccPending,omitempty"`
	Persistence *bool  `json:"persistence,omitempty"`
	ComputeMode string `json:"computeMode"`
	// TimeSlice of the compute policy; empty for the default.
	TimeSlice string `json:"timeSlice,omitempty"`
	// Lost says that the GPU fell off the bus.
	Lost bool `json:"lost,omitempty"`
	// Recovery is the action that the driver requests; empty for none.
	Recovery RecoveryAction `json:"recovery,omitempty"`
	// Fabric is the state of the registration with the NVSwitch fabric if it is not
	// completed. Clique is the clique if it is not the model's.
	Fabric FabricState `json:"fabric,omitempty"`
	Clique *uint32     `json:"clique,omitempty"`
	// LinksDown are the numbers of NVLinks taken down by a fault.
	LinksDown []int `json:"linksDown,omitempty"`
	// Slow is the reason why the clocks are reduced, a bit of NVML; 0 for none.
	Slow uint64 `json:"slow,omitempty"`
	// ECCErrors counts uncorrectable memory errors since boot.
	ECCErrors uint64 `json:"eccErrors,omitempty"`
	// MemoryLimits are the limits of cgroups, in the order in which they were set.
	MemoryLimits []MemoryLimit `json:"memoryLimits,omitempty"`
	// Reservations are the driver's additions to the soft limits of cgroups for those
	// below them.
	Reservations []Reservation `json:"reservations,omitempty"`
	// Instances are the GPU instances, in the order of their placement.
	Instances []Instance `json:"instances,omitempty"`
	// Processes in the order of their PID.
	Processes []Process `json:"processes,omitempty"`
}

// Instance is a MIG GPU instance.
type Instance struct {
	ID int `json:"id"`
	// Profile is NVML's profile number, Start the first memory slice.
	Profile int `json:"profile"`
	Start   int `json:"start"`
	// Serial distinguishes this instance from an earlier one with the same ID.
	Serial  uint64            `json:"serial"`
	Compute []ComputeInstance `json:"compute,omitempty"`
}

// ComputeInstance is a MIG compute instance, and so a MIG device.
type ComputeInstance struct {
	ID int `json:"id"`
	// Profile is NVML's compute instance profile number, Start the first
	// compute slice within the GPU instance.
	Profile int `json:"profile"`
	Start   int `json:"start"`
	// UUID of the MIG device.
	UUID string `json:"uuid"`
}

// Process is a process that computes on a GPU.
type Process struct {
	PID         int    `json:"pid"`
	Name        string `json:"name,omitempty"`
	MemoryBytes uint64 `json:"memoryBytes"`
	// SMPercent is the part of the time for which it uses the multiprocessors.
	SMPercent int `json:"smPercent,omitempty"`
	// Device is the UUID of the MIG device it runs on; empty for the GPU.
	Device string `json:"device,omitempty"`
	// Daemon is the MPS daemon whose server or client the process is. The process ends
	// with that daemon. It is empty for other processes.
	Daemon string `json:"daemon,omitempty"`
	// Server is the name of the server, if the daemon has named servers.
	Server string `json:"server,omitempty"`
	// MPSClient is true for a client of a daemon, and false for its server.
	MPSClient bool `json:"mpsClient,omitempty"`
	// Followed is true for a process of which gpu-sim driver follows the connection,
	// and with which it ends.
	Followed bool `json:"followed,omitempty"`
	// Started is the start time of a process of this machine, with which the process ends.
	// It is 0 for any other process.
	Started uint64 `json:"started,omitempty"`
	// Cgroups are the process' cgroup of version 2 and its ancestors when the process
	// began to compute. It is empty if the process had none.
	Cgroups []cgroup.ID `json:"cgroups,omitempty"`
}

// Event is something that the hardware reported.
type Event struct {
	Serial uint64 `json:"serial"`
	GPU    int    `json:"gpu"`
	// Type is NVML's event type, Data for XID events the number of the XID.
	Type uint64 `json:"type"`
	Data uint64 `json:"data"`
	// MIG has the instances of an event of a MIG device. It is nil for the GPU as a whole.
	MIG *EventInstances `json:"mig,omitempty"`
	// PID is the process that caused an XID, and Name its name. They are for the kernel's log, and
	// absent if the driver does not know the process.
	PID  int    `json:"pid,omitempty"`
	Name string `json:"name,omitempty"`
}

// EventInstances are the instances of the MIG device of an event.
type EventInstances struct {
	GPU     int `json:"gpu"`
	Compute int `json:"compute"`
}

// stateFormat is the format that this release writes. It grows with a change that an earlier
// release cannot read.
const stateFormat = 1

// keptEvents limits the size of the state. NVML's own queue has a limit too.
const keptEvents = 256

// bootState is the state right after the machine has come up, given what
// outlives a reboot.
func bootState(n *node, previous *State) *State {
	st := &State{BootID: newBootID(), GPUs: make([]GPUState, len(n.gpus))}
	if previous != nil {
		st.Serial, st.FaultsCleared = previous.Serial, previous.FaultsCleared+1
	}
	for i, s := range n.gpus {
		g := GPUState{
			MIGMode:     s.gpu.MIGMode,
			ECC:         s.kind.ECC,
			Persistence: s.kind.Persistence,
			ComputeMode: s.kind.ComputeMode,
		}
		if previous == nil {
			g.Recovery = s.gpu.Recovery
		}
		if g.ComputeMode == "" {
			g.ComputeMode = string(ComputeModeDefault)
		}
		if previous != nil {
			// The board's InfoROM keeps the ECC mode, and on Ampere also the
			// MIG mode.
			g.ECC = previous.GPUs[i].ECCPending
			if s.kind.MIG != nil && s.kind.MIG.NeedsReset {
				g.MIGMode = previous.GPUs[i].MIGPending
			}
		}
		g.MIGPending, g.ECCPending = g.MIGMode, g.ECC
		st.GPUs[i] = g
	}
	return st
}

func newBootID() string {
	var b [16]byte
	// crypto/rand.Read never fails.
	_, _ = rand.Read(b[:])
	return formatUUID(b, 4)
}

// record appends an event, which wakes all that wait for one.
func (st *State) record(gpuIndex int, eventType, data uint64) {
	st.Serial++
	st.Events = append(st.Events, Event{Serial: st.Serial, GPU: gpuIndex, Type: eventType, Data: data})
	if extra := len(st.Events) - keptEvents; extra > 0 {
		st.Events = slices.Delete(st.Events, 0, extra)
	}
}

// snapshot is a state as read from disk, with the stamp of its file.
type snapshot struct {
	stamp unix.Timespec
	state *State
}

func (s *Sim) stateFile() string { return filepath.Join(s.dir, "state.json") }

// load returns the current state. If nothing has changed it takes one stat. Callers
// must not modify the result, which is shared.
func (s *Sim) load() (*State, error) {
	var stat unix.Stat_t
	if err := unix.Stat(s.stateFile(), &stat); err != nil {
		return nil, fmt.Errorf("simulated node in %s: %w", s.dir, err)
	}
	if last := s.last.Load(); last != nil && last.stamp == stat.Mtim {
		return s.withoutDead(last.state), nil
	}
	file, err := os.Open(s.stateFile())
	if err != nil {
		return nil, fmt.Errorf("simulated node: %w", err)
	}
	defer func() { _ = file.Close() }()
	if err := unix.Fstat(int(file.Fd()), &stat); err != nil {
		return nil, fmt.Errorf("simulated node in %s: %w", s.dir, err)
	}
	st := &State{}
	err = json.NewDecoder(file).Decode(st)
	switch {
	case st.Format > stateFormat:
		return nil, fmt.Errorf("%s: %w: format %d is of a later release of the simulator; remove the folder and create the node again", s.stateFile(), simerr.ErrMismatch, st.Format)
	case err != nil:
		return nil, fmt.Errorf("%s: %w: %w", s.stateFile(), simerr.ErrCorrupt, err)
	case st.Model != "" && st.Model != s.modelID:
		return nil, fmt.Errorf("%s: %w: another node has replaced the %s", s.stateFile(), simerr.ErrMismatch, s.node.model.Name)
	}
	if len(st.GPUs) != len(s.node.gpus) {
		return nil, fmt.Errorf("%s: %w: %d GPUs, and the model has %d", s.stateFile(), simerr.ErrCorrupt, len(st.GPUs), len(s.node.gpus))
	}
	s.last.Store(&snapshot{stamp: stat.Mtim, state: st})
	return s.withoutDead(st), nil
}

// update changes the state while no other process does. An error of change is
// returned unchanged, and the state stays unchanged too.
func (s *Sim) update(change func(*State) error) error {
	unlock, err := lock(s.dir)
	if err != nil {
		return err
	}
	defer unlock()
	before, err := s.load()
	if err != nil {
		return err
	}
	if err := s.repair(before); err != nil {
		return err
	}
	after := before.clone()
	if err := change(after); err != nil {
		return err
	}
	if err := s.commit(before, after); err != nil {
		return err
	}
	return s.tree().logXIDs(before, after)
}

// save replaces the state file. The caller holds the lock.
func (s *Sim) save(st *State) error {
	st.Format, st.Model = stateFormat, s.modelID
	data, err := json.Marshal(st)
	if err != nil {
		return fmt.Errorf("simulated node: %w", err)
	}
	temporary := s.stateFile() + ".new"
	if err := os.WriteFile(temporary, data, 0o644); err != nil {
		return fmt.Errorf("simulated node: %w", err)
	}
	// The file's time is what readers tell versions by, so it must grow with
	// each of them, whatever the resolution of the clock.
	stamp := time.Now()
	if last := s.last.Load(); last != nil {
		if previous := time.Unix(last.stamp.Unix()); !stamp.After(previous) {
			stamp = previous.Add(time.Nanosecond)
		}
	}
	if err := os.Chtimes(temporary, stamp, stamp); err != nil {
		return fmt.Errorf("simulated node: %w", err)
	}
	if err := os.Rename(temporary, s.stateFile()); err != nil {
		return fmt.Errorf("simulated node: %w", err)
	}
	return nil
}

// clone copies everything that a change may touch.
func (st *State) clone() *State {
	c := *st
	c.GPUs = slices.Clone(st.GPUs)
	for i := range c.GPUs {
		g := &c.GPUs[i]
		g.LinksDown = slices.Clone(g.LinksDown)
		g.MemoryLimits = slices.Clone(g.MemoryLimits)
		g.Reservations = slices.Clone(g.Reservations)
		g.Processes = slices.Clone(g.Processes)
		g.Instances = slices.Clone(g.Instances)
		for j := range g.Instances {
			g.Instances[j].Compute = slices.Clone(g.Instances[j].Compute)
		}
	}
	c.CallFaults = slices.Clone(st.CallFaults)
	c.Events = slices.Clone(st.Events)
	return &c
}

// lock makes this process the only one to change the node in dir.
func lock(dir string) (unlock func(), err error) {
	file, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		if isRefused(err) {
			return nil, fmt.Errorf("change the simulated node: %w: %w", simerr.ErrPermission, err)
		}
		return nil, fmt.Errorf("change the simulated node: %w", err)
	}
	for {
		err = unix.Flock(int(file.Fd()), unix.LOCK_EX)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("lock the simulated node in %s: %w", dir, err)
	}
	return func() { _ = file.Close() }, nil
}
