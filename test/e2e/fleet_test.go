// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
	"github.com/gpu-dra/gpu-dra-driver/test/internal/harness"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

// team is a namespace of demo/fleet, whose manifest has its name, with its pods.
type team struct {
	namespace string
	pods      int
	mode      fleet.Mode
	// each is the number of its pods on each of its GPUs, in ascending order.
	each []int
}

var teams = []team{
	{"notebooks", 30, fleet.Mode(kind.TimeSlice), []int{6, 12, 12}},
	{"serving", 20, fleet.ModeShared, []int{4, 8, 8}},
	{"training", 4, fleet.ModeWhole, []int{1, 1, 1, 1}},
}

func TestTheFleet(t *testing.T) {
	supervisor := runOn(t, "gpu-9c-00-ts", "demo/fleet/ten-a100.yaml", "--offer=share,timeslice", "--timeslice-slots=12")
	for _, team := range teams {
		namespaceFor(t, team.namespace)
	}
	applyAtOnce(t)
	for _, team := range teams {
		must(t, cluster.WaitCount(t.Context(), team.namespace, team.pods))
	}
	gpus := occupied(t)
	t.Run("no GPU is used in two ways and the sums are right", func(t *testing.T) { testSums(t, gpus) })
	t.Run("a container sees the GPU that it is said to sit on", func(t *testing.T) { testSights(t, gpus) })
	t.Run("each server is held to its share and has all of it", testServers)
	t.Run("the memory reported as left can be claimed", testLeft)
	for _, team := range teams {
		must(t, cluster.DeleteNamespace(t.Context(), team.namespace))
	}
	nothingLeft(t)
	noDaemons(t, supervisor)
	if free := count(occupied(t), fleet.ModeFree); free != 10 {
		t.Errorf("with all deleted %d GPUs are free, want 10", free)
	}
}

// applyAtOnce applies the teams' manifests at the same time. So their pods reach
// the scheduler in any order.
func applyAtOnce(t *testing.T) {
	t.Helper()
	errs := make([]error, len(teams))
	var wait sync.WaitGroup
	for i, team := range teams {
		wait.Go(func() {
			_, errs[i] = cluster.Kubectl(t.Context(), "apply", "-f", "demo/fleet/"+team.namespace+".yaml")
		})
	}
	wait.Wait()
	for _, err := range errs {
		must(t, err)
	}
}

// occupied returns the GPUs and their claims. It logs what a user sees of them.
func occupied(t *testing.T) []fleet.GPU {
	t.Helper()
	out, err := cluster.GPU(t.Context())
	must(t, err)
	t.Logf("\n%s", out)
	gpus, err := cluster.GPUs(t.Context())
	must(t, err)
	return gpus
}

func count(gpus []fleet.GPU, mode fleet.Mode) int {
	n := 0
	for _, g := range gpus {
		if g.Mode == mode {
			n++
		}
	}
	return n
}

// slots returns the time slices of a GPU that claims hold.
func slots(g fleet.GPU) int64 {
	var n int64
	for d, h := range g.Holders() {
		n += d.Slots(h)
	}
	return n
}

// usable is the memory of a GPU of the fleet. It excludes the memory that the driver
// and an MPS server keep. server is the memory of a share.
const (
	usable = (81920 - 868 - 80) << 20
	server = 9 * gi
)

func testSums(t *testing.T, gpus []fleet.GPU) {
	each := map[fleet.Mode][]int{}
	for _, g := range gpus {
		each[g.Mode] = append(each[g.Mode], g.Claims())
		var want [3]int64 // promised memory, compute and slots
		n := int64(g.Claims())
		switch g.Mode {
		case fleet.ModeWhole:
			want = [3]int64{usable, 100, 0}
		case fleet.ModeShared:
			want = [3]int64{n * server, n * 12, 0}
		case fleet.Mode(kind.TimeSlice):
			want = [3]int64{0, 0, n}
		case fleet.ModeFree, fleet.Mode(kind.MIG), fleet.Mode(kind.Seat):
		}
		require.Same(t, fmt.Sprintf("%s with %d claims", g.Name, n), want, [3]int64{g.Memory.Promised.Value(), g.Compute.Promised, slots(g)})
		if g.Memory.Total.Value() != usable {
			t.Errorf("%s has %d bytes, want %d", g.Name, g.Memory.Total.Value(), int64(usable))
		}
	}
	want := map[fleet.Mode][]int{}
	for _, team := range teams {
		slices.Sort(each[team.mode])
		want[team.mode] = team.each
	}
	require.Same(t, "claims of the GPUs in each mode", want, each)
}

// testSights compares the device nodes in containers of each GPU with the allocated
// GPUs. The API server has the GPUs of their claims.
func testSights(t *testing.T, gpus []fleet.GPU) {
	nodes := map[string]string{}
	for _, g := range gpus {
		seen, pods := map[string]bool{}, 0
		for d, h := range g.Holders() {
			for _, pod := range h.Pods {
				// Two containers show whether all see the same GPU. Each exec takes a second.
				if pods++; pods > 2 {
					continue
				}
				sight, err := cluster.Sight(t.Context(), pod.Namespace, pod.Name, "main")
				must(t, err)
				seen[strings.Join(sight.GPUs(), " ")] = true
				if uuid := sight.Attributes(d.ID.Device)["uuid"].StringValue; uuid == nil || *uuid != g.UUID {
					t.Errorf("%s/%s has the UUID of another GPU than %s", pod.Namespace, pod.Name, g.UUID)
				}
			}
		}
		for node := range seen {
			if other, taken := nodes[node]; taken || len(seen) > 1 || strings.Count(node, "/dev/") != 1 {
				t.Errorf("pods on %s see %v, those on %s too; want one GPU, and another one for each", g.Name, slices.Sorted(maps.Keys(seen)), other)
			}
			nodes[node] = g.Name
		}
	}
	if len(nodes) != 10 {
		t.Errorf("the containers see %d GPUs, want 10", len(nodes))
	}
}

func testServers(t *testing.T) {
	pods, err := cluster.Client.CoreV1().Pods("serving").List(t.Context(), metav1.ListOptions{})
	must(t, err)
	for _, pod := range pods.Items {
		client := held(t, pod.Namespace, pod.Name)
		if client.Client.ActiveThreadPercentage != 12 || client.Limit() > server || client.AllocatedBytes != 8*gi || client.Error.Name != "" {
			t.Errorf("%s is held to %v %% and %d bytes and has allocated %d, want 12 %%, 9Gi at most, and 8Gi: %s",
				pod.Name, client.Client.ActiveThreadPercentage, client.Limit(), client.AllocatedBytes, client.Error.Message)
		}
	}
}

// testLeft starts four more servers, which take the memory that is left; the next one
// waits. They start one by one: if several start together, the scheduler may count one
// twice for a moment, and the last then waits for minutes.
func testLeft(t *testing.T) {
	scale := func(replicas int) {
		t.Helper()
		kubectl(t, "scale", "deployment", "server", "-n", "serving", fmt.Sprintf("--replicas=%d", replicas))
	}
	for replicas := 21; replicas <= 24; replicas++ {
		scale(replicas)
		must(t, cluster.WaitCount(t.Context(), "serving", replicas))
	}
	for _, g := range occupied(t) {
		if g.Mode == fleet.ModeShared && g.Memory.Promised.Value() != 8*server {
			t.Errorf("with 24 servers %s has promised %s, want eight shares", g.Name, &g.Memory.Promised)
		}
	}
	scale(25)
	var waiting string
	must(t, harness.Until(t.Context(), func(ctx context.Context) (bool, string, error) {
		pods, err := cluster.Client.CoreV1().Pods("serving").List(ctx, metav1.ListOptions{FieldSelector: "status.phase=Pending"})
		if err != nil || len(pods.Items) != 1 {
			return false, "no 25th server", err
		}
		waiting = pods.Items[0].Name
		return true, "", nil
	}))
	_, err := cluster.Unschedulable(t.Context(), "serving", waiting)
	must(t, err)
}
