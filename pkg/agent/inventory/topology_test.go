// SPDX-License-Identifier: Apache-2.0

package inventory_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/utils/clock"

	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/inventory"
	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/state"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/node/nvml"
	"github.com/gpu-dra/gpu-dra-driver/pkg/node/sysfs"
	"github.com/gpu-dra/gpu-dra-driver/simulator/nvmlsim"
	"github.com/gpu-dra/gpu-dra-driver/test/files"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

// machine simulates a model after a change of it.
func machine(t *testing.T, model string, change func(*nvmlsim.Model)) *nvmlsim.Sim {
	t.Helper()
	m, err := nvmlsim.LoadModel(model)
	must(t, err)
	change(m)
	sim, err := nvmlsim.Create(files.ShortDir(t), m)
	must(t, err)
	t.Cleanup(func() { must(t, sim.ClearFaults()) })
	return sim
}

var must = require.NoError

// noClaims is a node without claims.
type noClaims struct{}

func (noClaims) Read(context.Context) state.Claimed { return state.Claimed{} }

// scanned returns the state after one scan of the machine.
func scanned(t *testing.T, sim *nvmlsim.Sim) state.Snapshot {
	t.Helper()
	s := state.New(state.Fixed{})
	i := inventory.New(inventory.Options{State: s, Hardware: nvml.New(sim.NVML()), Bus: sysfs.Root(sim.Root()), Clock: clock.RealClock{}})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); i.Run(ctx, noClaims{}) }()
	t.Cleanup(func() { stop(); <-done })
	_, err := s.GPUs(t.Context())
	must(t, err)
	return s.Snapshot()
}

// topology returns the lines about places and links, without the reasons of the kernel.
func topology(v state.Snapshot) []string {
	err := v.Topology()
	if err == nil {
		return nil
	}
	lines := strings.Split(err.Error(), "\n")
	for i, line := range lines {
		lines[i], _, _ = strings.Cut(line, ": open ")
		lines[i], _, _ = strings.Cut(lines[i], ": failed ")
	}
	return lines
}

func unchanged(*nvmlsim.Model) {}

// domains returns the NVLink domains by the buses of their GPUs.
func domains(v state.Snapshot) []string {
	var groups []string
	for _, members := range gpu.NVLinkDomains(v.Node().GPUs) {
		var names []string
		for _, member := range members {
			names = append(names, member.ShortName()[:2])
		}
		groups = append(groups, strings.Join(names, " "))
	}
	return groups
}

func TestLinksThatContradictEachOtherAreReportedAndNotUsed(t *testing.T) {
	whole := []string{"06 07 0a 0b", "85 86 89 8a"}
	for name, tc := range map[string]struct {
		change  func(*nvmlsim.Model)
		fault   func(*testing.T, *nvmlsim.Sim)
		want    []string
		domains []string
	}{
		"none": {unchanged, func(*testing.T, *nvmlsim.Sim) {}, nil, whole},
		"one end of the only link of a pair is down": {unchanged, func(t *testing.T, s *nvmlsim.Sim) { must(t, s.LinkEndDown(0, 0)) },
			[]string{"GPU at 0000:07:00.0: NVLinks to 0000:06:00.0: corrupt: 1 reported, and 0 at the other end: 0 used"},
			[]string{"06 0a 0b", "07", "85 86 89 8a"}},
		"both ends are down": {unchanged, func(t *testing.T, s *nvmlsim.Sim) { must(t, s.LinkDown(0, 0)) }, nil, []string{"06 0a 0b", "07", "85 86 89 8a"}},
		"a peer that is not on the node": {func(m *nvmlsim.Model) { m.GPUs = slices.Delete(m.GPUs, 7, 8) }, func(*testing.T, *nvmlsim.Sim) {},
			[]string{
				"GPU at 0000:0b:00.0: NVLinks to 0000:8a:00.0: corrupt: 1 reported, but it is not a GPU of this node: not used",
				"GPU at 0000:85:00.0: NVLinks to 0000:8a:00.0: corrupt: 2 reported, but it is not a GPU of this node: not used",
				"GPU at 0000:86:00.0: NVLinks to 0000:8a:00.0: corrupt: 1 reported, but it is not a GPU of this node: not used",
				"GPU at 0000:89:00.0: NVLinks to 0000:8a:00.0: corrupt: 2 reported, but it is not a GPU of this node: not used",
			}, []string{"06 07 0a 0b", "85 86 89"}},
		// Its own report is enough.
		"a peer that does not answer": {unchanged, func(t *testing.T, s *nvmlsim.Sim) { must(t, s.LoseGPU(7)) }, nil, []string{"06 07 0a 0b", "85 86 89"}},
	} {
		t.Run(name, func(t *testing.T) {
			sim := machine(t, "dgx1-v100", tc.change)
			tc.fault(t, sim)
			v := scanned(t, sim)
			require.Same(t, "topology", tc.want, topology(v))
			require.Same(t, "NVLink domains", tc.domains, domains(v))
		})
	}
}

func TestAGPUWithoutAnEntryInSysfsHasNoPlaceAndWorks(t *testing.T) {
	sim := machine(t, "dgx-h100", unchanged)
	must(t, os.Remove(filepath.Join(sim.Root(), "sys/bus/pci/devices/0000:43:00.0")))
	v := scanned(t, sim)
	want := []string{"NUMA node of GPU 0000:43:00.0: not found", "PCIe root of GPU 0000:43:00.0: not found"}
	require.Same(t, "topology", want, topology(v))
	if len(v.Answering()) != 8 || v.Missing() != nil || v.Faults() != nil {
		t.Errorf("%d GPUs answer, missing %v, faults %v; want all eight without a fault", len(v.Answering()), v.Missing(), v.Faults())
	}
	for i, g := range v.Node().GPUs {
		hasPlace := g.NUMANode != nil && g.CPUs != "" && g.PCIeRoot != "" && len(g.NICs) > 0
		hasNone := g.NUMANode == nil && g.CPUs == "" && g.NearNUMANodes == nil && g.PCIeRoot == "" && g.NICs == nil
		if g.UUID == "" || i == 1 && !hasNone || i != 1 && !hasPlace {
			t.Errorf("GPU at %s: %+v", g.Address, g)
		}
	}
}

// The driver renumbers the GPUs at each boot.
func TestGPUsKeepTheirNamesPlacesAndLinksWhenTheirOrderChanges(t *testing.T) {
	before := scanned(t, machine(t, "dgx1-v100", unchanged)).Node()
	after := scanned(t, machine(t, "dgx1-v100", func(m *nvmlsim.Model) { slices.Reverse(m.GPUs) })).Node()
	for i, g := range after.GPUs {
		if g.Index != 7-i || g.Minor != 7-i {
			t.Errorf("GPU at %s has index %d and minor %d, want %d", g.Address, g.Index, g.Minor, 7-i)
		}
		after.GPUs[i].Index, after.GPUs[i].Minor = i, i
	}
	require.Same(t, "node after the boot, without indices and minors", before, after)
}
