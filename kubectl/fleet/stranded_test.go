// SPDX-License-Identifier: Apache-2.0

package fleet_test

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet/fleettest"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

func TestStrandedMemory(t *testing.T) {
	for name, tc := range map[string]struct{ offer, held, want string }{
		"nothing is in use":             {"share.timeslice", "", "0"},
		"a whole GPU":                   {"share", "n a", "0"},
		"a share can get the rest":      {"share", "n a class=mps.nvidia.com memory=5Gi", "0"},
		"less than the smallest share":  {"share", "n a class=mps.nvidia.com memory=14500Mi", "416Mi"},
		"time slices promise no memory": {"timeslice", "n a class=timeslice.nvidia.com", "0"},
	} {
		t.Run(name, func(t *testing.T) {
			w := fleettest.New(t, "n=t4 "+tc.offer)
			if tc.held != "" {
				occupy(w, tc.held)
			}
			if got := strandedOf(w)["all"]; got.String() != tc.want {
				t.Errorf("got %s, want %s", &got, tc.want)
			}
		})
	}
}

// strandedOf returns the stranded memory of each GPU, and of all.
func strandedOf(w *fleettest.World) map[string]resource.Quantity {
	stranded, all := map[string]resource.Quantity{}, resource.Quantity{}
	for _, g := range w.Fleet().Nodes()[0].GPUs {
		stranded[g.Name] = g.Stranded.Memory
		all.Add(g.Stranded.Memory)
	}
	stranded["all"] = all
	return stranded
}

// No claim can get the stranded memory of a MIG GPU: it is left after claims of all profiles, the largest first.
func TestNoMIGDeviceHasStrandedMemory(t *testing.T) {
	for model, profiles := range map[string][]string{
		"a30-bridge": {"4g.24gb", "2g.12gb", "1g.6gb"},
		"dgx-h100":   {"7g.80gb", "4g.40gb", "3g.40gb", "2g.20gb", "1g.20gb", "1g.10gb"},
	} {
		for _, held := range []int{0b1, 0b110, 0b1111} {
			w := fleettest.New(t, "n="+model+" mig")
			for i := range 4 {
				if held>>i&1 == 1 {
					occupyOne(t, w, fmt.Sprint("held-", i), profiles[1+(i+held)%(len(profiles)-1)])
				}
			}
			before := strandedOf(w)
			inUse := map[string]bool{}
			for _, g := range w.Fleet().Nodes()[0].GPUs {
				inUse[g.Name] = g.Claims() > 0
			}
			for _, profile := range profiles {
				for n := 0; occupyOne(t, w, fmt.Sprint(profile, n), profile); n++ {
				}
			}
			for _, g := range w.Fleet().Nodes()[0].GPUs {
				left := g.Memory.Total.DeepCopy()
				left.Sub(g.Memory.Promised)
				if got := before[g.Name]; inUse[g.Name] && got.Cmp(left) != 0 {
					t.Errorf("%s, held %b: %s: %s is stranded, and %s is left", model, held, g.Name, &got, &left)
				}
			}
		}
	}
}

// occupyOne adds a claim of a MIG profile if it fits.
func occupyOne(t *testing.T, w *fleettest.World, name, profile string) bool {
	claim := fleettest.Claim(name, "class=mig.nvidia.com cel=device.attributes['gpu.nvidia.com'].profile=='"+profile+"'")
	f := fleet.New(w.Objects, fleet.Options{Driver: "gpu.nvidia.com", Features: fleet.FeaturesOf(w.Objects), SearchLimit: time.Hour})
	found, err := f.Fit(t.Context(), "n", claim)
	require.NoError(t, err)
	if found == nil {
		return false
	}
	claim.Status.Allocation = &found[0]
	w.Claims = append(w.Claims, claim)
	return true
}
