// SPDX-License-Identifier: Apache-2.0

package state_test

import (
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

// behindSwitch returns a node of GPUs that NVSwitch connects.
func behindSwitch(gpus int) gpu.Node {
	node := gpu.Node{DriverVersion: "570"}
	for i := range gpus {
		g := gpu.GPU{UUID: fmt.Sprintf("GPU-%d", i), Address: gpu.PCIAddress{Bus: uint8(i)}, MemoryBytes: 80 << 30, ComputeCapability: gpu.Version{Major: 9}}
		for range 18 {
			g.Links = append(g.Links, gpu.Link{Active: true, Remote: gpu.RemoteSwitch})
		}
		node.GPUs = append(node.GPUs, g)
	}
	return node
}

func TestAttributesFollowEachTableFromWhichTheyAreDerived(t *testing.T) {
	first, last, gone := kind.Whole(gpu.PCIAddress{}), kind.Whole(gpu.PCIAddress{Bus: 1}), kind.Whole(gpu.PCIAddress{Bus: 9})
	s := state.New(state.Fixed{})
	attributes := s.Attributes(catalog.Settings{})
	for _, step := range []struct {
		name string
		do   func()
		same bool
	}{
		{"nothing is known", func() {}, true},
		{"the first scan", func() { s.Hardware.Set(state.HardwareOf(behindSwitch(1))) }, false},
		{"a scan with one more GPU", func() { s.Hardware.Set(state.HardwareOf(behindSwitch(2))) }, false},
		{"another driver", func() {
			node := behindSwitch(2)
			node.DriverVersion = "615"
			s.Hardware.Set(state.HardwareOf(node))
		}, false},
		{"a configuration with shares by MPS", func() {
			config := catalog.NodeConfig{Offer: "share", Shares: catalog.ShareOffer{MPS: true}}
			s.Configuration.Set(state.Configuration{Known: true, Followed: catalog.NodeRecord{Config: config}})
		}, false},
		{"a driver with namespaces of MPS", func() { s.Conditions.Set(state.Conditions{MPSNamespaces: true}) }, false},
		{"a cluster without shares", func() { s.Features.Set(state.Features{Restrictions: catalog.Restrictions{Exclusive: true}}) }, false},
		{"a claim", func() { s.Claimed.Set(state.Claimed{InUse: catalog.InUse{first: "x"}}) }, true},
	} {
		before := attributes.Of(first)
		step.do()
		now := s.Snapshot()
		for _, device := range []kind.Name{first, last, gone} {
			// The second read is of the kept attributes.
			for range 2 {
				require.Same(t, fmt.Sprintf("%s: attributes of %s", step.name, device), now.Attributes(catalog.Settings{}, device), attributes.Of(device))
			}
		}
		if same := cmp.Equal(before, attributes.Of(first)); same != step.same {
			t.Errorf("%s: the attributes of %s are the same: %t, want %t", step.name, first, same, step.same)
		}
	}
}

func TestAttributesAreDerivedOnce(t *testing.T) {
	s := state.New(state.Fixed{})
	s.Hardware.Set(state.HardwareOf(behindSwitch(8)))
	attributes, device := s.Attributes(catalog.Settings{}), kind.Whole(gpu.PCIAddress{Bus: 7})
	attributes.Of(device)
	claims := []state.Claimed{{}, {InUse: catalog.InUse{device: "x"}}}
	if n := testing.AllocsPerRun(10, func() {
		slices.Reverse(claims)
		s.Claimed.Set(claims[0])
		attributes.Of(device)
	}); n > 0 {
		t.Errorf("%v allocations after a claim, want none", n)
	}
}
