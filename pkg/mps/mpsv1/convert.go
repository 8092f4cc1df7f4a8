// SPDX-License-Identifier: Apache-2.0

package mpsv1

import (
	"time"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// EncodeDaemon returns the message for a daemon.
func EncodeDaemon(d gpu.MPSDaemon) *Daemon {
	message := &Daemon{Name: d.Name, Devices: d.Devices, ThreadPercentage: int32(d.ThreadPercentage), MemoryLimits: d.MemoryLimits}
	for _, n := range d.Namespaces {
		message.Namespaces = append(message.Namespaces, &Namespace{Name: n.Name, ThreadPercentage: int32(n.ThreadPercentage), MemoryLimit: n.MemoryLimit})
	}
	return message
}

// DecodeDaemon returns the daemon of a message.
func DecodeDaemon(message *Daemon) gpu.MPSDaemon {
	d := gpu.MPSDaemon{Name: message.GetName(), Devices: message.GetDevices(), ThreadPercentage: int(message.GetThreadPercentage()), MemoryLimits: message.GetMemoryLimits()}
	for _, n := range message.GetNamespaces() {
		d.Namespaces = append(d.Namespaces, gpu.MPSNamespace{Name: n.GetName(), ThreadPercentage: int(n.GetThreadPercentage()), MemoryLimit: n.GetMemoryLimit()})
	}
	return d
}

// EncodeStatus returns the message for the status of a daemon.
func EncodeStatus(s gpu.MPSStatus) *DaemonStatus {
	message := &DaemonStatus{Daemon: EncodeDaemon(s.Daemon), State: encodeState(s.State), Pid: int32(s.PID), Problem: s.Problem, Restarts: int32(s.Restarts)}
	if !s.Interrupted.IsZero() {
		message.Interrupted = s.Interrupted.Unix()
	}
	for _, w := range s.Waiting {
		message.Waiting = append(message.Waiting, &Waiting{Pid: int32(w.PID), Uid: int32(w.UID)})
	}
	for _, server := range s.Servers {
		message.Servers = append(message.Servers, &Server{Pid: int32(server.PID), State: server.State, Clients: int32(server.Clients)})
	}
	return message
}

// DecodeStatus returns the status of a message.
func DecodeStatus(message *DaemonStatus) gpu.MPSStatus {
	s := gpu.MPSStatus{Daemon: DecodeDaemon(message.GetDaemon()), State: decodeState(message.GetState()), PID: int(message.GetPid()), Problem: message.GetProblem(), Restarts: int(message.GetRestarts())}
	if at := message.GetInterrupted(); at != 0 {
		s.Interrupted = time.Unix(at, 0).UTC()
	}
	for _, w := range message.GetWaiting() {
		s.Waiting = append(s.Waiting, gpu.MPSWaiting{PID: int(w.GetPid()), UID: int(w.GetUid())})
	}
	for _, server := range message.GetServers() {
		s.Servers = append(s.Servers, gpu.MPSServer{PID: int(server.GetPid()), State: server.GetState(), Clients: int(server.GetClients())})
	}
	return s
}

func encodeState(s gpu.MPSState) State {
	switch s {
	case gpu.MPSReady:
		return State_STATE_READY
	case gpu.MPSStarting:
		return State_STATE_STARTING
	case gpu.MPSFailed:
		return State_STATE_FAILED
	default:
		return State_STATE_UNSPECIFIED
	}
}

// decodeState returns the failed state for a state that this release does not know:
// the daemon may not be ready.
func decodeState(s State) gpu.MPSState {
	switch s {
	case State_STATE_READY:
		return gpu.MPSReady
	case State_STATE_STARTING:
		return gpu.MPSStarting
	case State_STATE_FAILED, State_STATE_UNSPECIFIED:
		fallthrough
	default:
		return gpu.MPSFailed
	}
}
