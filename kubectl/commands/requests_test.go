// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"fmt"
	"slices"
	"testing"

	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet/fleettest"
)

// A request for each node or pod would make the commands slow in a large fleet.
func TestRequestsDoNotGrowWithTheFleet(t *testing.T) {
	file := manifest(t, template+podsOf("Deployment", "replicas: 2,"))
	requests := func(nodes int, args []string) []string {
		var names []string
		for i := range nodes {
			names = append(names, fmt.Sprintf("n-%d=t4 share", i))
		}
		w := fleettest.New(t, names...)
		for i := range nodes {
			w.Hold(fmt.Sprintf("n-%d", i), fmt.Sprintf("pod-%d", i), "")
		}
		w.Pods, w.Claims = append(w.Pods, fleettest.Pod("waits")), append(w.Claims, fleettest.Claim("waits", "count=9"))
		client := server(w)
		run(t, client, args...)
		var all []string
		for _, a := range client.Actions() {
			all = append(all, a.GetVerb()+" "+a.GetResource().Resource)
		}
		slices.Sort(all)
		return all
	}
	for _, args := range [][]string{
		{"get"}, {"get", "n-0"}, {"who", "-A"}, {"usage"}, {"free"}, {"topo", "n-0"}, {"plan", "-f", file},
		{"explain", "pod-0", "-n", "default"}, {"explain", "waits", "-n", "default"}, {"doctor"},
	} {
		one, five := requests(1, args), requests(5, args)
		if len(one) == 0 || !slices.Equal(one, five) {
			t.Errorf("%q: requests on one node %q, on five %q", args, one, five)
		}
		for _, list := range []string{"list nodes", "list resourceclaims", "list resourceslices"} {
			if i := slices.Index(five, list); i >= 0 && i+1 < len(five) && five[i+1] == list {
				t.Errorf("%q: %s is requested twice: %q", args, list, five)
			}
		}
	}
}
