// SPDX-License-Identifier: Apache-2.0

package nvmlsim

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// What the simulator knows of processes that compute without MPS. Package cudasim serves
// them.

// ComputeProcess is the memory that a process has of the GPUs without MPS.
type ComputeProcess struct {
	PID  int
	Name string
	// Memory in bytes, by the UUID of a GPU or MIG device. A device without an entry is
	// not used.
	Memory map[string]uint64
}

// SetComputeProcess makes a process one of its devices' processes, or changes how much
// memory it has of them. All of it is refused if one device refuses it, for the reasons of
// [Sim.AddProcess]. The process ends with the program that called [Sim.RegisterDriver].
func (s *Sim) SetComputeProcess(c ComputeProcess) error {
	return s.update(func(st *State) error {
		p := Process{PID: c.PID, Name: c.Name, Followed: true}
		cgroups, err := s.node.cgroupsOf(c.PID)
		if err != nil {
			return err
		}
		p.Cgroups = cgroups
		wanted, err := s.placements(st, p, c.Memory)
		if err != nil {
			return err
		}
		isOwn := func(p Process) bool { return p.Followed && p.PID == c.PID }
		for _, w := range wanted {
			g := &st.GPUs[w.gpu]
			if err := checkFabric(g); err != nil && !slices.ContainsFunc(g.Processes, isOwn) {
				return fmt.Errorf("%s: %w", cmp.Or(w.process.Device, s.node.gpus[w.gpu].uuid), err)
			}
		}
		return s.node.replaceProcesses(st, isOwn, wanted)
	})
}

// MemoryInfo returns the total and the free memory of a device as CUDA reports it to a
// process: within the limit of its cgroup if it has one.
func (s *Sim) MemoryInfo(pid int, uuid string) (total, free uint64, err error) {
	st, err := s.load()
	if err != nil {
		return 0, 0, err
	}
	at, err := s.findDevice(st, uuid)
	if err != nil {
		return 0, 0, err
	}
	spec, g := s.node.gpus[at.gpu], &st.GPUs[at.gpu]
	total = spec.usableBytes()
	if in, _ := findMIGDevice(g, at.mig); in != nil {
		total = spec.profiles[in.Profile].MemoryMiB << 20
		free = total
		for _, ci := range in.Compute {
			free -= usedBytes(processesOn(g, ci.UUID))
		}
		return total, free, nil
	}
	free = total - usedBytes(g.Processes)
	cgroups, err := s.node.cgroupsOf(pid)
	if err != nil {
		return 0, 0, err
	}
	if limit := s.node.reportedLimit(g, cgroups); limit != nil {
		total = min(total, limit.HardBytes)
		free = min(free, total-min(s.node.usedUnder(g, *limit), total))
	}
	return total, free, nil
}

// VisibleDevices returns the GPUs and MIG devices whose device nodes are in a root
// file system. These are the devices that CUDA finds. It returns none if a node that
// all GPUs share is missing. A node that canOpen refuses, given its numbers, counts
// as missing.
func (s *Sim) VisibleDevices(root string, canOpen func(major, minor int) bool) ([]ComputeDevice, error) {
	st, err := s.load()
	if err != nil {
		return nil, err
	}
	areDevices := s.tree().realDevices()
	has := func(name string, major, minor int) bool {
		var stat unix.Stat_t
		if unix.Stat(filepath.Join(root, "dev", name), &stat) != nil || !canOpen(major, minor) {
			return false
		}
		return !areDevices || stat.Mode&unix.S_IFMT == unix.S_IFCHR && stat.Rdev == unix.Mkdev(uint32(major), uint32(minor))
	}
	if st.NoDriver || !has("nvidiactl", majorNVIDIA, minorControl) || !has("nvidia-uvm", majorUVM, 0) {
		return nil, nil
	}
	var uuids []string
	for i, spec := range s.node.gpus {
		g := &st.GPUs[i]
		if g.Lost || !has(fmt.Sprintf("nvidia%d", spec.minor), majorNVIDIA, spec.minor) {
			continue
		}
		if !g.MIGMode {
			uuids = append(uuids, spec.uuid)
			continue
		}
		for _, in := range g.Instances {
			for _, ci := range in.Compute {
				ofInstance, ofCompute := instanceCap(spec.minor, in.ID), computeCap(spec.minor, in.ID, ci.ID)
				if has(capFile(ofInstance), majorCaps, ofInstance) && has(capFile(ofCompute), majorCaps, ofCompute) {
					uuids = append(uuids, ci.UUID)
				}
			}
		}
	}
	if len(uuids) == 0 {
		return nil, nil
	}
	return s.ComputeDevices(uuids...)
}

// RegisterDriver makes this process the server of the node's processes without MPS.
// It remains so until release is called or the process ends. It returns
// [simerr.ErrInUse] while another process serves them.
func (s *Sim) RegisterDriver() (release func(), err error) {
	file, err := lockFile(s.driverFile())
	if err != nil {
		return nil, fmt.Errorf("serve the processes of the simulated node in %s: %w", s.dir, err)
	}
	// Processes of an earlier program would count as running again.
	err = s.update(func(st *State) error {
		removeProcesses(st, func(p Process) bool { return p.Followed })
		return nil
	})
	if err != nil {
		_ = file.Close()
		return nil, err
	}
	return func() { _ = file.Close() }, nil
}

// DriverSocket returns the path of the unix socket on which processes without MPS are
// served. It is in the place of nvidia-persistenced's, which CDI specs mount into
// containers.
func (s *Sim) DriverSocket() string { return filepath.Join(s.Root(), "run/nvidia-persistenced/socket") }

func (s *Sim) driverFile() string { return filepath.Join(s.dir, "driver") }

func (s *Sim) driverRunning() bool { return isLocked(s.driverFile()) }
