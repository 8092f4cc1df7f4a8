// SPDX-License-Identifier: Apache-2.0

package nvmlsim

import (
	"fmt"

	"github.com/gpu-dra/gpu-dra-driver/simulator/simerr"
)

// FailMPSStarts lets the start of the next count MPS control daemons fail. If count
// is 0, all starts fail until faults are cleared.
func (s *Sim) FailMPSStarts(count int) error {
	if count < 0 {
		return fmt.Errorf("fail %d starts of MPS daemons: %w: a count is not negative", count, simerr.ErrInvalid)
	}
	return s.update(func(st *State) error {
		st.MPSStartFailures = count
		if count == 0 {
			st.MPSStartFailures = -1
		}
		return nil
	})
}

// StartMPSDaemon is called by a daemon that comes up. It is [simerr.ErrNotReady]
// for one that is to fail.
func (s *Sim) StartMPSDaemon() error {
	st, err := s.load()
	if err != nil || st.MPSStartFailures == 0 {
		return err
	}
	failed := false
	err = s.update(func(st *State) error {
		failed = st.MPSStartFailures != 0
		if st.MPSStartFailures > 0 {
			st.MPSStartFailures--
		}
		return nil
	})
	if err == nil && failed {
		err = fmt.Errorf("start the MPS control daemon: %w: a simulated fault keeps it from coming up", simerr.ErrNotReady)
	}
	return err
}

// ChargeMPSServers makes the driver count the memory of MPS clients in the cgroup of their
// server. Without it the memory counts in the client's cgroup. The fault lasts until
// faults are cleared. Release 615 was measured to count it in the client's cgroup (with
// the controller dmem); for other drivers nothing is published. It applies to allocations
// from then on.
func (s *Sim) ChargeMPSServers() error {
	return s.update(func(st *State) error {
		st.MPSServersCharged = true
		return nil
	})
}
