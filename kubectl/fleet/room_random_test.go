// SPDX-License-Identifier: Apache-2.0

package fleet_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet/fleettest"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

var (
	roomFleets = flag.Int("room-fleets", 40, "number of random fleets in which room is made for a pod")
	roomSeed   = flag.Uint64("room-seed", 1, "seed of the first one")
)

// In random fleets, the pod fits once the pods of the answer have ended, the rules admit their end, and
// an exhaustive search finds no cheaper set.
func TestRoomInRandomFleets(t *testing.T) {
	randomRooms(t, (*randomRoom).check, "1 pod", "several pods", "nothing")
}

// randomRooms checks random fleets. In many of them, each outcome must occur.
func randomRooms(t *testing.T, check func(*randomRoom) string, outcomes ...string) {
	var worlds []*fleettest.World
	for _, nodes := range [][]string{
		{"a=t4 share"}, {"a=dgx-h100 share"}, {"a=t4 share", "b=t4 share"}, {"a=t4 share.mig", "b=t4 share", "c=t4 share", "d=t4 share"}, {"a=a30-bridge share"}, {"a=t4 share.timeslice"},
		{"a=dgx-h100 share", "b=dgx-h100 mig", "c=dgx-h100 share.mig", "d=dgx-h100 share.timeslice"},
		{"a=a30-bridge share.mig", "b=a30-bridge mig"}, {"a=dgx-h100 mig"},
	} {
		worlds = append(worlds, fleettest.New(t, nodes...))
	}
	counts := map[string]int{}
	for i := range uint64(*roomFleets) { //nolint:gosec // a flag of a test
		r := &randomRoom{T: t, Rand: rand.New(rand.NewPCG(*roomSeed+i, 0)), world: worlds[i%uint64(len(worlds))]}
		if counts[check(r)]++; t.Failed() {
			t.Fatalf("seed %d of world %d", *roomSeed+i, i%uint64(len(worlds)))
		}
	}
	t.Log(counts)
	for _, outcome := range outcomes {
		if *roomFleets >= 200 && counts[outcome] == 0 {
			t.Errorf("in no fleet the answer is %s: the random fleets test nothing", outcome)
		}
	}
}

// randomRoom is a random fleet with a pod that waits.
type randomRoom struct {
	*testing.T
	*rand.Rand
	world   *fleettest.World
	budgets []*policyv1.PodDisruptionBudget
	waiting *corev1.Pod
	claim   *resourceapi.ResourceClaim
}

func pick[T any](r *randomRoom, all ...T) T { return all[r.IntN(len(all))] }

// words returns a random request.
func (r *randomRoom) words() string {
	return pick(r, "", "", "count=2", "count=3", "count=4 match=nvlinkDomain", "class=mps.nvidia.com memory=5Gi", "class=mps.nvidia.com memory=9Gi compute=30",
		"class=mps.nvidia.com memory=40Gi", "class=mps.nvidia.com memory=40Gi count=2", "class=timeslice.nvidia.com", "class=mig-1g.10gb", "class=mig-1g.6gb", "class=mig-3g.40gb")
}

// fill fills the fleet with pods.
func (r *randomRoom) fill(most int) {
	w := r.world
	w.Pods, w.Claims = nil, nil
	for _, node := range w.Nodes {
		node.Status.Allocatable = corev1.ResourceList{"cpu": resource.MustParse("8"), "pods": resource.MustParse("100")}
	}
	for try := 0; len(w.Pods) < most && try < 30; try++ {
		node := w.Nodes[r.IntN(len(w.Nodes))].Name
		words := r.words()
		if try < len(w.Nodes) {
			node, words = w.Nodes[try].Name, pick(r, words, "count=2", "count=5", "count=6", "count=7", "count=8")
		}
		name := fmt.Sprintf("p%d", try)
		claim := fleettest.Claim(name, words)
		found, err := r.fleet(w.Objects).Fit(r.Context(), node, claim)
		require.NoError(r, err)
		if found == nil {
			continue
		}
		claim.Status.Allocation = &found[0]
		for i := range 1 + r.IntN(5)/4 {
			pod := r.pod(fmt.Sprintf("%s-%d", name, i), name)
			pod.Spec.NodeName = node
			w.Pods = append(w.Pods, pod)
			claim.Status.ReservedFor = append(claim.Status.ReservedFor, resourceapi.ResourceClaimConsumerReference{Resource: "pods", Name: pod.Name, UID: pod.UID})
		}
		if r.IntN(3) > 0 {
			claim.OwnerReferences = []metav1.OwnerReference{{Kind: "Pod", Name: name + "-0", Controller: ptr.To(true)}}
		}
		w.Claims = append(w.Claims, claim)
	}
	r.budgets = nil
	for _, app := range []string{"x", "y"} {
		r.budgets = append(r.budgets, &policyv1.PodDisruptionBudget{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: app},
			Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}},
			Status:     policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: int32(r.IntN(3))},
		})
	}
}

func (r *randomRoom) pod(name, claim string) *corev1.Pod {
	pod := fleettest.Pod(claim)
	pod.Name, pod.UID = name, types.UID(name)
	pod.Spec.Priority = ptr.To(int32(r.IntN(4)))
	pod.Labels = map[string]string{"app": pick(r, "x", "y", "z", "z", "z")}
	pod.Status.StartTime = &metav1.Time{Time: time.Unix(int64(r.IntN(5)), 0)}
	pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{"cpu": resource.MustParse(pick(r, "0", "1", "2"))}
	switch r.IntN(12) {
	case 0:
		pod.OwnerReferences = []metav1.OwnerReference{{Kind: "DaemonSet", Name: "d", Controller: ptr.To(true)}}
	case 1:
		pod.OwnerReferences = []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "d", Controller: ptr.To(true)}}
	case 2:
		pod.DeletionTimestamp = &metav1.Time{Time: time.Unix(9, 0)}
	case 3:
		pod.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: ptr.To(pick(r, "g", "h"))}
	}
	return pod
}

// check makes room for a pod. It returns the answer in words.
func (r *randomRoom) check() string {
	r.fill(4 + r.IntN(6))
	r.claim, r.waiting = fleettest.Claim("new", r.words()), r.pod("new", "new")
	r.waiting.DeletionTimestamp, r.waiting.OwnerReferences = nil, nil
	r.waiting.Spec.Priority = ptr.To(int32(2 + r.IntN(3)))
	rules := fleet.RoomRules{Budgets: r.budgets, AnyPriority: r.IntN(6) == 0}
	room, err := r.fleet(r.world.Objects).NewSearch(time.Hour).Room(r.Context(), r.waiting, rules, r.claim)
	require.NoError(r, err)
	if !room.Complete {
		r.Error("the search is not complete")
	}
	ended := slices.Concat(room.Pods, room.Ending)
	switch {
	case room.Found() && !slices.Contains(r.fitsOn(ended), room.Node):
		r.Errorf("the pod does not fit on %s after the end of %v", room.Node, namesOf(ended))
	case room.Found() && !r.admits(rules, room.Pods):
		r.Errorf("the rules do not admit the end of %v", namesOf(room.Pods))
	}
	r.compare(rules, room)
	switch {
	case !room.Found():
		return "nothing"
	case len(room.Pods) == 0:
		return "fits"
	case len(room.Pods) == 1:
		return "1 pod"
	default:
		return "several pods"
	}
}

// fleet returns a fleet whose searches end by themselves.
func (r *randomRoom) fleet(objects fleet.Objects) *fleet.Fleet {
	return fleet.New(objects, fleet.Options{Driver: "gpu.nvidia.com", Features: fleet.FeaturesOf(objects), SearchLimit: time.Hour})
}

// fitsOn returns the nodes on which the pod fits in a fleet without some pods.
func (r *randomRoom) fitsOn(ended []*corev1.Pod) (nodes []string) {
	objects := r.without(ended)
	verdicts, err := r.fleet(objects).NewSearch(time.Hour).Verdicts(r.Context(), r.waiting, r.claim)
	require.NoError(r, err)
	for _, v := range verdicts {
		if v.Fits() {
			nodes = append(nodes, v.Node)
		}
	}
	return nodes
}

// without returns the objects after the end of some pods.
func (r *randomRoom) without(ended []*corev1.Pod) fleet.Objects {
	objects := r.world.Objects
	isGone := func(pod *corev1.Pod) bool { return slices.Contains(ended, pod) }
	objects.Pods = slices.DeleteFunc(slices.Clone(objects.Pods), isGone)
	objects.Claims = nil
	for _, claim := range r.world.Claims {
		users := fleet.Consumers(claim, r.world.Pods)
		stays := slices.ContainsFunc(users, func(pod *corev1.Pod) bool {
			return !isGone(pod) || claim.OwnerReferences == nil && pod.OwnerReferences != nil
		})
		if stays {
			objects.Claims = append(objects.Claims, claim)
		}
	}
	return objects
}

// admits reports whether the rules admit the end of pods.
func (r *randomRoom) admits(rules fleet.RoomRules, pods []*corev1.Pod) bool {
	ends := map[string]int32{}
	for _, pod := range pods {
		if pod.DeletionTimestamp != nil || len(pod.OwnerReferences) > 0 && pod.OwnerReferences[0].Kind == "DaemonSet" || !rules.AnyPriority && *pod.Spec.Priority >= *r.waiting.Spec.Priority {
			return false
		}
		for _, other := range r.world.Pods {
			if group := fleet.GroupOf(pod); group != "" && fleet.GroupOf(other) == group && !slices.Contains(pods, other) && other.DeletionTimestamp == nil {
				return false
			}
		}
		ends[pod.Labels["app"]]++
	}
	for _, pdb := range rules.Budgets {
		if ends[pdb.Name] > pdb.Status.DisruptionsAllowed {
			return false
		}
	}
	return true
}

// compare tries all sets of pods that cost less than the answer.
func (r *randomRoom) compare(rules fleet.RoomRules, room fleet.Room) {
	if len(room.Lacking) > 0 {
		return
	}
	if !room.Found() && r.fitsOn(r.world.Pods) == nil {
		return
	}
	var live, ending []*corev1.Pod
	for _, pod := range r.world.Pods {
		if pod.DeletionTimestamp != nil {
			ending = append(ending, pod)
		} else {
			live = append(live, pod)
		}
	}
	for set := range 1 << len(live) {
		var pods []*corev1.Pod
		for i, pod := range live {
			if set>>i&1 == 1 {
				pods = append(pods, pod)
			}
		}
		if room.Found() && compareCosts(pods, room.Pods) >= 0 || !r.admits(rules, pods) {
			continue
		}
		if nodes := r.fitsOn(slices.Concat(pods, ending)); nodes != nil {
			r.Errorf("the end of %v costs less than that of %v on %q, and the pod fits on %v", namesOf(pods), namesOf(room.Pods), room.Node, nodes)
			return
		}
	}
}

// compareCosts compares the number of pods, their highest priority, and the oldest one.
func compareCosts(a, b []*corev1.Pod) int {
	cost := func(pods []*corev1.Pod) []int64 {
		c := []int64{int64(len(pods)), 0, 0}
		for _, pod := range pods {
			c[1], c[2] = max(c[1], int64(*pod.Spec.Priority)), max(c[2], -pod.Status.StartTime.Unix()+100)
		}
		return c
	}
	return slices.Compare(cost(a), cost(b))
}

func namesOf(pods []*corev1.Pod) string {
	var names []string
	for _, pod := range pods {
		names = append(names, pod.Name)
	}
	return strings.Join(names, " ")
}
