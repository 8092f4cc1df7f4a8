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
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpu-dra/gpu-dra-driver/test/harness"
)

// team is a namespace of demo/fleet, whose manifest has its name, with its pods.
type team struct {
	namespace string
	pods      int
	mode      string
	// each of its GPUs has so many of its pods, in ascending order.
	each []int
}

var teams = []team{
	{"notebooks", 30, harness.TimeSlices, []int{6, 12, 12}},
	{"serving", 20, harness.Shares, []int{4, 8, 8}},
	{"training", 4, harness.Whole, []int{1, 1, 1, 1}},
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
	occupancy := occupied(t)
	t.Run("no GPU is used in two ways and the sums are right", func(t *testing.T) { testSums(t, occupancy) })
	t.Run("each container sees the GPU that it is said to sit on", func(t *testing.T) { testSights(t, occupancy) })
	t.Run("each server is held to its share and has all of it", testServers)
	t.Run("the memory reported as left can be claimed", testLeft)
	for _, team := range teams {
		must(t, cluster.DeleteNamespace(t.Context(), team.namespace))
	}
	nothingLeft(t)
	noDaemons(t, supervisor)
	if left := occupied(t).Left; left.GPUs != 10 {
		t.Errorf("with all deleted %d GPUs are free, want 10", left.GPUs)
	}
}

// applyAtOnce applies the teams' manifests at the same time, so that their pods
// reach the scheduler in any order.
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

// occupied is who sits where, and the log has it as the demo prints it.
func occupied(t *testing.T) harness.Occupancy {
	t.Helper()
	occupancy, err := cluster.Occupancy(t.Context())
	must(t, err)
	var table strings.Builder
	must(t, occupancy.WriteTable(&table))
	t.Logf("\n%s", table.String())
	return occupancy
}

// usable is the memory of a GPU of the fleet, without the memory that the driver and
// an MPS server keep. server is the memory of a share.
const (
	usable = (81920 - 868 - 64) << 20
	server = 9 * gi
)

func testSums(t *testing.T, occupancy harness.Occupancy) {
	const memory = usable
	each := map[string][]int{}
	for _, g := range occupancy.GPUs {
		each[g.Mode] = append(each[g.Mode], len(g.Pods))
		var want [3][2]int64 // memory, compute and slots that are given and left
		n := int64(len(g.Pods))
		switch g.Mode {
		case harness.Whole:
			want = [3][2]int64{{memory, 0}, {100, 0}, {}}
		case harness.Shares:
			want = [3][2]int64{{n * server, memory - n*server}, {n * 12, 100 - n*12}, {}}
		case harness.TimeSlices:
			want = [3][2]int64{{}, {}, {n, 12 - n}}
		}
		got := [3][2]int64{
			{g.Memory.Given.Value(), g.Memory.Left.Value()},
			{g.Compute.Given.Value(), g.Compute.Left.Value()},
			{g.Slots.Given.Value(), g.Slots.Left.Value()},
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s with %d pods: (-want +got)\n%s", g.Name, n, diff)
		}
	}
	want := map[string][]int{}
	for _, team := range teams {
		slices.Sort(each[team.mode])
		want[team.mode] = team.each
	}
	if diff := cmp.Diff(want, each); diff != "" {
		t.Errorf("pods per GPU in each mode (-want +got)\n%s", diff)
	}
	left := occupancy.Left
	if left.GPUs != 0 || left.Memory.Value() != 3*usable-20*server || left.Compute != 4+4+52 || left.Slots != 6 {
		t.Errorf("left are %+v, want %d bytes, 60 percent and 6 slots", left, 3*usable-20*server)
	}
}

// testSights compares the device nodes in all containers with the GPUs that the
// API says their pods sit on.
func testSights(t *testing.T, occupancy harness.Occupancy) {
	nodes := map[string]string{}
	for _, g := range occupancy.GPUs {
		seen := map[string]bool{}
		for _, pod := range g.Pods {
			sight, err := cluster.Sight(t.Context(), pod.Namespace, pod.Name, "main")
			must(t, err)
			seen[strings.Join(sight.GPUs(), " ")] = true
			if told := sight.Attributes(pod.Device)["uuid"].StringValue; told == nil || *told != g.UUID {
				t.Errorf("%s/%s has the UUID of another GPU than %s", pod.Namespace, pod.Name, g.UUID)
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
		_, err := cluster.Kubectl(t.Context(), "scale", "deployment", "server", "-n", "serving", fmt.Sprintf("--replicas=%d", replicas))
		must(t, err)
	}
	for replicas := 21; replicas <= 24; replicas++ {
		scale(replicas)
		must(t, cluster.WaitCount(t.Context(), "serving", replicas))
	}
	if left := occupied(t).Left; left.Memory.Value() != 3*(usable-8*server) {
		t.Errorf("with 24 servers %s is left, want too little for another one on each of three GPUs", left.Memory.String())
	}
	scale(25)
	var waiting string
	must(t, harness.Until(t.Context(), time.Minute, func(ctx context.Context) (bool, string, error) {
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
