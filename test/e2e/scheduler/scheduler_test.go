// SPDX-License-Identifier: Apache-2.0

// Package scheduler compares the verdicts of kubectl/fleet with the decisions of the real
// scheduler. The nodes, claims and taints are random. There are no kubelets: the
// objects are enough for the scheduler.
package scheduler

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet/fleettest"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/test/internal/controlplane"
	"github.com/gpu-dra/gpu-dra-driver/test/internal/harness"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

var (
	bin    = flag.String("bin", "../../../.build/cluster", "folder with etcd, kube-apiserver and kube-scheduler, which `cluster build` fills")
	seed   = flag.Uint64("seed", 0, "seed of the random clusters (default: another one for each run)")
	rounds = flag.Int("rounds", 12, "number of random clusters")
)

const namespace = "default"

var must = require.NoError

func TestVerdictsAreTheDecisionsOfTheScheduler(t *testing.T) {
	const allNodes = 100
	c, err := controlplane.Start(t.Context(), *bin, allNodes)
	must(t, err)
	defer func() { must(t, c.Stop()) }()
	if *seed == 0 {
		*seed = rand.Uint64N(1 << 32)
	}
	counts := map[string]int{}
	for i := range *rounds {
		t.Run(fmt.Sprintf("seed %d", *seed+uint64(i)), func(t *testing.T) {
			r := &round{T: t, client: c.Client, random: rand.New(rand.NewPCG(*seed+uint64(i), 0)), counts: counts, crowded: i%4 == 0}
			r.run()
		})
	}
	t.Logf("decisions: %v", counts)
	// Otherwise the random clusters and claims test nothing.
	for _, outcome := range []string{"fits", "does not fit"} {
		if *rounds >= 5 && counts[outcome] < 10 {
			t.Errorf("%d claims of which the decision is %q", counts[outcome], outcome)
		}
	}
	if *rounds >= 5 && counts["room is made"] == 0 {
		t.Error("room is made for no claim")
	}
}

// round is one random cluster.
type round struct {
	*testing.T
	client kubernetes.Interface
	random *rand.Rand
	counts map[string]int
	// crowded rounds have one small node, which the claims fill.
	crowded bool
	// held are the names of the pods that have devices.
	held []string
}

func pick[T any](r *round, all ...T) T { return all[r.random.IntN(len(all))] }

func (r *round) run() {
	var nodes []string
	for i := range 1 + r.random.IntN(3) {
		nodes = append(nodes, fmt.Sprintf("node-%d=%s %s", i, pick(r, "t4", "dgx-h100", "dgx1-v100", "a30-bridge"), pick(r, "", "share", "share", "mig", "share.mig", "share.timeslice", "share.mig.timeslice")))
	}
	if r.crowded {
		nodes = []string{"node-0=" + pick(r, "t4 share", "a30-bridge share", "t4 share.timeslice")}
	}
	r.Log(nodes)
	w := fleettest.New(r, nodes...)
	r.create(w)
	defer r.remove()
	for i := range 16 {
		if len(r.held) > 0 && r.random.IntN(5) == 0 {
			j := r.random.IntN(len(r.held))
			r.removePod(r.held[j])
			r.held = slices.Delete(r.held, j, j+1)
			continue
		}
		name := fmt.Sprintf("pod-%d", i)
		if r.decide(name, r.claim(name)) {
			r.held = append(r.held, name)
		} else {
			r.removePod(name)
		}
	}
}

// claim returns a random claim.
func (r *round) claim(name string) *resourceapi.ResourceClaim {
	words := pick(r, "", "count=2", "count=4 match=nvlinkDomain", "count=9",
		"class=mps.nvidia.com memory=5Gi", "class=mps.nvidia.com memory=5Gi", "class=mps.nvidia.com memory=12Gi compute=40", "class=mps.nvidia.com memory=70Gi",
		"class=timeslice.nvidia.com", "class=mig-1g.10gb", "class=mig-1g.6gb", "class=mig-3g.40gb count=2", "class=mig.nvidia.com",
		"cel=device.attributes['gpu.nvidia.com'].productName.contains('H100')", "cel=device.attributes['gpu.nvidia.com'].profile == '1g.10gb'")
	if r.crowded {
		words = pick(r, "", "class=mps.nvidia.com memory=5Gi", "class=mps.nvidia.com memory=12Gi")
	}
	c := fleettest.Claim(name, words)
	request := &c.Spec.Devices.Requests[0]
	switch r.random.IntN(6) {
	case 0:
		request.Exactly.Tolerations = []resourceapi.DeviceToleration{{Key: "example.com/repair", Operator: resourceapi.DeviceTolerationOpExists}}
	case 1:
		other := fleettest.Claim(name, "class=mps.nvidia.com memory=3Gi").Spec.Devices.Requests[0]
		other.Name = "other"
		c.Spec.Devices.Requests = append(c.Spec.Devices.Requests, other)
	case 2:
		c.Spec.Devices.Constraints = nil
		request.FirstAvailable = []resourceapi.DeviceSubRequest{
			{Name: "first", DeviceClassName: request.Exactly.DeviceClassName, Selectors: request.Exactly.Selectors, AllocationMode: request.Exactly.AllocationMode, Count: request.Exactly.Count, Capacity: request.Exactly.Capacity},
			{Name: "second", DeviceClassName: "gpu.nvidia.com", AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: 1},
		}
		request.Exactly = nil
	}
	c.Namespace, c.UID = namespace, ""
	return c
}

// decide has a pod scheduled, and compares the decision with the verdict. It reports whether
// the pod is scheduled.
func (r *round) decide(name string, claim *resourceapi.ResourceClaim) bool {
	ctx := r.Context()
	claim, err := r.client.ResourceV1().ResourceClaims(namespace).Create(ctx, claim, metav1.CreateOptions{})
	must(r, err)
	pod := r.pod(name)
	found, err := harness.ReadFleet(ctx, r.client, v1alpha1.DriverName)
	must(r, err)
	verdicts, err := found.NewSearch(0).Verdicts(ctx, pod, claim)
	must(r, err)
	_, err = r.client.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{})
	must(r, err)
	fits := slices.ContainsFunc(verdicts, fleet.Verdict.Fits)
	invalid := slices.ContainsFunc(verdicts, func(v fleet.Verdict) bool { return errors.Is(v.Problem, gpu.ErrInvalid) })
	node, reason := r.decision(name, fits && !invalid)
	switch {
	case invalid:
		// The scheduler gives up at the first node that fails, or finds another one before.
		r.counts["fails"]++
		if node == "" && reason != corev1.PodReasonSchedulerError && reason != corev1.PodReasonUnschedulable {
			r.Errorf("%s: the scheduler: %s, and a verdict is invalid", name, reason)
		}
	case node == "" && fits:
		r.Errorf("%s: the scheduler: %s, and the verdicts: %+v", name, reason, verdicts)
	case node == "":
		r.counts["does not fit"]++
		return r.makeRoom(name, pod, found, claim)
	default:
		r.counts["fits"]++
		r.same(name, node, verdicts)
	}
	return node != ""
}

// makeRoom ends the pods whose end is proven to let the pod run. It reports whether the scheduler then
// places the pod, which it must.
func (r *round) makeRoom(name string, pod *corev1.Pod, found *fleet.Fleet, claim *resourceapi.ResourceClaim) bool {
	room, err := found.NewSearch(0).Room(r.Context(), pod, fleet.RoomRules{AnyPriority: true}, claim)
	must(r, err)
	if !room.Found() {
		return false
	}
	for _, victim := range room.Pods {
		r.removePod(victim.Name)
		r.held = slices.DeleteFunc(r.held, func(name string) bool { return name == victim.Name })
	}
	node, reason := r.decision(name, true)
	r.counts["room is made"]++
	if node == "" {
		r.Errorf("%s: the scheduler: %s, after the end of pods that was to let it run on %s: %v", name, reason, room.Node, room.Pods)
	}
	return node != ""
}

// pod returns a pod with the claim of its name, which some nodes may exclude.
func (r *round) pod(name string) *corev1.Pod {
	pod := fleettest.Pod(name)
	pod.UID, pod.Spec.Containers[0].Image = "", "none"
	pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(pick(r, "0", "1", "3", "5"))}
	if r.random.IntN(4) > 0 {
		pod.Spec.Tolerations = []corev1.Toleration{{Key: "example.com/gpu", Operator: corev1.TolerationOpExists}}
	}
	if r.random.IntN(6) == 0 {
		pod.Spec.NodeSelector = map[string]string{"zone": "a"}
	}
	return pod
}

// decision returns the node of a pod, or the reason why it has none. If the pod is expected
// to fit it waits longer: the scheduler counts a share twice for a moment after it has
// allocated it, and tries the pod again.
func (r *round) decision(name string, expected bool) (node, reason string) {
	limit := 2 * time.Minute
	err := wait.PollUntilContextTimeout(r.Context(), 10*time.Millisecond, limit, true, func(ctx context.Context) (bool, error) {
		pod, err := r.client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		node = pod.Spec.NodeName
		for _, condition := range pod.Status.Conditions {
			if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse {
				reason = condition.Reason
			}
		}
		return node != "" || reason != "" && !expected, nil
	})
	if err != nil && !wait.Interrupted(err) {
		r.Fatal(err)
	}
	return node, reason
}

// same fails unless the verdict of the node has the devices that the claim got.
func (r *round) same(name, node string, verdicts []fleet.Verdict) {
	claim, err := r.client.ResourceV1().ResourceClaims(namespace).Get(r.Context(), name, metav1.GetOptions{})
	must(r, err)
	i := slices.IndexFunc(verdicts, func(v fleet.Verdict) bool { return v.Node == node })
	if i < 0 || !verdicts[i].Fits() {
		r.Errorf("%s is on %s, and the verdicts: %+v", name, node, verdicts)
		return
	}
	if diff := cmp.Diff(devices(*claim.Status.Allocation), devices(verdicts[i].Allocations[0])); diff != "" {
		r.Errorf("devices of %s on %s (-scheduler +verdict):\n%s", name, node, diff)
	}
}

func devices(a resourceapi.AllocationResult) []string {
	var all []string
	for _, d := range a.Devices.Results {
		all = append(all, fmt.Sprintf("%s %s/%s %v", d.Request, d.Pool, d.Device, d.ShareID != nil))
	}
	return all
}

// create writes the cluster, with a taint on some devices.
func (r *round) create(w *fleettest.World) {
	ctx, resources := r.Context(), r.client.ResourceV1()
	for _, class := range w.Classes {
		if _, err := resources.DeviceClasses().Create(ctx, class, metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
			must(r, err)
		}
	}
	for _, slice := range w.Slices {
		_, err := resources.ResourceSlices().Create(ctx, slice, metav1.CreateOptions{})
		must(r, err)
		for i, device := range slice.Spec.Devices {
			if r.random.IntN(4) > 0 {
				continue
			}
			_, err := resources.DeviceTaintRules().Create(ctx, &resourceapi.DeviceTaintRule{
				ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", slice.Name, i)},
				Spec: resourceapi.DeviceTaintRuleSpec{
					DeviceSelector: &resourceapi.DeviceTaintSelector{Pool: &slice.Spec.Pool.Name, Device: &device.Name},
					Taint:          resourceapi.DeviceTaint{Key: "example.com/repair", Effect: pick(r, resourceapi.DeviceTaintEffectNoSchedule, resourceapi.DeviceTaintEffectNone)},
				},
			}, metav1.CreateOptions{})
			must(r, err)
		}
	}
	for _, node := range w.Nodes {
		node.Labels = map[string]string{"zone": pick(r, "a", "a", "b")}
		node.Spec.Unschedulable = r.random.IntN(8) == 0
		if r.random.IntN(2) == 0 {
			node.Spec.Taints = []corev1.Taint{{Key: "example.com/gpu", Effect: pick(r, corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule)}}
		}
		node.Status.Allocatable = corev1.ResourceList{corev1.ResourcePods: resource.MustParse(pick(r, "4", "250")), corev1.ResourceCPU: resource.MustParse("16")}
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		_, err := r.client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
		must(r, err)
	}
}

func (r *round) removePod(name string) {
	must(r, controlplane.RemovePod(context.WithoutCancel(r.Context()), r.client, namespace, name, true))
}

func (r *round) remove() {
	ctx := context.WithoutCancel(r.Context())
	pods, err := r.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	must(r, err)
	for _, pod := range pods.Items {
		r.removePod(pod.Name)
	}
	all := metav1.ListOptions{}
	must(r, r.client.CoreV1().Nodes().DeleteCollection(ctx, metav1.DeleteOptions{}, all))
	must(r, r.client.ResourceV1().ResourceSlices().DeleteCollection(ctx, metav1.DeleteOptions{}, all))
	must(r, r.client.ResourceV1().DeviceTaintRules().DeleteCollection(ctx, metav1.DeleteOptions{}, all))
}
