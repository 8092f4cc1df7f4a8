// SPDX-License-Identifier: Apache-2.0

package kind_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

func TestEveryKindIsInTheTable(t *testing.T) {
	files, err := filepath.Glob("*.go")
	must(t, err)
	var declared []string
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		must(t, err)
		ast.Inspect(parsed, func(n ast.Node) bool {
			if spec, ok := n.(*ast.ValueSpec); ok {
				if of, ok := spec.Type.(*ast.Ident); ok && of.Name == "Kind" {
					declared = append(declared, spec.Names[0].Name)
				}
			}
			return true
		})
	}
	if listed := kind.All(); len(listed) != len(declared) {
		t.Errorf("the table has %q, and the package declares %q", listed, declared)
	}
}

func TestEveryKindAnswersEachQuestion(t *testing.T) {
	offers := map[string]bool{}
	for _, k := range kind.All() {
		t.Run(string(k), func(t *testing.T) {
			if !slices.Contains([]kind.Scope{kind.ScopeNode, kind.ScopeGPU, kind.ScopePartition}, k.Scope()) {
				t.Errorf("scope %q is unknown", k.Scope())
			}
			if !slices.Contains([]kind.Taken{kind.TakesNothing, kind.TakesMemory, kind.TakesSlots, kind.TakesSeats}, k.Takes()) {
				t.Errorf("claims take %q, which is unknown", k.Takes())
			}
			c := k.Configuration()
			if c.Noun == "" || c.Own == "" && c.Remedy == "" {
				t.Errorf("configuration %+v leaves an error without its noun or its remedy", c)
			}
			if c.Own != "" && !k.Accepts(c.Own, k.Takes() == kind.TakesSeats) {
				t.Errorf("a whole device does not accept its own %s", c.Own)
			}
			if k.Accepts(v1alpha1.KindShareConfig, true) != k.MPSShares() {
				t.Error("a ShareConfig is not for shares that MPS can limit alone")
			}
			if offers[k.Offer()] {
				t.Errorf("another kind has the offer %q", k.Offer())
			}
			offers[k.Offer()] = true
			name := example(k, 0)
			if parsed, err := kind.Parse(name.String()); err != nil || parsed != name {
				t.Errorf("Parse(%q) = %+v, %v; want %+v", name, parsed, err, name)
			}
		})
	}
}

func TestAnUnknownKindStandsForNothing(t *testing.T) {
	var none kind.Name
	if none.OnGPU() || none.Kind.HasUnits() || none.Kind.Accepts(v1alpha1.KindGpuConfig, false) || none.String() != "" {
		t.Errorf("the zero name answers like a device")
	}
}

func TestConfigurationsOfEachKind(t *testing.T) {
	const gpuConfig, migConfig, shareConfig = v1alpha1.KindGpuConfig, v1alpha1.KindMigConfig, v1alpha1.KindShareConfig
	want := map[kind.Kind]struct{ whole, share []string }{
		kind.GPU:       {[]string{gpuConfig, shareConfig}, []string{shareConfig}},
		kind.MIG:       {[]string{migConfig, shareConfig}, []string{shareConfig}},
		kind.TimeSlice: {[]string{gpuConfig}, nil},
		kind.Seat:      {[]string{shareConfig}, []string{shareConfig}},
		kind.Monitor:   {nil, nil},
	}
	for _, k := range kind.All() {
		for _, share := range []bool{false, true} {
			var accepted []string
			for _, c := range []string{gpuConfig, migConfig, shareConfig} {
				if k.Accepts(c, share) {
					accepted = append(accepted, c)
				}
			}
			expected := want[k].whole
			if share {
				expected = want[k].share
			}
			require.Same(t, fmt.Sprintf("%s, share %t", k, share), expected, accepted)
		}
	}
}

// profiles describes a GPU with two halves.
var profiles = gpu.MIG{Profiles: []gpu.ProfileInfo{
	{Profile: gpu.Profile{Slices: 3, MemoryGB: 40}, Placements: []gpu.Placement{{Start: 0, Size: 4}, {Start: 4, Size: 4}}},
	{Profile: gpu.Profile{Slices: 7, MemoryGB: 80}, Placements: []gpu.Placement{{Start: 0, Size: 8}}},
}}

// example returns the name of a device of the kind; partitions at a memory slice.
func example(k kind.Kind, start int) kind.Name {
	n := kind.Name{Kind: k}
	if n.OnGPU() {
		n.Address = gpu.PCIAddress{Bus: 0x1b}
	}
	if n.IsPartition() {
		n.Profile, n.Start = profiles.Profiles[0].Profile, start
	}
	return n
}

func TestCapacitiesOfEachKind(t *testing.T) {
	amount := resource.MustParse
	all := kind.Amounts{Memory: amount("80Gi"), Smallest: amount("1Gi"), Step: amount("1Mi"), Compute: 150, Units: 4}
	shared := all
	shared.Shared = true
	for _, k := range kind.All() {
		t.Run(string(k), func(t *testing.T) {
			var want map[bool]string
			switch k.Takes() {
			case kind.TakesNothing:
				want = map[bool]string{false: "memory 0", true: "memory 0"}
			case kind.TakesSlots:
				want = map[bool]string{false: "memory 80Gi from 0, slots 4 from 1", true: "memory 80Gi from 0, slots 4 from 1"}
			case kind.TakesSeats:
				want = map[bool]string{false: "memory 20Gi of [0], seats 4 from 1", true: "memory 20Gi of [0], seats 4 from 1"}
			case kind.TakesMemory:
				want = map[bool]string{false: "compute 100, memory 80Gi", true: "compute 150 from 0 to 100, memory 80Gi from 1Gi"}
				if k.Scope() == kind.ScopePartition {
					want = map[bool]string{false: "memory 80Gi", true: "memory 80Gi"}
				}
			}
			for _, amounts := range []kind.Amounts{all, shared} {
				if got := describe(k.Capacities(amounts)); got != want[amounts.Shared] {
					t.Errorf("shared %t: %q, want %q", amounts.Shared, got, want[amounts.Shared])
				}
			}
			// A selector on a capacity that a device lacks fails the whole claim.
			if got, has := k.Capacities(kind.Amounts{Units: 4, Step: all.Step})[v1alpha1.CapacityMemory]; !has || !got.Value.IsZero() || got.RequestPolicy != nil {
				t.Errorf("memory that is not known is published as %+v, %t; want 0 without a policy", got, has)
			}
		})
	}
}

// describe lists capacities with the ranges of their requests: "memory 80Gi from 1Gi".
func describe(capacities kind.Capacities) string {
	var texts []string
	for name, c := range capacities {
		text := fmt.Sprintf("%s %s", name, c.Value.String())
		if c.RequestPolicy != nil && c.RequestPolicy.ValidValues != nil {
			text += fmt.Sprintf(" of [%s]", &c.RequestPolicy.ValidValues[0])
		} else if c.RequestPolicy != nil {
			text += " from " + c.RequestPolicy.ValidRange.Min.String()
			if most := c.RequestPolicy.ValidRange.Max; most != nil {
				text += " to " + most.String()
			}
		}
		texts = append(texts, text)
	}
	slices.Sort(texts)
	return strings.Join(texts, ", ")
}

func TestDevicesExcludeEachOther(t *testing.T) {
	whole := func(k kind.Kind) kind.Holding { return kind.Holding{Name: example(k, 0)} }
	share := func(k kind.Kind) kind.Holding { return kind.Holding{Name: example(k, 0), Share: true} }
	high := kind.Holding{Name: example(kind.MIG, 4)}
	all := kind.Holding{Name: kind.Name{Kind: kind.MIG, Address: high.Name.Address, Profile: profiles.Profiles[1].Profile}}
	unknown := kind.Holding{Name: kind.Name{Kind: kind.MIG, Address: high.Name.Address, Profile: gpu.Profile{Slices: 9, MemoryGB: 9}}}
	other := whole(kind.GPU)
	other.Name.Address.Bus++
	for _, c := range []struct {
		a, b kind.Holding
		want bool
	}{
		{whole(kind.GPU), whole(kind.GPU), true},
		{whole(kind.GPU), share(kind.GPU), true},
		{share(kind.GPU), share(kind.GPU), false},
		{whole(kind.GPU), other, false},
		{whole(kind.GPU), whole(kind.TimeSlice), true},
		{share(kind.GPU), whole(kind.TimeSlice), true},
		{whole(kind.TimeSlice), whole(kind.TimeSlice), false},
		{whole(kind.Seat), whole(kind.Seat), false},
		{share(kind.Seat), share(kind.Seat), false},
		{share(kind.Seat), share(kind.GPU), true},
		{share(kind.Seat), whole(kind.GPU), true},
		{share(kind.Seat), whole(kind.TimeSlice), true},
		{share(kind.Seat), whole(kind.MIG), true},
		{share(kind.Seat), whole(kind.Monitor), false},
		{whole(kind.GPU), whole(kind.MIG), true},
		{share(kind.GPU), share(kind.MIG), true},
		{whole(kind.TimeSlice), whole(kind.MIG), true},
		{whole(kind.MIG), whole(kind.MIG), true},
		{share(kind.MIG), share(kind.MIG), false},
		{whole(kind.MIG), high, false},
		{all, high, true},
		{unknown, high, true},
		{whole(kind.Monitor), whole(kind.Monitor), false},
		{whole(kind.Monitor), whole(kind.GPU), false},
		{whole(kind.Monitor), whole(kind.MIG), false},
		{whole(kind.Monitor), whole(kind.TimeSlice), false},
	} {
		t.Run(fmt.Sprintf("%s %t, %s %t", c.a.Name, c.a.Share, c.b.Name, c.b.Share), func(t *testing.T) {
			for _, pair := range [][2]kind.Holding{{c.a, c.b}, {c.b, c.a}} {
				if got := kind.Excludes(profiles, pair[0], pair[1]); got != c.want {
					t.Errorf("Excludes(%s, %s) = %t, want %t", pair[0].Name, pair[1].Name, got, c.want)
				}
			}
		})
	}
}

var must = require.NoError
