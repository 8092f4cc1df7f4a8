// SPDX-License-Identifier: Apache-2.0

// Package roomer makes room for pods that wait: it does for each of them, within limits, what "kubectl gpu room
// --evict" does for one. docs/dev/decisions/0047 says why it is a controller.
package roomer

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	schedulinghelper "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/cordon"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/evict"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/lists"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/rows"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

const (
	// period is the time between two rounds. A round begins one room at most.
	period = 30 * time.Second
	// searchLimit is the time of all searches of a round, and roundLimit that of a whole round.
	searchLimit, roundLimit = 10 * time.Second, 2 * time.Minute
	// budgetTime is the time for which evictions count.
	budgetTime = time.Hour
	// pauseAfterFailure is the time until room is made again for a pod that did not get its node. What keeps it
	// from its node, such as a volume, is not known to the search.
	pauseAfterFailure = time.Hour
)

// Options are the settings of the controller.
type Options struct {
	Client kubernetes.Interface
	// Driver is the name of the driver, and Instance the name of this process in events.
	Driver, Instance string
	// After is the time that a pod waits before room is made for it, and Timeout that until a room is given up.
	After, Timeout time.Duration
	// EvictionsPerHour is the most pods that are evicted in an hour.
	EvictionsPerHour int
	// DryRun only says what would be done.
	DryRun bool
}

// Controller makes room for pods.
type Controller struct {
	Options
	rooms, evicted, failures prometheus.Counter
	last                     prometheus.Gauge
	running                  sync.WaitGroup

	mu sync.Mutex
	// due is the time from which on room may be made for each pod that waits.
	due map[types.UID]time.Time
	// active are the rooms that are being made, by node.
	active map[string]*active
	// evictions are the times of the evictions of the last hour.
	evictions []time.Time
}

// active is a room that is being made.
type active struct {
	pod types.UID
	// left is the number of pods that are not evicted yet.
	left int
}

// New returns a controller that counts in the registry.
func New(o Options, registry prometheus.Registerer) *Controller {
	c := &Controller{
		Options: o, due: map[types.UID]time.Time{}, active: map[string]*active{},
		rooms:    prometheus.NewCounter(prometheus.CounterOpts{Name: "gpu_dra_rooms_made_total", Help: "Pods that got their node after the eviction of others."}),
		evicted:  prometheus.NewCounter(prometheus.CounterOpts{Name: "gpu_dra_room_evictions_total", Help: "Pods that were evicted."}),
		failures: prometheus.NewCounter(prometheus.CounterOpts{Name: "gpu_dra_room_failures_total", Help: "Rooms that were given up, and rounds that failed."}),
		last:     prometheus.NewGauge(prometheus.GaugeOpts{Name: "gpu_dra_room_last_success_timestamp_seconds", Help: "Time of the last round without a failure."}),
	}
	registry.MustRegister(c.rooms, c.evicted, c.failures, c.last)
	return c
}

// Run makes room until ctx ends, and has removed its rules then.
func (c *Controller) Run(ctx context.Context) {
	defer c.running.Wait()
	for {
		switch err := c.round(ctx); {
		case ctx.Err() != nil:
			return
		case err != nil:
			c.failures.Inc()
			klog.FromContext(ctx).Error(err, "Cannot make room, will retry")
		default:
			c.last.SetToCurrentTime()
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(period):
		}
	}
}

// round removes rules that were left behind, and begins a room for one of the pods that wait.
func (c *Controller) round(ctx context.Context) error {
	limited, cancel := context.WithTimeoutCause(ctx, roundLimit, fmt.Errorf("%w after %s", gpu.ErrTimeout, roundLimit))
	defer cancel()
	if err := c.removeLeft(limited); err != nil {
		return err
	}
	waiting, err := c.waiting(limited)
	if err != nil || len(waiting) == 0 {
		return err
	}
	objects, _, err := lists.Objects(limited, c.Client, metav1.NamespaceAll, lists.All...)
	if err != nil {
		return err
	}
	var budgets []*policyv1.PodDisruptionBudget
	if err := lists.Into(limited, &budgets, lists.Of(c.Client.PolicyV1().PodDisruptionBudgets(metav1.NamespaceAll).List)); err != nil {
		return fmt.Errorf("list poddisruptionbudgets: %w", err)
	}
	cluster := rows.New(objects, c.Driver, nil)
	search := cluster.NewSearch(searchLimit)
	for _, earlier := range waiting {
		pod := fleet.First(objects.Pods, func(pod *corev1.Pod) bool { return pod.UID == earlier.UID })
		if pod == nil || !waits(pod) {
			continue
		}
		claims, missing := cluster.ClaimsOf(pod)
		if len(missing) > 0 {
			continue
		}
		found, err := search.Room(limited, pod, fleet.RoomRules{Budgets: budgets}, claims...)
		if err != nil {
			return fmt.Errorf("search room for pod %s/%s: %w", pod.Namespace, pod.Name, err)
		}
		if c.begin(ctx, cluster, pod, claims, found) {
			return nil
		}
	}
	return nil
}

// removeLeft removes the rules of rooms that no program makes any more.
func (c *Controller) removeLeft(ctx context.Context) error {
	var rules []*resourceapi.DeviceTaintRule
	err := lists.Into(ctx, &rules, lists.Of(c.Client.ResourceV1().DeviceTaintRules().List))
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("%w: the API server does not serve DeviceTaintRules of resource.k8s.io/v1, which keep devices for a pod; it needs Kubernetes 1.37 or newer", gpu.ErrNotSupported)
	}
	if err != nil {
		return fmt.Errorf("list devicetaintrules: %w", err)
	}
	c.mu.Lock()
	pods := c.activePods()
	c.mu.Unlock()
	left := cordon.LeftByController(rules, pods, time.Now())
	if len(left) > 0 {
		klog.FromContext(ctx).Info("Removing rules of an earlier run", "rules", len(left))
	}
	return c.requests(ctx).Remove(ctx, left)
}

// waiting returns the pods that have waited long enough, the highest priority first, then the one that is due the
// longest.
func (c *Controller) waiting(ctx context.Context) ([]*corev1.Pod, error) {
	var pods []*corev1.Pod
	if err := lists.Into(ctx, &pods, func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		o.FieldSelector = "spec.nodeName="
		return c.Client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, o)
	}); err != nil {
		return nil, fmt.Errorf("list pods that wait: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	now, due, active := time.Now(), map[types.UID]time.Time{}, c.activePods()
	pods = slices.DeleteFunc(pods, func(pod *corev1.Pod) bool {
		if !waits(pod) {
			return true
		}
		at, ok := c.due[pod.UID]
		if !ok {
			at = now.Add(c.After)
		}
		due[pod.UID] = at
		return now.Before(at) || slices.Contains(active, pod.UID)
	})
	c.due = due
	slices.SortFunc(pods, func(a, b *corev1.Pod) int {
		return cmp.Or(cmp.Compare(schedulinghelper.PodPriority(b), schedulinghelper.PodPriority(a)), due[a.UID].Compare(due[b.UID]),
			fleet.ByName(a, b))
	})
	return pods, nil
}

// waits reports whether the scheduler has tried a pod for which others may end.
func waits(pod *corev1.Pod) bool {
	never := pod.Spec.PreemptionPolicy != nil && *pod.Spec.PreemptionPolicy == corev1.PreemptNever
	return pod.Spec.NodeName == "" && !fleet.Ends(pod) && !never && len(pod.Spec.ResourceClaims) > 0 && fleet.GroupOf(pod) == "" &&
		slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable
		})
}

// activePods returns the pods for which room is being made. The caller holds the lock.
func (c *Controller) activePods() (pods []types.UID) {
	for _, a := range c.active {
		pods = append(pods, a.pod)
	}
	return pods
}

// begin begins to make the room that was found, if the limits admit it.
func (c *Controller) begin(ctx context.Context, cluster *rows.Cluster, pod *corev1.Pod, claims []*resourceapi.ResourceClaim, found fleet.Room) bool {
	now := time.Now()
	c.mu.Lock()
	busy, budget := c.active[found.Node] != nil, c.budget(now)
	if !busy {
		c.due[pod.UID] = now.Add(c.After)
	}
	c.mu.Unlock()
	if busy || len(found.Pods) == 0 {
		return false
	}
	ends := fmt.Sprintf("%s of a lower priority on node %s", fleet.Number(len(found.Pods), "pod"), found.Node)
	kept := cordon.NewRoom(cordon.Controller, pod, claims, found.Allocations, cluster.Nodes(), now.Add(c.Timeout))
	switch {
	case len(kept) == 0:
		c.event(ctx, pod, corev1.EventTypeWarning, reasonNoRoom, "%s would end for this pod, but its claims do not tolerate the taint %s, so another pod could get the devices first: %s",
			ends, v1alpha1.TaintRoom, gpu.Page("docs/user/explain.md#make-room-for-a-pod"))
	case !found.Complete:
		c.event(ctx, pod, corev1.EventTypeWarning, reasonNoRoom, "%s would end for this pod, but the search for fewer did not end within %s: kubectl gpu room %s --evict --limit searches longer", ends, searchLimit, pod.Name)
	case len(found.Pods) > budget:
		c.event(ctx, pod, corev1.EventTypeWarning, reasonNoRoom, "%s would end for this pod, but the limit of evictions in an hour (%d) does not admit it", ends, c.EvictionsPerHour)
	case c.DryRun:
		c.event(ctx, pod, corev1.EventTypeNormal, reasonRoom, "dry run: %s would be evicted for this pod", ends)
		for _, p := range found.Pods {
			c.event(ctx, p, corev1.EventTypeNormal, reasonEvicted, "dry run: would be evicted for a pod of a higher priority")
		}
	default:
		c.event(ctx, pod, corev1.EventTypeNormal, reasonRoom, "%s will be evicted for this pod", ends)
		c.mu.Lock()
		c.active[found.Node] = &active{pod.UID, len(found.Pods)}
		c.mu.Unlock()
		c.running.Go(func() { c.makeRoom(ctx, evict.Room{Pod: pod, Found: found, Kept: kept, MustKeep: true}) })
		return true
	}
	return false
}

// budget returns the number of pods that may be evicted now, besides those of the active rooms.
func (c *Controller) budget(now time.Time) int {
	c.evictions = slices.DeleteFunc(c.evictions, func(at time.Time) bool { return now.Sub(at) >= budgetTime })
	left := c.EvictionsPerHour - len(c.evictions)
	for _, a := range c.active {
		left -= a.left
	}
	return left
}

// makeRoom makes a room of the active ones.
func (c *Controller) makeRoom(ctx context.Context, room evict.Room) {
	node := room.Found.Node
	room.Evicted = func(pod *corev1.Pod) {
		c.evicted.Inc()
		c.mu.Lock()
		c.evictions = append(c.evictions, time.Now())
		c.active[node].left--
		c.mu.Unlock()
		c.event(ctx, pod, corev1.EventTypeWarning, reasonEvicted, "evicted for a pod of a higher priority, which waited for its devices")
	}
	limited, cancel := context.WithTimeoutCause(ctx, c.Timeout, fmt.Errorf("%w after %s (--timeout)", gpu.ErrTimeout, c.Timeout))
	err := c.requests(ctx).MakeRoom(limited, room)
	cancel()
	c.mu.Lock()
	delete(c.active, node)
	if err != nil {
		c.due[room.Pod.UID] = time.Now().Add(pauseAfterFailure)
	}
	c.mu.Unlock()
	switch {
	case err == nil:
		c.rooms.Inc()
		return
	case ctx.Err() != nil: // the process ends
		klog.FromContext(ctx).Info("The room ends with the process", "err", err)
		return
	}
	c.failures.Inc()
	klog.FromContext(ctx).Error(err, "Cannot make room", "pod", klog.KObj(room.Pod), "node", node)
	// The error names pods of other tenants.
	c.event(ctx, room.Pod, corev1.EventTypeWarning, reasonNoRoom, "this pod did not get its node %s; the next attempt is in an hour at the earliest", node)
}

// requests logs the steps.
func (c *Controller) requests(ctx context.Context) evict.Requests {
	return evict.Requests{
		Client: c.Client, GracePeriod: -1,
		Say: func(format string, args ...any) {
			klog.FromContext(ctx).Info("Making room", "step", fmt.Sprintf(format, args...))
		},
		Failed: func(request string, err error) error { return fmt.Errorf("%s: %w", request, err) },
	}
}
