// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gpu-dra/gpu-dra-driver/simulator/nvmlsim"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

// The captured model of a simulated machine equals the machine's model in
// everything that a driver can observe.
func TestCaptureOfASimulatedMachineIsItsModel(t *testing.T) {
	for _, name := range nvmlsim.ModelNames() {
		t.Run(name, func(t *testing.T) {
			want := load(t, name)
			m := simulate(t, want)
			got, err := m.capture(want.Name, m.node)
			must(t, err)
			require.Same(t, "captured model", observable(t, want), observable(t, got))
		})
	}
}

func TestCaptureHasTheClockOfTheMachine(t *testing.T) {
	model := load(t, "dgx-h100")
	kind := model.Kinds[model.GPUs[0].Kind]
	kind.SMClockMHz = 1755
	model.Kinds[model.GPUs[0].Kind] = kind
	m := simulate(t, model)
	got, err := m.capture(model.Name, m.node)
	must(t, err)
	if clock := got.Kinds[got.GPUs[0].Kind].SMClockMHz; clock != 1755 {
		t.Errorf("captured a clock of %d MHz", clock)
	}
}

// observed is a model in a form that does not depend on how it is written.
type observed struct {
	Driver, CUDA, Platform string
	NUMANodes              []nvmlsim.NUMANode
	Fabric                 *nvmlsim.Fabric
	MemoryLimits           string
	GPUs                   []observedGPU
}

type observedGPU struct {
	GPU   nvmlsim.GPU
	Kind  nvmlsim.Kind
	Links []string
}

// observable writes every GPU out in full, fills defaults in and leaves out
// what capture leaves out.
func observable(t *testing.T, m *nvmlsim.Model) observed {
	t.Helper()
	o := observed{Driver: m.DriverVersion, CUDA: m.CUDAVersion, Platform: m.Platform, Fabric: m.Fabric, MemoryLimits: m.MemoryLimits}
	for _, n := range m.NUMANodes {
		if n.CPUs == "" {
			n.Socket = 0 // memory is in no socket
		}
		o.NUMANodes = append(o.NUMANodes, n)
	}
	for i, g := range m.GPUs {
		kind := m.Kinds[g.Kind]
		links := g.Links
		if links == nil {
			links = kind.Links
		}
		if kind.ComputeMode == "" {
			kind.ComputeMode = "Default"
		}
		if g.Minor == nil {
			g.Minor = &i
		}
		full := observedGPU{GPU: g, Kind: kind, Links: expand(t, links)}
		// Models leave the usual clock of an architecture out, and refusals that follow from
		// other fields.
		full.Kind.SMClockMHz, full.Kind.Refusals = 0, nil
		full.GPU.Kind, full.GPU.UUID, full.GPU.Serial, full.GPU.Links, full.Kind.Links = "", "", "", nil, nil
		if full.GPU.Bridges == nil {
			full.GPU.Bridges = []string{}
		}
		o.GPUs = append(o.GPUs, full)
	}
	return o
}

// expand returns one line for each link.
func expand(t *testing.T, runs []nvmlsim.Links) []string {
	t.Helper()
	lines := []string{}
	for _, run := range runs {
		from, to, ranged := strings.Cut(run.Numbers, "-")
		if !ranged {
			to = from
		}
		first, err := strconv.Atoi(from)
		must(t, err)
		last, err := strconv.Atoi(to)
		must(t, err)
		for n := first; n <= last; n++ {
			lines = append(lines, fmt.Sprintf("%02d %s %s down=%v", n, run.Remote, run.Address, run.Down))
		}
	}
	slices.Sort(lines)
	return lines
}
