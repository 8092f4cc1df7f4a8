// SPDX-License-Identifier: Apache-2.0

package fleet_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-dra/gpu-dra-driver/pkg/fleet"
	"github.com/gpu-dra/gpu-dra-driver/pkg/fleet/fleettest"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestWhoHasWhat(t *testing.T) {
	w := fleettest.New(t, "a=dgx-h100 share", "b=dgx-a100 mig", "c=t4 timeslice")
	w.Hold("a", "whole", "")
	w.Hold("a", "half", "class=mps.nvidia.com memory=40Gi compute=50")
	w.Hold("a", "little", "class=mps.nvidia.com memory=4Gi")
	w.Hold("b", "part", "class=mig-1g.10gb")
	w.Hold("c", "slot", "class=timeslice.nvidia.com")
	var got []string
	for _, node := range w.Fleet().Nodes() {
		for _, g := range node.GPUs {
			if g.Mode == fleet.ModeFree {
				continue
			}
			line := fmt.Sprintf("%s %s %s %s/%s %d/%d", node.Name, g.Name, g.Mode, &g.Memory.Promised, &g.Memory.Total, g.Compute.Promised, g.Compute.Total)
			for _, d := range g.Devices {
				for _, h := range d.Holders {
					line += fmt.Sprintf(" %s:%s", h.Claim.Name, h.Pods[0].Name)
				}
			}
			got = append(got, line)
		}
	}
	want := []string{
		"a gpu-1b-00 whole 81008Mi/81008Mi 100/100 whole:whole",
		"a gpu-43-00 shared 44Gi/81008Mi 50/100 half:half little:little",
		"b gpu-4e-00 mig 9856Mi/81052Mi 0/100 part:part",
		"c gpu-af-00 timeslice 0/14916Mi 0/100 slot:slot",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("GPUs in use (-want +got):\n%s", diff)
	}
}

// A user waits for the verdict of a whole fleet.
func BenchmarkVerdictsOfAThousandNodes(b *testing.B) {
	for _, offer := range []string{"share", "share.mig"} {
		b.Run(offer, func(b *testing.B) {
			w := fleettest.New(b, "node-0=dgx-h100 "+offer)
			w.Hold("node-0", "all", "count=8")
			w.Repeat(1000)
			f := w.Fleet()
			for b.Loop() {
				all, err := f.Verdicts(b.Context(), fleettest.Claim("new", "class=mps.nvidia.com memory=10Gi"))
				must(b, err)
				if len(all) != 1000 || all[0].Fits() {
					b.Fatalf("%d verdicts, fits: %t", len(all), all[0].Fits())
				}
			}
		})
	}
}
