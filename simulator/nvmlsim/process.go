// SPDX-License-Identifier: Apache-2.0

package nvmlsim

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"golang.org/x/sys/unix"

	"github.com/gpu-dra/gpu-dra-driver/simulator/simerr"
)

// AddProcess lets a process compute on a GPU, or on one of its MIG devices. It
// is refused as the driver would refuse it: [simerr.ErrNoCapacity] for more
// memory than is left, [simerr.ErrInUse] for a compute mode that does not admit
// it, and [simerr.ErrInvalid] for the whole of a GPU in MIG mode. It returns
// [simerr.ErrLost] for a lost GPU, and [simerr.ErrNotReady] while the GPU is not in
// its NVSwitch fabric, when CUDA does not initialise.
func (s *Sim) AddProcess(index int, p Process) error {
	if err := s.checkGPU(index); err != nil {
		return err
	}
	return s.update(func(st *State) error {
		err := checkFabric(&st.GPUs[index])
		if err == nil {
			err = s.node.addProcess(index, &st.GPUs[index], p, nil)
		}
		if err != nil {
			return fmt.Errorf("process %d on GPU %d: %w", p.PID, index, err)
		}
		return nil
	})
}

// addProcess adds a process to a GPU. before are processes that were on the GPU before
// the change of which this is a part, and that the change has removed.
func (n *node) addProcess(index int, g *GPUState, p Process, before []Process) error {
	spec := n.gpus[index]
	if p.PID <= 0 {
		return fmt.Errorf("%w: a PID is positive", simerr.ErrInvalid)
	}
	if g.Lost {
		return simerr.ErrLost
	}
	if err := checkComputeMode(g, p, before); err != nil {
		return err
	}
	total := spec.usableBytes()
	switch {
	case g.MIGMode && p.Device == "":
		return fmt.Errorf("%w: the GPU is in MIG mode; name one of its MIG devices", simerr.ErrInvalid)
	case p.Device != "":
		in, _ := findMIGDevice(g, p.Device)
		if in == nil {
			return fmt.Errorf("MIG device %s: %w", p.Device, simerr.ErrNotFound)
		}
		// Compute instances of one GPU instance share its memory.
		total = spec.profiles[in.Profile].MemoryMiB << 20
		for _, ci := range in.Compute {
			total -= usedBytes(processesOn(g, ci.UUID))
		}
	default:
		total -= usedBytes(g.Processes)
	}
	if p.MemoryBytes > total {
		return fmt.Errorf("%w: %d MiB wanted, %d MiB left", simerr.ErrNoCapacity, p.MemoryBytes>>20, total>>20)
	}
	if err := n.checkMemoryLimits(g, p); err != nil {
		return err
	}
	g.insert(p)
	return nil
}

func (g *GPUState) insert(p Process) {
	g.Processes = append(g.Processes, p)
	slices.SortFunc(g.Processes, func(a, b Process) int {
		return cmp.Or(cmp.Compare(a.PID, b.PID), cmp.Compare(a.Device, b.Device))
	})
}

// checkComputeMode returns [simerr.ErrInUse] if the compute mode does not admit one more
// process. A process that has a context keeps it, whatever the mode becomes.
func checkComputeMode(g *GPUState, p Process, before []Process) error {
	if slices.ContainsFunc(before, func(o Process) bool { return o.PID == p.PID && o.Device == p.Device }) {
		return nil
	}
	switch ComputeMode(g.ComputeMode) {
	case ComputeModeDefault:
	case ComputeModeProhibited:
		return fmt.Errorf("%w: compute mode %s", simerr.ErrInUse, g.ComputeMode)
	case ComputeModeExclusiveProcess:
		// The clients of an MPS server use its context, which it may have had before
		// the mode was set.
		ofServer := func(o Process) bool {
			return p.Daemon != "" && o.Daemon == p.Daemon && o.Server == p.Server && o.Device == p.Device
		}
		if slices.ContainsFunc(before, ofServer) {
			return nil
		}
		others := slices.DeleteFunc(processesOn(g, p.Device), func(o Process) bool {
			return ofServer(o) || p.Daemon == "" && o.Daemon == "" && o.PID == p.PID
		})
		if len(others) > 0 {
			return fmt.Errorf("%w by %s: compute mode %s", simerr.ErrInUse, describeProcesses(others), g.ComputeMode)
		}
	}
	return nil
}

// placement is a process and the GPU on which it is.
type placement struct {
	gpu     int
	process Process
}

// replaceProcesses puts the wanted processes in the place of all matching ones. It refuses
// what [Sim.AddProcess] refuses, except for what a process has already: neither a limit
// nor a compute mode that is set later takes memory or a context away.
func (n *node) replaceProcesses(st *State, match func(Process) bool, wanted []placement) error {
	before := make([][]Process, len(st.GPUs))
	for i := range st.GPUs {
		for _, p := range st.GPUs[i].Processes {
			if match(p) {
				before[i] = append(before[i], p)
			}
		}
	}
	removeProcesses(st, match)
	// Processes that need no additional memory come first. So they count when the others
	// are checked.
	var growing []placement
	for _, w := range wanted {
		has := slices.ContainsFunc(before[w.gpu], func(o Process) bool {
			return o.PID == w.process.PID && o.Device == w.process.Device && o.MemoryBytes >= w.process.MemoryBytes
		})
		if has {
			st.GPUs[w.gpu].insert(w.process)
		} else {
			growing = append(growing, w)
		}
	}
	for _, w := range growing {
		if err := n.addProcess(w.gpu, &st.GPUs[w.gpu], w.process, before[w.gpu]); err != nil {
			return fmt.Errorf("%s: %w", cmp.Or(w.process.Device, n.gpus[w.gpu].uuid), err)
		}
	}
	return nil
}

// RemoveProcess ends a process on all GPUs. It is [simerr.ErrNotFound] where no
// GPU knows it.
func (s *Sim) RemoveProcess(pid int) error {
	return s.update(func(st *State) error {
		if !removeProcess(st, pid) {
			return fmt.Errorf("process %d: %w on any GPU", pid, simerr.ErrNotFound)
		}
		return nil
	})
}

// FollowProcess makes a process compute on a GPU as [Sim.AddProcess] does, and
// removes it when it ends. It blocks until then, as a driver notices the end. The
// PID is one of this process's PID namespace; [simerr.ErrNotFound] if it has no such
// process. If ctx ends first, the process stays on the GPU.
func (s *Sim) FollowProcess(ctx context.Context, index int, p Process) error {
	running, err := OpenProcess(p.PID)
	if err != nil {
		return err
	}
	defer running.Close()
	if p.Cgroups, err = s.node.cgroupsOf(p.PID); err != nil {
		return fmt.Errorf("follow process %d: %w", p.PID, err)
	}
	if err := s.AddProcess(index, p); err != nil {
		return err
	}
	if err := running.Wait(ctx); err != nil {
		return fmt.Errorf("follow process %d: %w", p.PID, err)
	}
	if err := s.RemoveProcess(p.PID); err != nil && !errors.Is(err, simerr.ErrNotFound) {
		return err
	}
	return nil
}

// StartOf returns when a process of this machine has started, in the kernel's ticks since boot.
// It is 0 if no such process runs.
func StartOf(pid int) uint64 {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	// The name before the last parenthesis may have spaces. The state and 18 numbers follow.
	fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
	const start = 19
	if len(fields) <= start || fields[0] == "Z" || fields[0] == "X" {
		return 0
	}
	ticks, _ := strconv.ParseUint(fields[start], 10, 64)
	return ticks
}

// RunningProcess is a process of this machine, which no later one with the same PID is
// mistaken for.
type RunningProcess struct{ pidfd *os.File }

// OpenProcess opens a process of this process' PID namespace. It returns
// [simerr.ErrNotFound] if there is none.
func OpenProcess(pid int) (*RunningProcess, error) {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EINVAL) {
		return nil, fmt.Errorf("process %d: %w on this machine", pid, simerr.ErrNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("follow process %d: %w", pid, err)
	}
	return &RunningProcess{pidfd: os.NewFile(uintptr(fd), "pidfd")}, nil
}

// Close closes the handle. The process continues.
func (p *RunningProcess) Close() { _ = p.pidfd.Close() }

// Wait blocks until the process has ended, or ctx has.
func (p *RunningProcess) Wait(ctx context.Context) error {
	conn, err := p.pidfd.SyscallConn()
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = p.pidfd.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	// A pidfd is readable once its process has ended, though nothing can be read.
	err = conn.Read(func(fd uintptr) bool {
		ready := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(ready, 0)
		return err == nil && n > 0
	})
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

func removeProcess(st *State, pid int) (found bool) {
	return removeProcesses(st, func(p Process) bool { return p.PID == pid })
}

func removeProcesses(st *State, which func(Process) bool) (found bool) {
	for i := range st.GPUs {
		g := &st.GPUs[i]
		before := len(g.Processes)
		g.Processes = slices.DeleteFunc(g.Processes, which)
		found = found || len(g.Processes) < before
	}
	return found
}

// usableBytes is the memory that processes can have.
func (s *spec) usableBytes() uint64 { return (s.kind.MemoryMiB - s.kind.ReservedMiB) << 20 }

// processesOn lists the processes on a MIG device. With an empty UUID it lists the
// processes on the GPU as a whole.
func processesOn(g *GPUState, uuid string) []Process {
	var on []Process
	for _, p := range g.Processes {
		if p.Device == uuid {
			on = append(on, p)
		}
	}
	return on
}

func usedBytes(processes []Process) uint64 {
	var sum uint64
	for _, p := range processes {
		sum += p.MemoryBytes
	}
	return sum
}

func describeProcesses(processes []Process) string {
	var names []string
	for _, p := range processes {
		names = append(names, strings.TrimSpace(fmt.Sprintf("process %d %s", p.PID, p.Name)))
	}
	return strings.Join(names, ", ")
}

// noInstance is NVML's value for an instance ID that does not apply.
const noInstance = 0xFFFFFFFF

// GetComputeRunningProcesses lists MPS servers and clients among the others, as
// NVML does: nvidia-smi shows a server as C and its clients as M+C.
func (d device) GetComputeRunningProcesses() ([]nvml.ProcessInfo, nvml.Return) {
	return d.processes("DeviceGetComputeRunningProcesses", func(Process) bool { return true })
}

// GetMPSComputeRunningProcesses lists the clients of MPS servers.
func (d device) GetMPSComputeRunningProcesses() ([]nvml.ProcessInfo, nvml.Return) {
	return d.processes("DeviceGetMPSComputeRunningProcesses", func(p Process) bool { return p.MPSClient })
}

func (d device) processes(method string, which func(Process) bool) ([]nvml.ProcessInfo, nvml.Return) {
	c, ret := d.enter(method)
	if ret != nvml.SUCCESS {
		return nil, ret
	}
	infos := []nvml.ProcessInfo{}
	for _, p := range c.gpu.Processes {
		if !which(p) || d.mig != "" && p.Device != d.mig {
			continue
		}
		info := nvml.ProcessInfo{Pid: uint32(p.PID), UsedGpuMemory: p.MemoryBytes, GpuInstanceId: noInstance, ComputeInstanceId: noInstance}
		if in, ci := findMIGDevice(c.gpu, p.Device); in != nil {
			info.GpuInstanceId, info.ComputeInstanceId = uint32(in.ID), uint32(ci.ID)
		}
		infos = append(infos, info)
	}
	return infos, nvml.SUCCESS
}

func (d device) GetGraphicsRunningProcesses() ([]nvml.ProcessInfo, nvml.Return) {
	_, ret := d.enter("DeviceGetGraphicsRunningProcesses")
	return nil, ret
}

// GetProcessUtilization returns a sample of each process that computes. NVML has none in
// MIG mode, and reports "not found" if no process computes.
func (d device) GetProcessUtilization(lastSeen uint64) ([]nvml.ProcessUtilizationSample, nvml.Return) {
	c, ret := d.enterGPU("DeviceGetProcessUtilization")
	if ret != nvml.SUCCESS {
		return nil, ret
	}
	if c.gpu.MIGMode {
		return nil, nvml.ERROR_NOT_SUPPORTED
	}
	var samples []nvml.ProcessUtilizationSample
	now := uint64(time.Now().UnixMicro())
	for _, p := range c.gpu.Processes {
		if p.SMPercent > 0 && now > lastSeen {
			samples = append(samples, nvml.ProcessUtilizationSample{Pid: uint32(p.PID), TimeStamp: now, SmUtil: uint32(p.SMPercent)})
		}
	}
	if len(samples) == 0 {
		return nil, nvml.ERROR_NOT_FOUND
	}
	return samples, nvml.SUCCESS
}

func (l *library) SystemGetProcessName(pid int) (string, nvml.Return) {
	st, ret := l.enter("SystemGetProcessName")
	if ret != nvml.SUCCESS {
		return "", ret
	}
	for _, g := range st.GPUs {
		for _, p := range g.Processes {
			if p.PID == pid {
				return p.Name, nvml.SUCCESS
			}
		}
	}
	return "", nvml.ERROR_NOT_FOUND
}
