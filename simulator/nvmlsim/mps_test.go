// SPDX-License-Identifier: Apache-2.0

package nvmlsim

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-dra/gpu-dra-driver/simulator/simerr"
)

func mpsNode(t *testing.T, model string) *Sim {
	t.Helper()
	m, err := LoadModel(model)
	noError(t, err)
	s, err := Create(t.TempDir(), m)
	noError(t, err)
	return s
}

func processesOf(t *testing.T, s *Sim) []int {
	t.Helper()
	st, err := s.State()
	noError(t, err)
	var pids []int
	for _, g := range st.GPUs {
		for _, p := range g.Processes {
			pids = append(pids, p.PID)
		}
	}
	return pids
}

func TestAnMPSServerEndsWithItsDaemon(t *testing.T) {
	s := mpsNode(t, "t4")
	end, err := s.RegisterMPSDaemon("a", []byte("one"))
	noError(t, err)
	if _, err := s.RegisterMPSDaemon("a", []byte("two")); !errors.Is(err, simerr.ErrInUse) {
		t.Errorf("a second daemon of the name: %v", err)
	}
	uuids := []string{s.node.gpus[0].uuid, s.node.gpus[1].uuid}
	noError(t, s.SetMPSServer(MPSServer{PID: 7, Daemon: "a", Memory: map[string]uint64{uuids[0]: 1, uuids[1]: 2}}))
	noError(t, s.AddProcess(0, Process{PID: 8}))
	if diff := cmp.Diff([]int{7, 8, 7}, processesOf(t, s)); diff != "" {
		t.Errorf("processes (-want +got):\n%s", diff)
	}
	end()
	if diff := cmp.Diff([]int{8}, processesOf(t, s)); diff != "" {
		t.Errorf("after the daemon's end (-want +got):\n%s", diff)
	}
	daemons, err := s.MPSDaemons()
	if diff := cmp.Diff([]MPSRegistration{{Name: "a", Data: []byte("one")}}, daemons); diff != "" || err != nil {
		t.Errorf("daemons: %v (-want +got):\n%s", err, diff)
	}
	end, err = s.RegisterMPSDaemon("a", []byte("3"))
	noError(t, err)
	defer end()
	if diff := cmp.Diff([]int{8}, processesOf(t, s)); diff != "" {
		t.Errorf("with the next daemon of the name (-want +got):\n%s", diff)
	}
}

func TestAnMPSServerHasAllItsDevicesOrNone(t *testing.T) {
	s := mpsNode(t, "t4")
	end, err := s.RegisterMPSDaemon("a", nil)
	noError(t, err)
	defer end()
	noError(t, s.SetComputeMode(1, ComputeModeProhibited))
	both := MPSServer{PID: 7, Daemon: "a", Memory: map[string]uint64{s.node.gpus[0].uuid: 1, s.node.gpus[1].uuid: 1}}
	if err := s.SetMPSServer(both); !errors.Is(err, simerr.ErrInUse) {
		t.Errorf("got %v", err)
	}
	if got := processesOf(t, s); got != nil {
		t.Errorf("it holds %v", got)
	}
	if err := s.SetMPSServer(MPSServer{PID: 7, Daemon: "a", Memory: map[string]uint64{"GPU-nobody": 1}}); !errors.Is(err, simerr.ErrNotFound) {
		t.Errorf("got %v", err)
	}
}

func TestAGPUInMIGModeHasNoTimeSliceAndNoComputeMode(t *testing.T) {
	m, err := LoadModel("dgx-h100")
	noError(t, err)
	m.GPUs[1].MIGMode = true
	s, err := Create(t.TempDir(), m)
	noError(t, err)
	for what, err := range map[string]error{
		"time slice":   s.SetTimeSlice(1, TimeSliceLong),
		"compute mode": s.SetComputeMode(1, ComputeModeExclusiveProcess),
	} {
		if !errors.Is(err, simerr.ErrNotSupported) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := s.SetTimeSlice(0, "Eternal"); !errors.Is(err, simerr.ErrInvalid) {
		t.Errorf("got %v", err)
	}
}

func TestATimeSliceIsGoneAfterAReboot(t *testing.T) {
	s := mpsNode(t, "t4")
	noError(t, s.SetTimeSlice(0, TimeSliceMedium))
	if got, err := s.TimeSlice(0); err != nil || got != TimeSliceMedium {
		t.Errorf("got %q, %v", got, err)
	}
	noError(t, s.Reboot())
	if got, err := s.TimeSlice(0); err != nil || got != TimeSliceDefault {
		t.Errorf("after a reboot: %q, %v", got, err)
	}
}
