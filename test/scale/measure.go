// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/test/internal/controlplane"
)

// Limits of a measurement.
const (
	// podsTimeout is the time without a scheduled pod after which the measurement ends.
	podsTimeout = 20 * time.Second
	// quiet is the processor time of the scheduler in a second below which it counts as
	// idle.
	quiet = 50 * time.Millisecond
	// warmUp is the number of pods before a measurement.
	warmUp = 20
)

// result is one measurement: pods of one kind in a fleet.
type result struct {
	Publication string
	Bytes       int
	// Fill is the percentage of the fleet that Claims hold.
	Fill   int
	Claims int
	Kind   string
	// Pods is how many were scheduled; 0 if such claims fit on no node. For the kind
	// "taint" it is the number of nodes on which a GPU got a taint.
	Pods          int
	PodsPerSecond float64
	// SchedulerTime and APIServerTime are processor times for each pod, in
	// milliseconds.
	SchedulerTime float64
	APIServerTime float64
	// SchedulerMemory and APIServerMemory are resident after the pods, in bytes.
	SchedulerMemory int64
	APIServerMemory int64
}

// controlPlane is a control plane that is measured.
type controlPlane struct{ *controlplane.ControlPlane }

// measure has pods of each kind scheduled on the fleet, at each fill.
func measure(ctx context.Context, o options, f fleet, kinds []claimKind, fills []int) (_ []result, err error) {
	size, err := f.bytes()
	if err != nil {
		return nil, err
	}
	started, err := controlplane.Start(ctx, o.bin, 0)
	if err != nil {
		return nil, err
	}
	c := &controlPlane{started}
	defer func() { err = errors.Join(err, c.Stop()) }()
	progress("%s: writing %d nodes of %d bytes", f.publication.name, f.nodes, size)
	if err := f.write(ctx, c.Client); err != nil {
		return nil, err
	}
	fill, err := newFilling(f)
	if err != nil {
		return nil, err
	}
	var results []result
	for _, percent := range fills {
		claims, err := fill.to(ctx, c.Client, percent)
		if err != nil {
			return nil, fmt.Errorf("fill the fleet: %w", err)
		}
		for _, k := range kinds {
			if !slices.Contains(f.publication.measured, k.name) {
				continue
			}
			r, err := c.schedulePods(ctx, k, warmUp)
			if err == nil && r.Pods > 0 {
				r, err = c.schedulePods(ctx, k, o.pods)
			}
			if err != nil {
				return nil, fmt.Errorf("%s at %d %%: %w", k.name, percent, err)
			}
			r.Publication, r.Bytes, r.Fill, r.Claims = f.publication.name, size, percent, claims
			progress("%s, %d %% held by %d claims: %s", r.Publication, percent, claims, r)
			results = append(results, r)
		}
		if percent == fills[len(fills)-1] {
			r, err := c.taint(ctx, f)
			if err != nil {
				return nil, fmt.Errorf("taint GPUs: %w", err)
			}
			r.Publication, r.Bytes, r.Fill, r.Claims = f.publication.name, size, percent, claims
			progress("%s, %d %% held by %d claims: %s", r.Publication, percent, claims, r)
			results = append(results, r)
		}
	}
	return results, nil
}

// taint adds a taint to a GPU of every tenth node, and returns the cost of each.
func (c *controlPlane) taint(ctx context.Context, f fleet) (result, error) {
	if err := c.idle(ctx); err != nil {
		return result{}, err
	}
	before, err := c.processorTimes()
	if err != nil {
		return result{}, err
	}
	began := time.Now()
	n := (f.nodes + 9) / 10
	if err := inParallel(ctx, n, func(ctx context.Context, i int) error {
		all, err := f.slices(nodeName(10*i), nil)
		if err != nil {
			return err
		}
		client := c.Client.ResourceV1().ResourceSlices()
		slice, err := client.Get(ctx, all[0].Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		slice.Spec.Devices[0].Taints = []resourceapi.DeviceTaint{{Key: v1alpha1.TaintUnhealthy, Value: "xid-79", Effect: resourceapi.DeviceTaintEffectNoSchedule}}
		_, err = client.Update(ctx, slice, metav1.UpdateOptions{})
		return err
	}); err != nil {
		return result{}, err
	}
	took := time.Since(began)
	if err := c.idle(ctx); err != nil {
		return result{}, err
	}
	return c.result("taint", n, took, before)
}

// result returns the figures of n pods, or taints, since the processor times.
func (c *controlPlane) result(kind string, n int, took time.Duration, before [2]time.Duration) (result, error) {
	after, err := c.processorTimes()
	if err != nil {
		return result{}, err
	}
	each := func(i int) float64 { return float64((after[i] - before[i]).Microseconds()) / 1000 / float64(n) }
	r := result{Kind: kind, Pods: n, PodsPerSecond: float64(n) / took.Seconds(), SchedulerTime: each(0), APIServerTime: each(1)}
	if r.SchedulerMemory, err = c.Scheduler.Memory(); err != nil {
		return r, err
	}
	r.APIServerMemory, err = c.APIServer.Memory()
	return r, err
}

// String returns the figures in one line.
func (r result) String() string {
	return fmt.Sprintf("%d pods (%s), %.1f a second, scheduler %.1f ms and API server %.1f ms a pod, %.1f and %.1f GB", r.Pods, r.Kind,
		r.PodsPerSecond, r.SchedulerTime, r.APIServerTime, gigabytes(r.SchedulerMemory), gigabytes(r.APIServerMemory))
}

func gigabytes(n int64) float64 { return float64(n) / 1e9 }

// schedulePods measures how pods of the kind are scheduled, and removes them.
func (c *controlPlane) schedulePods(ctx context.Context, k claimKind, n int) (_ result, err error) {
	defer func() { err = errors.Join(err, c.removePods(context.WithoutCancel(ctx), k, n)) }()
	if k.devices != nil {
		if err := inParallel(ctx, n, func(ctx context.Context, i int) error {
			claim := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: podName(i)}, Spec: resourceapi.ResourceClaimSpec{Devices: *k.devices}}
			_, err := c.Client.ResourceV1().ResourceClaims(namespace).Create(ctx, claim, metav1.CreateOptions{})
			return err
		}); err != nil {
			return result{}, err
		}
	}
	if err := c.idle(ctx); err != nil {
		return result{}, err
	}
	names, stop := c.watchScheduled(ctx)
	defer stop()
	before, err := c.processorTimes()
	if err != nil {
		return result{}, err
	}
	began := time.Now()
	created := make(chan error, 1)
	go func() {
		created <- inParallel(ctx, n, func(ctx context.Context, i int) error {
			_, err := c.Client.CoreV1().Pods(namespace).Create(ctx, pod(podName(i), k), metav1.CreateOptions{})
			return err
		})
	}()
	scheduled, last := map[string]bool{}, began
	timer := time.NewTimer(podsTimeout)
	defer timer.Stop()
	for len(scheduled) < n {
		select {
		case name := <-names:
			if !scheduled[name] {
				scheduled[name], last = true, time.Now()
				timer.Reset(podsTimeout)
			}
			continue
		case <-timer.C:
		case <-ctx.Done():
			return result{}, ctx.Err()
		}
		break
	}
	if err := <-created; err != nil {
		return result{}, err
	}
	if len(scheduled) == 0 {
		return result{Kind: k.name}, nil // such claims fit on no node
	}
	return c.result(k.name, len(scheduled), last.Sub(began), before)
}

// watchScheduled returns a channel with the names of scheduled pods, some more than once,
// until stop is called.
func (c *controlPlane) watchScheduled(ctx context.Context) (names <-chan string, stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	found := make(chan string)
	report := func(object any) {
		if p, ok := object.(*corev1.Pod); ok && p.Spec.NodeName != "" {
			select {
			case found <- p.Name:
			case <-ctx.Done():
			}
		}
	}
	informer := coreinformers.NewPodInformer(c.Client, namespace, 0, nil)
	// It fails only after the informer has ended.
	_, _ = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: report, UpdateFunc: func(_, object any) { report(object) }})
	var running sync.WaitGroup
	running.Go(func() { informer.RunWithContext(ctx) })
	cache.WaitForCacheSync(ctx.Done(), informer.HasSynced)
	return found, func() {
		cancel()
		running.Wait()
	}
}

// processorTimes returns those of the scheduler and of the API server.
func (c *controlPlane) processorTimes() (times [2]time.Duration, err error) {
	for i, d := range []*controlplane.Process{c.Scheduler, c.APIServer} {
		if times[i], err = d.ProcessorTime(); err != nil {
			return times, err
		}
	}
	return times, nil
}

// idle waits until the scheduler has handled all events.
func (c *controlPlane) idle(ctx context.Context) error {
	var last time.Duration
	return wait.PollUntilContextTimeout(ctx, time.Second, 5*time.Minute, true, func(context.Context) (bool, error) {
		now, err := c.Scheduler.ProcessorTime()
		used := now - last
		last = now
		return used < quiet, err
	})
}

func podName(i int) string { return "pod-" + strconv.Itoa(i) }

func pod(name string, k claimKind) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "none"}}}}
	if k.devices != nil {
		p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: &name}}
		p.Spec.Containers[0].Resources.Claims = []corev1.ResourceClaim{{Name: "gpu"}}
	}
	return p
}

// removePods removes the pods and their claims.
func (c *controlPlane) removePods(ctx context.Context, k claimKind, n int) error {
	return inParallel(ctx, n, func(ctx context.Context, i int) error {
		return controlplane.RemovePod(ctx, c.Client, namespace, podName(i), k.devices != nil)
	})
}
