// SPDX-License-Identifier: Apache-2.0

package state_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/state"
	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

// changed reports whether the channel has an item.
func changed(channel <-chan struct{}) bool {
	select {
	case <-channel:
		return true
	default:
		return false
	}
}

func TestSubscribersAreNotifiedOfOtherValuesOnly(t *testing.T) {
	s := state.New(state.Fixed{})
	s.Features.Set(state.Features{OldVersion: "v1.34.0"})
	signal, cancel := s.Subscribe()
	defer cancel()
	before := s.Revisions()
	s.Features.Set(state.Features{OldVersion: "v1.34.0"})
	s.Conditions.Set(state.Conditions{})
	if changed(signal) || s.Revisions() != before {
		t.Errorf("equal values count as a change: %+v", s.Revisions())
	}
	s.Conditions.Set(state.Conditions{Repairs: errors.New("no such GPU")})
	if now := s.Revisions(); !changed(signal) || now.Conditions != before.Conditions+1 || now.Features != before.Features {
		t.Errorf("revisions %+v after a change of the conditions; before %+v", now, before)
	}
	s.Conditions.Set(state.Conditions{Repairs: fmt.Errorf("no such %w", errors.New("GPU"))})
	if changed(signal) {
		t.Error("an error with the same text counts as a change")
	}
}

func TestValuesThatDifferAreNotEqual(t *testing.T) {
	problem, device := errors.New("a problem"), kind.Whole(gpu.PCIAddress{Bus: 1})
	silent := []state.Sighting{{Err: problem}}
	for name, equal := range map[string]bool{
		"a failed scan":            state.Hardware{}.Equal(state.Hardware{Err: problem}),
		"missing facts":            state.Hardware{}.Equal(state.Hardware{Incomplete: problem}),
		"a silent GPU":             state.Hardware{GPUs: []state.Sighting{{}}}.Equal(state.Hardware{GPUs: silent}),
		"another GPU":              state.Hardware{GPUs: silent}.Equal(state.Hardware{GPUs: []state.Sighting{{GPU: gpu.GPU{UUID: "GPU-1"}, Err: problem}}}),
		"an unreadable GPU":        state.Hardware{Unreadable: []gpu.Unreadable{{}}}.Equal(state.Hardware{Unreadable: []gpu.Unreadable{{Err: problem}}}),
		"a cordoned GPU":           state.Conditions{}.Equal(state.Conditions{Cordoned: []string{"gpu-01-00"}}),
		"a held device":            state.Claimed{}.Equal(state.Claimed{Changes: state.Changes{Held: catalog.Held{device: false}}}),
		"a contested device":       state.Claimed{}.Equal(state.Claimed{InUse: catalog.InUse{device: "foreign-process"}}),
		"a taken device":           state.Claimed{}.Equal(state.Claimed{Taken: catalog.Taken{"gpu-01-00": {Whole: true}}}),
		"a problem of inputs":      state.Configuration{}.Equal(state.Configuration{Problem: problem}),
		"another configuration":    state.Configuration{}.Equal(state.Configuration{Followed: catalog.NodeRecord{Config: catalog.NodeConfig{Offer: "share"}}}),
		"a cluster without shares": state.Features{}.Equal(state.Features{Restrictions: catalog.Restrictions{Exclusive: true}}),
	} {
		if equal {
			t.Errorf("%s: the values are equal", name)
		}
	}
}

// A configuration that follows from other hardware could withdraw devices for a moment.
func TestANodeIsReadyOnceItsConfigurationFollowsFromTheHardware(t *testing.T) {
	s := state.New(state.Fixed{})
	s.Features.Set(state.Features{Known: true})
	s.Conditions.Set(state.Conditions{ExternalKnown: true})
	want := func(when string, ready bool) {
		t.Helper()
		if got := s.Snapshot().Ready(); got != ready {
			t.Errorf("%s: ready is %t", when, got)
		}
	}
	follow := func() {
		s.Configuration.Set(state.Configuration{Known: true, Hardware: s.Revisions().Hardware})
	}
	want("before the first scan", false)
	s.Hardware.Set(state.HardwareOf(gpu.Node{DriverVersion: "570"}))
	want("before the configuration", false)
	follow()
	want("with both", true)
	s.Hardware.Set(state.HardwareOf(gpu.Node{DriverVersion: "615"}))
	want("after another scan", false)
	follow()
	want("after the configuration follows it", true)
	s.Features.Set(state.Features{})
	want("before the version of the API server is requested", false)
}

func TestASnapshotDoesNotChange(t *testing.T) {
	s := state.New(state.Fixed{})
	s.Hardware.Set(state.HardwareOf(gpu.Node{DriverVersion: "570"}))
	before := s.Snapshot()
	s.Hardware.Set(state.HardwareOf(gpu.Node{DriverVersion: "615"}))
	if before.Hardware.DriverVersion != "570" || s.Snapshot().Hardware.DriverVersion != "615" {
		t.Errorf("versions %s and %s", before.Hardware.DriverVersion, s.Snapshot().Hardware.DriverVersion)
	}
}

// A node is published as it would be without claims.
func TestTheChangesOfClaimsAreLeftOut(t *testing.T) {
	address := gpu.PCIAddress{Bus: 1}
	profile := gpu.Profile{Slices: 1, MemoryGB: 10}
	mig := gpu.GPU{
		Address: address, ComputeMode: gpu.ComputeModeExclusiveProcess,
		MIG: gpu.MIG{Enabled: true, PendingEnabled: true, Partitions: []gpu.Partition{
			{Profile: profile, Placement: gpu.Placement{Start: 0, Size: 1}, UUID: "MIG-held"},
			{Profile: profile, Placement: gpu.Placement{Start: 1, Size: 1}, UUID: "MIG-kept"},
			{Profile: profile, Placement: gpu.Placement{Start: 2, Size: 1}, UUID: "MIG-administrator"},
		}},
	}
	whole := mig
	whole.MIG.Partitions = mig.MIG.Partitions[:2]
	theirs := state.Changes{
		Held: catalog.Held{kind.Partition(address, profile, 0): false}, Kept: map[string]bool{"MIG-kept": true},
		MIGModes: map[gpu.PCIAddress]bool{address: true}, Exclusive: map[gpu.PCIAddress]bool{address: true},
	}
	for name, tc := range map[string]struct {
		gpu     gpu.GPU
		changes state.Changes
		want    gpu.GPU
	}{
		"a node without claims":             {mig, state.Changes{}, mig},
		"claims and an administrator share": {mig, theirs, gpu.GPU{Address: address, ComputeMode: gpu.ComputeModeDefault, MIG: gpu.MIG{Enabled: true, PendingEnabled: true, Partitions: mig.MIG.Partitions[2:]}}},
		"only claims":                       {whole, theirs, gpu.GPU{Address: address, ComputeMode: gpu.ComputeModeDefault}},
		"an administrator's modes": {whole, state.Changes{Held: theirs.Held, Kept: theirs.Kept},
			gpu.GPU{Address: address, ComputeMode: gpu.ComputeModeExclusiveProcess, MIG: gpu.MIG{Enabled: true, PendingEnabled: true}}},
	} {
		t.Run(name, func(t *testing.T) {
			s := state.New(state.Fixed{})
			read := slices.Clone(tc.gpu.MIG.Partitions)
			s.Hardware.Set(state.Hardware{Scanned: true, Succeeded: true, GPUs: []state.Sighting{{GPU: tc.gpu, Changes: tc.changes}}})
			require.Same(t, "published", []gpu.GPU{tc.want}, s.Snapshot().Node().GPUs)
			if got, err := s.GPU(t.Context(), address); err != nil || !cmp.Equal(tc.want, got.GPU) {
				t.Errorf("for claims: %v, %v", cmp.Diff(tc.want, got.GPU), err)
			}
			require.Same(t, "the hardware was changed", read, s.Hardware.Get().GPUs[0].GPU.MIG.Partitions)
		})
	}
}

// A claim may come or go while the GPUs are read.
func TestChangesDuringAScan(t *testing.T) {
	one, two := gpu.PCIAddress{Bus: 1}, gpu.PCIAddress{Bus: 2}
	before := state.Changes{Held: catalog.Held{kind.Whole(one): false}, Kept: map[string]bool{"MIG-1": true}, MIGModes: map[gpu.PCIAddress]bool{one: true}}
	after := state.Changes{Held: catalog.Held{kind.Whole(two): true}, Exclusive: map[gpu.PCIAddress]bool{two: true}}
	want := state.Changes{
		Held: catalog.Held{kind.Whole(one): false, kind.Whole(two): true}, Kept: map[string]bool{"MIG-1": true},
		MIGModes: map[gpu.PCIAddress]bool{one: true}, Exclusive: map[gpu.PCIAddress]bool{two: true},
	}
	require.Same(t, "during the scan", want, state.During(before, after))
}

// NVIDIA's namespaces require a GPU that is not in MIG mode.
func TestAGPUInMIGModeHasNoNamespaces(t *testing.T) {
	whole, mig := gpu.PCIAddress{Bus: 1}, gpu.PCIAddress{Bus: 2}
	s := state.New(state.Fixed{})
	s.Conditions.Set(state.Conditions{MPSNamespaces: true})
	s.Hardware.Set(state.Hardware{Scanned: true, Succeeded: true, GPUs: []state.Sighting{
		{GPU: gpu.GPU{Address: whole}}, {GPU: gpu.GPU{Address: mig, MIG: gpu.MIG{Enabled: true}}},
	}})
	for address, want := range map[gpu.PCIAddress]bool{whole: true, mig: false} {
		if g, err := s.GPU(t.Context(), address); err != nil || g.MPSNamespaces != want {
			t.Errorf("GPU at %s has namespaces: %t, %v; want %t", address, g.MPSNamespaces, err, want)
		}
	}
}

func TestANodeThatCannotLimitMemoryHasNoLimits(t *testing.T) {
	s := state.New(state.Fixed{NoMemoryLimits: errors.New("cgroups of version 1")})
	s.Hardware.Set(state.HardwareOf(gpu.Node{GPUs: []gpu.GPU{{UUID: "old", NoMemoryLimits: "the driver is old"}, {UUID: "new", MemoryLimits: true}}}))
	var got []string
	for _, g := range s.Snapshot().Node().GPUs {
		if g.MemoryLimits {
			t.Errorf("GPU %s has memory limits", g.UUID)
		}
		got = append(got, g.NoMemoryLimits)
	}
	require.Same(t, "reasons", []string{"the driver is old", "cgroups of version 1"}, got)
}

// The slices of a node keep a GPU that does not answer, with a taint: claims may hold it.
func TestAGPUThatDoesNotAnswerStaysOnTheNode(t *testing.T) {
	s := state.New(state.Fixed{})
	silent := gpu.GPU{Address: gpu.PCIAddress{Bus: 1}, UUID: "GPU-1"}
	s.Hardware.Set(state.Hardware{Scanned: true, Succeeded: true, GPUs: []state.Sighting{{GPU: silent, Err: gpu.ErrLost}}})
	if got := s.Snapshot().Node().GPUs; len(got) != 1 || got[0].UUID != silent.UUID {
		t.Errorf("the node has the GPUs %v", got)
	}
}
