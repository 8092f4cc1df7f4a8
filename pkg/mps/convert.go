package mps

import (
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/mps/mpsv1"
)

func daemonToWire(d gpu.MPSDaemon) *mpsv1.Daemon {
	return &mpsv1.Daemon{Name: d.Name, Devices: d.Devices, ThreadPercentage: int32(d.ThreadPercentage), MemoryLimits: d.MemoryLimits}
}

func daemonFromWire(d *mpsv1.Daemon) gpu.MPSDaemon {
	return gpu.MPSDaemon{Name: d.GetName(), Devices: d.GetDevices(), ThreadPercentage: int(d.GetThreadPercentage()), MemoryLimits: d.GetMemoryLimits()}
}

func statusToWire(s gpu.MPSStatus) *mpsv1.DaemonStatus {
	wire := &mpsv1.DaemonStatus{Daemon: daemonToWire(s.Daemon), State: stateToWire(s.State), Pid: int32(s.PID), Problem: s.Problem, Restarts: int32(s.Restarts)}
	for _, server := range s.Servers {
		wire.Servers = append(wire.Servers, &mpsv1.Server{Pid: int32(server.PID), State: server.State, Clients: int32(server.Clients)})
	}
	return wire
}

func statusFromWire(wire *mpsv1.DaemonStatus) gpu.MPSStatus {
	s := gpu.MPSStatus{Daemon: daemonFromWire(wire.GetDaemon()), State: stateFromWire(wire.GetState()), PID: int(wire.GetPid()), Problem: wire.GetProblem(), Restarts: int(wire.GetRestarts())}
	for _, server := range wire.GetServers() {
		s.Servers = append(s.Servers, gpu.MPSServer{PID: int(server.GetPid()), State: server.GetState(), Clients: int(server.GetClients())})
	}
	return s
}

func stateToWire(s gpu.MPSState) mpsv1.State {
	switch s {
	case gpu.MPSReady:
		return mpsv1.State_STATE_READY
	case gpu.MPSStarting:
		return mpsv1.State_STATE_STARTING
	case gpu.MPSFailed:
		return mpsv1.State_STATE_FAILED
	default:
		return mpsv1.State_STATE_UNSPECIFIED
	}
}

// stateFromWire reads a state that this release does not know as failed: the
// daemon is not known to be ready.
func stateFromWire(s mpsv1.State) gpu.MPSState {
	switch s {
	case mpsv1.State_STATE_READY:
		return gpu.MPSReady
	case mpsv1.State_STATE_STARTING:
		return gpu.MPSStarting
	default:
		return gpu.MPSFailed
	}
}
