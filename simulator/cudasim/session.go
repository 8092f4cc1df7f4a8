// SPDX-License-Identifier: Apache-2.0

package cudasim

import (
	"encoding/json"
	"math"
	"net"

	"github.com/gpu-dra/gpu-dra-driver/simulator/mpssim"
	"github.com/gpu-dra/gpu-dra-driver/simulator/nvmlsim"
)

// calls are the calls of a process on its connection.
type calls struct {
	decoder *json.Decoder
	encoder *json.Encoder
}

func newCalls(conn net.Conn) calls {
	return calls{decoder: json.NewDecoder(conn), encoder: json.NewEncoder(conn)}
}

// refuse replies to the first call with an error. The process may have gone.
func (c calls) refuse(e *mpssim.Error) {
	var r Request
	if c.decoder.Decode(&r) == nil {
		_ = c.encoder.Encode(Reply{Error: e})
	}
}

// serve replies to all calls until the connection ends.
func (c calls) serve(s *session) {
	for {
		var r Request
		if c.decoder.Decode(&r) != nil {
			return
		}
		reply, e := s.handle(r)
		reply.Error = e
		if c.encoder.Encode(reply) != nil {
			return
		}
	}
}

// session is a connection of a process.
type session struct {
	service *service
	pid     int
	// devices by ordinal; nil before CUDA is initialised.
	devices []nvmlsim.ComputeDevice
}

func (s *session) handle(r Request) (Reply, *mpssim.Error) {
	switch r.Op {
	case opInit:
		return s.initialise()
	case opAlloc, opFree, opInfo:
	default:
		return Reply{}, fail(errInvalidValue, "operation %q", r.Op)
	}
	switch {
	case s.devices == nil:
		return Reply{}, fail(errNotInitialized, "operation %q before %q", r.Op, opInit)
	case r.Device < 0 || r.Device >= len(s.devices):
		return Reply{}, fail(errInvalidDevice, "device %d: there are %d", r.Device, len(s.devices))
	case r.Bytes > math.MaxInt64/2:
		return Reply{}, fail(errOutOfMemory, "%d MiB wanted", r.Bytes>>20)
	}
	device, bytes := s.devices[r.Device], int64(r.Bytes)
	switch r.Op {
	case opFree:
		bytes = -bytes
	case opInfo:
		bytes = 0
	}
	used, err := s.service.change(s.pid, device, bytes)
	if err != nil {
		return Reply{}, refusal(err)
	}
	if r.Op != opInfo {
		return Reply{UsedBytes: &used}, nil
	}
	total, free, err := s.service.sim.MemoryInfo(s.pid, device.UUID)
	if err != nil {
		return Reply{}, refusal(err)
	}
	return Reply{Memory: &mpssim.Memory{TotalBytes: total, FreeBytes: free}}, nil
}

// initialise finds the devices of the process.
func (s *session) initialise() (Reply, *mpssim.Error) {
	rules, err := deviceRules(s.pid)
	if err != nil {
		return Reply{}, refusal(err)
	}
	devices, err := s.service.sim.VisibleDevices(s.service.options.root(s.pid), rules.canOpen)
	if err != nil {
		return Reply{}, refusal(err)
	}
	if len(devices) == 0 {
		return Reply{}, fail(errNoDevice, "the process has no device nodes of a GPU, or may not open them")
	}
	var reply Reply
	for i, d := range devices {
		if d.NotReady != "" {
			return Reply{}, fail(errSystemNotReady, "%s: %s", d.UUID, d.NotReady)
		}
		reply.Devices = append(reply.Devices, Device{Ordinal: i, UUID: d.UUID, Name: d.Name, MemoryBytes: d.MemoryBytes, Multiprocessors: d.Multiprocessors})
	}
	s.devices = devices
	return reply, nil
}
