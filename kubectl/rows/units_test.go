// SPDX-License-Identifier: Apache-2.0

package rows

import (
	"slices"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet/fleettest"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

func TestTheComputeOfAGPUIsInTheUnitsOfItsClaims(t *testing.T) {
	w := fleettest.New(t, "a=dgx-a100 mig", "b=t4 share.timeslice", "c=t4 seat")
	addSeatClass(w)
	w.Hold("a", "large", "class=mig-3g.40gb")
	w.Hold("a", "small", "class=mig-1g.10gb")
	w.Hold("b", "slot", "class=timeslice.nvidia.com")
	w.Hold("b", "share", "class=mps.nvidia.com memory=7Gi compute=60")
	w.Hold("c", "seats", "class=seat.nvidia.com seats=2")
	got, stranded := map[string]string{}, map[string]string{}
	c := cluster(w)
	for _, g := range c.GPUs(c.Nodes(), nil) {
		if g.Mode != fleet.ModeFree {
			got[g.Node+" "+string(g.Mode)] = g.ComputeText()
			if g.MemoryStranded != nil {
				stranded[g.Node] = Gibibytes(*g.MemoryStranded)
			}
		}
	}
	want := map[string]string{"a mig": "4/7 slices", "b timeslice": "1/4 slots", "b shared": "60%", "c seat": "2/4 seats"}
	require.Same(t, "units", want, got)
	require.Same(t, "stranded", map[string]string{"a": "11.9Gi", "c": "0.4Gi"}, stranded)
}

// addSeatClass adds the class of seats, which the chart has on request.
func addSeatClass(w *fleettest.World) {
	i := slices.IndexFunc(w.Classes, func(c *resourceapi.DeviceClass) bool { return c.Name == "timeslice.nvidia.com" })
	class := w.Classes[i].DeepCopy()
	class.Name = "seat.nvidia.com"
	for _, s := range class.Spec.Selectors {
		s.CEL.Expression = strings.ReplaceAll(s.CEL.Expression, "timeslice", "seat")
	}
	w.Classes = append(w.Classes, class)
}

func TestCount(t *testing.T) {
	require.Same(t, "numbers", []string{"0 claims", "1 claim", "2 claims"}, []string{fleet.Number(0, "claim"), fleet.Number(1, "claim"), fleet.Number(2, "claim")})
}

func TestSmallAmountsAreNotNothing(t *testing.T) {
	for number, want := range map[float64]string{0: "0.0", 1.0 / 48: "<0.1", 0.05: "0.1", 2.25: "2.2"} {
		if got := Tenths(number); got != want {
			t.Errorf("%v: got %q, want %q", number, got, want)
		}
	}
}
