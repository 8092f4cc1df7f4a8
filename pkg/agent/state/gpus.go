// SPDX-License-Identifier: Apache-2.0

package state

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/cause"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/use"
)

// DeviceHealth is the health of a device.
type DeviceHealth struct {
	Name kind.Name
	// UUID of its GPU; empty for a device that is all GPUs.
	UUID    string
	Healthy bool
	// Cause is the value of the taint of an unhealthy device, such as "xid-79" or
	// "lost". It is empty if the device is healthy.
	Cause string
	// Message says the same in a sentence.
	Message string
}

// Ready reports whether the node can be published: its hardware was scanned, the external
// allocations and the features of the cluster were read, and the configuration follows from
// this hardware.
func (s Snapshot) Ready() bool {
	return s.Hardware.Scanned && s.Conditions.ExternalKnown && s.Features.Known &&
		s.Configuration.Known && s.Configuration.Hardware == s.Revisions.Hardware
}

// Node returns each GPU that has answered since the agent started, without the changes
// of claims. The order is by PCI address. For a GPU that does not answer now, it
// returns the last answer, without links. Unreadable has the GPUs that have never
// answered.
func (s Snapshot) Node() gpu.Node {
	node := gpu.Node{DriverVersion: s.Hardware.DriverVersion, CUDADriverVersion: s.Hardware.CUDADriverVersion}
	for _, u := range s.Hardware.Unreadable {
		if _, known := s.sighting(u.Address); !known {
			node.Unreadable = append(node.Unreadable, u)
		}
	}
	for _, sighting := range s.Hardware.GPUs {
		g := s.described(sighting)
		if sighting.Err != nil {
			g.Links = []gpu.Link{} // none that others could use
		}
		node.GPUs = append(node.GPUs, g)
	}
	return node
}

// described returns a GPU without the changes of claims, and with what the node supports.
func (s Snapshot) described(sighting Sighting) gpu.GPU {
	g := sighting.unclaimed()
	if why := s.Fixed.NoMemoryLimits; g.MemoryLimits && why != nil {
		g.MemoryLimits, g.NoMemoryLimits = false, why.Error()
	}
	return g
}

// known returns a GPU as described, with its conditions.
func (s Snapshot) known(sighting Sighting) use.GPU {
	g := use.GPU{GPU: s.described(sighting)}
	// NVIDIA requires a GPU that is not in MIG mode.
	g.MPSNamespaces = s.Conditions.MPSNamespaces && !g.MIG.Enabled
	g.External = s.Conditions.External
	g.Cordoned = slices.Contains(s.Conditions.Cordoned, g.Address.DeviceName())
	g.Cause, _ = s.problem(sighting)
	switch f, faulty := s.fault(g.UUID); {
	case faulty:
		g.Fault = s.refusal(g.Address, f.Message, f.Decisive)
	case use.Fabric(g.FabricState) != "":
		value := use.Fabric(g.FabricState)
		g.Fault = s.refusal(g.Address, fabricMessage(g.FabricState)+": "+cause.Unhealthy(value).Effect, value)
	}
	return g
}

// refusal returns why claims are refused on a GPU, and what to do: the remedy of the cause
// with that value.
func (s Snapshot) refusal(address gpu.PCIAddress, message, value string) string {
	c := cause.Unhealthy(value).For(s.Fixed.Node, address.DeviceName(), address.String())
	return fmt.Sprintf("%s; recreate the pod, so that it gets another GPU; the administrator's remedy: %s", message, c.Admin)
}

// fabricMessage describes a fabric that keeps claims from its GPU.
func fabricMessage(state gpu.FabricState) string {
	if state == gpu.FabricFailed {
		return cause.Unhealthy(use.Fabric(state)).Message()
	}
	return fmt.Sprintf("%s (%s)", cause.Unhealthy(use.Fabric(state)).Message(), state)
}

// conditions returns the conditions of each GPU that has answered.
func (s Snapshot) conditions() catalog.Conditions {
	all := catalog.Conditions{}
	for _, sighting := range s.Hardware.GPUs {
		all[sighting.GPU.Address] = s.known(sighting).Conditions
	}
	return all
}

// ExternalHolder returns the pod ("namespace/name") that has the device, or a part of it,
// through a device plugin. It returns "" if there is none.
func (s Snapshot) ExternalHolder(name kind.Name) string {
	sighting, known := s.sighting(&name.Address)
	if !known || !name.OnGPU() {
		return ""
	}
	return s.known(sighting).ExternalHolder(name)
}

// sighting returns the GPU at the address; known is false for nil too.
func (s Snapshot) sighting(address *gpu.PCIAddress) (found Sighting, known bool) {
	if address == nil {
		return found, false
	}
	at := slices.IndexFunc(s.Hardware.GPUs, func(seen Sighting) bool { return seen.GPU.Address == *address })
	if at < 0 {
		return found, false
	}
	return s.Hardware.GPUs[at], true
}

// fault returns the fault of a GPU.
func (s Snapshot) fault(uuid string) (f Fault, faulty bool) {
	at := slices.IndexFunc(s.Conditions.Faults, func(f Fault) bool { return f.UUID == uuid })
	if at < 0 {
		return f, false
	}
	return s.Conditions.Faults[at], true
}

// Answering returns the GPUs that answer, in order of the PCI address.
func (s Snapshot) Answering() []use.GPU {
	var gpus []use.GPU
	for _, sighting := range s.Hardware.GPUs {
		if sighting.Err == nil {
			gpus = append(gpus, s.known(sighting))
		}
	}
	return gpus
}

// Health returns the health of each GPU that has answered, in order of the PCI address.
func (s Snapshot) Health() []DeviceHealth {
	devices := []DeviceHealth{}
	for _, sighting := range s.Hardware.GPUs {
		d := DeviceHealth{Name: kind.Whole(sighting.GPU.Address), UUID: sighting.GPU.UUID}
		d.Cause, d.Message = s.problem(sighting)
		d.Healthy = d.Cause == ""
		devices = append(devices, d)
	}
	return devices
}

// problem returns why new claims must not get a GPU: the first reason as the value of
// a taint, and all reasons as a message. Both are empty for a healthy GPU.
func (s Snapshot) problem(sighting Sighting) (value, message string) {
	var values, all []string
	if f, faulty := s.fault(sighting.GPU.UUID); faulty {
		values, all = append(values, f.Cause), append(all, f.Message)
	}
	if sighting.Err != nil {
		value := use.Silence(sighting.Err)
		values, all = append(values, value), append(all, fmt.Sprintf("%s: %s", cause.Unhealthy(value).Message(), sighting.Err))
	} else if fabric := sighting.GPU.FabricState; use.Fabric(fabric) != "" {
		values, all = append(values, use.Fabric(fabric)), append(all, fabricMessage(fabric))
	}
	if len(values) == 0 {
		return "", ""
	}
	return values[0], strings.Join(all, "; ")
}

// CauseAt returns the value of the taint of the GPU at the address, and its time. Both are
// zero for a healthy GPU, and the time is zero if it is not recorded. known is false until a
// scan has succeeded. A GPU of a claim that the driver does not list is lost.
func (s Snapshot) CauseAt(address gpu.PCIAddress) (value string, since time.Time, known bool) {
	if sighting, found := s.sighting(&address); found {
		value, _ = s.problem(sighting)
		if f, faulty := s.fault(sighting.GPU.UUID); faulty {
			since = f.Since
		}
		return value, since, true
	}
	for _, f := range s.Conditions.Faults {
		if f.Address == address.String() {
			return f.Cause, f.Since, true
		}
	}
	if !s.Hardware.Succeeded || s.Hardware.Err != nil {
		return "", time.Time{}, false
	}
	for _, u := range s.Hardware.Unreadable {
		if u.Address != nil && *u.Address == address {
			return use.Silence(u.Err), time.Time{}, true
		}
	}
	return use.Silence(gpu.ErrLost), time.Time{}, true
}

// AllGPUs returns the health of a device that is all GPUs. It is healthy while one
// of them answers.
func (s Snapshot) AllGPUs(name kind.Name) DeviceHealth {
	if len(s.Answering()) == 0 {
		return DeviceHealth{Name: name, Cause: use.Silence(gpu.ErrLost), Message: "no GPU of the node answers"}
	}
	return DeviceHealth{Name: name, Healthy: true}
}

// Missing returns why GPUs do not answer; nil if all do.
func (s Snapshot) Missing() error {
	errs := []error{s.Hardware.Err}
	silent := map[gpu.PCIAddress]error{}
	for _, u := range s.Hardware.Unreadable {
		if u.Address == nil {
			errs = append(errs, u.Problem())
			continue
		}
		silent[*u.Address] = u.Err
	}
	for _, sighting := range s.Hardware.GPUs {
		if s.Hardware.Err == nil && sighting.Err != nil {
			silent[sighting.GPU.Address] = sighting.Err
		}
	}
	for _, address := range slices.SortedFunc(maps.Keys(silent), gpu.PCIAddress.Compare) {
		errs = append(errs, fmt.Errorf("GPU at %s: %w", address, silent[address]))
	}
	return errors.Join(errs...)
}

// Topology returns the missing or contradictory facts about the place and the links
// of answering GPUs. It returns nil if there are none.
func (s Snapshot) Topology() error {
	silent := func(address gpu.PCIAddress) bool {
		sighting, known := s.sighting(&address)
		return known && sighting.Err != nil ||
			slices.ContainsFunc(s.Hardware.Unreadable, func(u gpu.Unreadable) bool { return u.Address == nil || *u.Address == address })
	}
	var answering []gpu.GPU
	for _, g := range s.Answering() {
		answering = append(answering, g.GPU)
	}
	return errors.Join(s.Hardware.Incomplete, gpu.CheckNVLinks(answering, silent))
}

// Faults returns the faults of GPUs that answer, and of GPUs that have never answered. It
// returns nil if there are none.
func (s Snapshot) Faults() error {
	var errs []error
	seen := map[string]bool{}
	for _, sighting := range s.Hardware.GPUs {
		seen[sighting.GPU.UUID] = true
		if _, message := s.problem(sighting); message != "" && sighting.Err == nil {
			errs = append(errs, fmt.Errorf("GPU at %s: %s", sighting.GPU.Address, message))
		}
	}
	for _, f := range s.Conditions.Faults {
		if !seen[f.UUID] {
			errs = append(errs, fmt.Errorf("GPU %s at %s: %s", f.UUID, cmp.Or(f.Address, "an unknown address"), f.Message))
		}
	}
	return errors.Join(errs...)
}

// String returns a line such as "NoDriver; load libnvidia-ml.so.1: not ready".
func (s Snapshot) String() string {
	var line string
	switch {
	case len(s.Hardware.GPUs) > 0:
		line = fmt.Sprintf("%d of %d GPUs answer", len(s.Answering()), len(s.Hardware.GPUs))
	case errors.Is(s.Hardware.Err, gpu.ErrNotReady):
		line = "NoDriver"
	case s.Hardware.Err != nil || !s.Hardware.Scanned:
		line = "Looking"
	default:
		line = "NoGPUs"
	}
	if err := errors.Join(s.Missing(), s.Faults()); err != nil {
		line += "; " + strings.ReplaceAll(err.Error(), "\n", "; ")
	}
	return line
}

// GPU returns the GPU at the address as of its last scan, without the changes of claims. It
// waits for the first scan that succeeds. If ctx ends before, the error wraps
// [gpu.ErrNotReady] and describes the state of the node. It returns [gpu.ErrNotFound] if
// the node has no such GPU, and [gpu.ErrLost], [gpu.ErrTimeout] or [gpu.ErrNotReady] if the
// GPU does not answer.
func (s *State) GPU(ctx context.Context, address gpu.PCIAddress) (use.GPU, error) {
	now, err := s.scanned(ctx)
	if err != nil {
		return use.GPU{}, fmt.Errorf("GPU at %s: %w", address, err)
	}
	sighting, known := now.sighting(&address)
	switch {
	case known && sighting.Err == nil:
		return now.known(sighting), nil
	case known:
		return use.GPU{}, fmt.Errorf("GPU at %s does not answer: %w", address, sighting.Err)
	}
	if err := gpu.WhyUnreadable(now.Hardware.Unreadable, address); err != nil {
		return use.GPU{}, fmt.Errorf("GPU at %s does not answer: %w", address, err)
	}
	return use.GPU{}, fmt.Errorf("GPU at %s: %w on this node", address, gpu.ErrNotFound)
}

// GPUs returns the GPUs that answer, in order of the PCI address. Each is as GPU returns
// it, and GPUs waits as GPU does. The error wraps [gpu.ErrNotReady] if there are none.
func (s *State) GPUs(ctx context.Context) ([]use.GPU, error) {
	now, err := s.scanned(ctx)
	if err != nil {
		return nil, fmt.Errorf("GPUs of the node: %w", err)
	}
	gpus := now.Answering()
	if len(gpus) == 0 {
		return nil, fmt.Errorf("GPUs of the node: %w: none answers: %s", gpu.ErrNotReady, now)
	}
	return gpus, nil
}

// scanned returns the state after the first scan that succeeds.
func (s *State) scanned(ctx context.Context) (Snapshot, error) {
	now := s.Snapshot()
	if now.Hardware.Succeeded {
		return now, nil
	}
	changed, cancel := s.Subscribe()
	defer cancel()
	for now = s.Snapshot(); !now.Hardware.Succeeded; now = s.Snapshot() {
		select {
		case <-changed:
		case <-ctx.Done():
			return now, fmt.Errorf("%w: %s", gpu.ErrNotReady, now)
		}
	}
	return now, nil
}
