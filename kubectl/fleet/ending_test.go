// SPDX-License-Identifier: Apache-2.0

package fleet_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet/fleettest"
)

func TestTheFewestPodsToEnd(t *testing.T) {
	type hold struct{ name, words string }
	for name, tc := range map[string]struct {
		node  string
		held  []hold
		claim string
		stays string
		want  []string
	}{
		"one GPU of four":                {"t4 share", []hold{{"a", ""}, {"b", ""}, {"c", ""}, {"d", ""}}, "", "", []string{"a"}},
		"two of four":                    {"t4 share", []hold{{"a", ""}, {"b", ""}, {"c", ""}, {"d", ""}}, "count=2", "", []string{"a", "b"}},
		"more than three":                {"t4 share", []hold{{"a", ""}, {"b", ""}, {"c", ""}, {"d", ""}}, "count=4", "", nil},
		"one pod with four":              {"t4 share", []hold{{"a", "count=4"}}, "count=4", "", []string{"a"}},
		"one of two shares is enough":    {"t4 share", []hold{{"all", "count=3"}, {"large", "memory=10Gi"}, {"small", "memory=1Gi"}}, "class=mps.nvidia.com memory=8Gi", "", []string{"all"}},
		"the end of the small share":     {"t4 share", []hold{{"all", "count=3"}, {"large", "memory=10Gi"}, {"small", "memory=1Gi"}}, "class=mps.nvidia.com memory=4Gi", "all", []string{"large"}},
		"both shares for the whole":      {"t4 share", []hold{{"all", "count=3"}, {"large", "memory=10Gi"}, {"small", "memory=1Gi"}}, "", "all", []string{"large", "small"}},
		"a pod that may not be named":    {"t4 share", []hold{{"a", "count=4"}}, "", "a", nil},
		"a device that does not match":   {"t4 share", []hold{{"a", "count=4"}}, "cel=device.attributes['gpu.nvidia.com'].uuid=='x'", "", nil},
		"the GPU below the MIG device":   {"dgx-h100 mig", []hold{{"a", "count=8"}}, "class=mig-1g.10gb", "", []string{"a"}},
		"more devices than the node has": {"t4 share", []hold{{"a", "count=4"}}, "count=5", "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := fleettest.New(t, "n="+tc.node)
			for _, h := range tc.held {
				w.Hold("n", h.name, h.words)
			}
			pods, err := w.Fleet().NewSearch(0).Ending(t.Context(), "n", func(p *corev1.Pod) bool { return p.Name != tc.stays }, fleettest.Claim("new", tc.claim))
			must(t, err)
			var got []string
			for _, p := range pods {
				got = append(got, p.Name)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// The end of one of two pods of a claim frees nothing.
func TestAClaimOfTwoPodsEndsWithBoth(t *testing.T) {
	w := fleettest.New(t, "n=t4 share")
	w.Hold("n", "a", "count=4")
	other := fleettest.Pod("b")
	w.Pods = append(w.Pods, other)
	w.Claims[0].Status.ReservedFor = append(w.Claims[0].Status.ReservedFor, w.Claims[0].Status.ReservedFor[0])
	w.Claims[0].Status.ReservedFor[1].Name, w.Claims[0].Status.ReservedFor[1].UID = "b", other.UID
	search := w.Fleet().NewSearch(0)
	for stays, want := range map[string]int{"": 2, "b": 0} {
		pods, err := search.Ending(t.Context(), "n", func(p *corev1.Pod) bool { return p.Name != stays }, fleettest.Claim("new", ""))
		if must(t, err); len(pods) != want {
			t.Errorf("got %d pods, want %d", len(pods), want)
		}
	}
}

func TestTheLargestShareThatFits(t *testing.T) {
	for name, tc := range map[string]struct{ node, held, claim, want string }{
		"next to a share":      {"dgx-h100 share", "class=mps.nvidia.com memory=40Gi", "class=mps.nvidia.com memory=60Gi", "40048Mi"},
		"no memory is claimed": {"t4 share", "count=4", "", "0"},
		"nothing is left":      {"t4 share", "count=4", "class=mps.nvidia.com memory=1Gi", "0"},
	} {
		t.Run(name, func(t *testing.T) {
			w := fleettest.New(t, "n="+tc.node)
			if name == "next to a share" {
				w.Hold("n", "whole", "count=7")
			}
			w.Hold("n", "held", tc.held)
			if got := w.Fleet().NewSearch(0).LargestMemory(t.Context(), "n", fleettest.Claim("new", tc.claim)); got.String() != tc.want {
				t.Errorf("got %s, want %s", &got, tc.want)
			}
		})
	}
}
