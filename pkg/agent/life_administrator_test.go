// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
	"github.com/gpu-dra/gpu-dra-driver/simulator/simerr"
)

// reset resets a GPU on which nothing computes, as an administrator does by hand.
func (s *life) reset(which, _ int) error {
	index, device, err := s.gpuAt(which)
	if err != nil || s.lost || s.faulty[device] || len(s.damaged) > 0 {
		return err
	}
	err = s.sim.ResetGPU(index)
	if errors.Is(err, simerr.ErrInUse) {
		return nil
	}
	s.disturbed, s.wasReset = time.Now(), time.Now()
	s.note("GPU %d is reset by hand", index)
	if s.handmade != nil && kind.Whole(s.handmade.Address).String() == device {
		s.forgetCut()
	}
	return err
}

// cut makes a MIG device by hand, as nvidia-smi does, on a GPU with one of a claim, or destroys the last one.
func (s *life) cut(which, how int) error {
	switch {
	case s.lost:
		return nil
	case s.handmade != nil:
		return s.uncut()
	case s.agent == nil, time.Now().Before(s.gpuSlowUntil):
		return nil
	}
	c, err := s.cutClaim(which)
	if c == nil || err != nil {
		return err
	}
	name, err := kind.Parse(c.Status.Allocation.Devices.Results[0].Device)
	if err != nil {
		return err
	}
	mig, err := s.agent.node.hardware.MIG(s.t.Context(), name.Address)
	if err != nil || !mig.Enabled { // a round enables it again after a reset
		return err
	}
	for _, made := range s.places(name.Address, mig) {
		_, err := s.agent.node.hardware.CreatePartition(s.t.Context(), made.Address, made.Profile, made.Start)
		if errors.Is(err, gpu.ErrNoCapacity) {
			continue
		}
		s.note("an administrator makes %s", made)
		s.handmade, s.cutAt = &made, time.Now()
		if err != nil || how < 4 {
			return err
		}
		s.pass(repairTime)
		return s.fill()
	}
	return nil
}

// fill creates as many claims of MIG devices as the scheduler allows, and prepares them.
func (s *life) fill() error {
	for which := range claimNames {
		if err := s.createNamed(fmt.Sprintf("c%d", which), requests()[2]); err != nil {
			return err
		}
	}
	return s.prepareAll(0, 0)
}

// cutClaim returns a prepared claim with a MIG device. If there is none, it creates and prepares one. It returns nil
// if the node cannot.
func (s *life) cutClaim(which int) (*livingClaim, error) {
	isCut := func(c *livingClaim) bool {
		name, err := kind.Parse(c.Status.Allocation.Devices.Results[0].Device)
		return err == nil && c.prepared && name.IsPartition()
	}
	if c := s.oneOf(which, isCut); c != nil {
		return c, nil
	}
	name := fmt.Sprintf("c%d", which)
	if err := s.createNamed(name, requests()[2]); err != nil || s.claims[name] == nil {
		return nil, err
	}
	err := s.prepareIn(s.claims[name])
	return s.oneOf(which, isCut), err
}

// places returns the MIG devices that a GPU lacks and no claim needs.
func (s *life) places(address gpu.PCIAddress, mig gpu.MIG) []kind.Name {
	var free []kind.Name
	for _, profile := range mig.Profiles {
		for _, place := range profile.Placements {
			name := kind.Partition(address, profile.Profile, place.Start)
			isThere := slices.ContainsFunc(mig.Partitions, func(p gpu.Partition) bool { return p.Profile == profile.Profile && p.Placement == place })
			if !isThere && !s.isNeeded(name) {
				free = append(free, name)
			}
		}
	}
	return free
}

// uncut destroys the MIG device that was made by hand.
func (s *life) uncut() error {
	if s.handmade == nil {
		return nil
	}
	made := *s.handmade
	s.note("an administrator destroys %s", made)
	s.forgetCut()
	hw := open(s.t, s.n.Config, s.model, s.n.SimState)
	err := hw.DestroyPartition(s.t.Context(), made.Address, made.Profile, made.Start)
	for errors.Is(err, gpu.ErrTimeout) { // nvidia-smi waits for the driver
		s.pass(time.Minute)
		err = hw.DestroyPartition(s.t.Context(), made.Address, made.Profile, made.Start)
	}
	return errors.Join(err, hw.close())
}

// forgetCut notes that the MIG device that was made by hand is gone.
func (s *life) forgetCut() {
	if s.handmade != nil {
		s.handmade, s.cutAt, s.disturbed = nil, time.Now(), time.Now()
	}
}

// knowsCuts reports whether the node has scanned its GPUs since a MIG device last came or went by hand, for which
// there is no event.
func (s *life) knowsCuts() bool { return time.Since(s.cutAt) >= repairTime }

// isNeeded reports whether a claim that may be prepared needs the place of a MIG device.
func (s *life) isNeeded(made kind.Name) bool {
	for _, c := range slices.Concat(slices.Collect(maps.Values(s.claims)), s.forgotten) {
		if (c.prepared || c.unsure) && s.excludes(c, made) {
			return true
		}
	}
	return slices.ContainsFunc(s.containers, func(one *container) bool { return s.excludes(one.claim, made) })
}

// isOnHandmade reports whether a claim has a part of what was cut off by hand.
func (s *life) isOnHandmade(c *livingClaim) bool {
	return s.handmade != nil && s.excludes(c, *s.handmade)
}

// excludes reports whether a claim has a device of which another has a part.
func (s *life) excludes(c *livingClaim, other kind.Name) bool {
	return slices.ContainsFunc(c.Status.Allocation.Devices.Results, func(r resourceapi.DeviceRequestAllocationResult) bool {
		name, err := kind.Parse(r.Device)
		return err == nil && kind.Excludes(s.partitions[other.Address], kind.Holding{Name: name, Share: r.ShareID != nil}, kind.Holding{Name: other})
	})
}

// setClock sets the machine's clock, which the next agent sees, also while a GPU has a fault, which is then repaired.
func (s *life) setClock(which, how int) error {
	if s.disk.fails() || time.Since(s.disk.worked) <= repairTime {
		return nil // the next agent may find a fault whose end was not recorded, and a repair of another time
	}
	if how >= 4 {
		if err := s.report(which, 0); err != nil {
			return err
		}
	}
	if s.agent != nil {
		if err := s.stop(0, 0); err != nil {
			return err
		}
	}
	s.ahead = []time.Duration{0, time.Hour, 400 * 24 * time.Hour, -50 * 365 * 24 * time.Hour}[how%4]
	s.note("the clock is ahead by %v", s.ahead)
	if err := s.start(); err != nil || how < 4 {
		return err
	}
	s.pass(soon)
	return s.repair(which, 1)
}
