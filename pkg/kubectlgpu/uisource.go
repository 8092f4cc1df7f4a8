// SPDX-License-Identifier: Apache-2.0

package kubectlgpu

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	agentv1 "github.com/gpu-dra/gpu-dra-driver/api/agent/v1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/doctor"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpupages"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpurows"
)

// uiSource reads the cluster for the pages.
type uiSource struct {
	reader
	o *options
}

// Read implements [gpupages.Source]. It reads the driver's pods too: without an agent, the health of
// a GPU is not known.
func (s uiSource) Read(ctx context.Context) (*gpurows.Cluster, error) {
	cluster, err := s.reader.Read(ctx)
	if err != nil {
		return nil, err
	}
	v := &view{Cluster: cluster, reader: s.reader}
	if err := s.o.addAgents(ctx, v); err != nil {
		return nil, err
	}
	if reason := v.pods.Unread[doctor.DriverPods]; reason != "" {
		cluster.Refused[doctor.DriverPods] = reason + " Whether the agents run is not known: the health of GPUs is as their nodes last published it."
	}
	return cluster, nil
}

// Inspect implements [gpupages.Source].
func (s uiSource) Inspect(ctx context.Context, cluster *gpurows.Cluster) (gpupages.Inspection, error) {
	c, err := s.o.examine(ctx, s.client, cluster.Objects, cluster.Refused, nil)
	if err != nil {
		return gpupages.Inspection{}, err
	}
	found := gpupages.Inspection{Findings: doctor.Examine(c), Uses: gpurows.Uses{}}
	// The findings say so if no agent can be queried.
	answers, _ := queryAgents[agentv1.Report](ctx, s.client, c, nil, agentv1.PathClaims)
	for _, node := range slices.Sorted(maps.Keys(answers)) {
		if err := answers[node].err; err != nil {
			found.Problems = append(found.Problems, fmt.Sprintf("The use on node %s is not known: %v.", node, err))
			continue
		}
		found.Uses[node] = *answers[node].value
	}
	return found, nil
}

// Pauses of a watch that ends or fails.
const (
	watchPause     = time.Second
	mostWatchPause = 30 * time.Second
)

// watcher watches the objects of a kind.
type watcher struct {
	list  doctor.List
	all   watchable
	inOwn watchable // in the user's namespace; nil for objects without a namespace
}

// watchable is the objects of a kind.
type watchable interface {
	first(context.Context) (resourceVersion string, err error)
	watch(ctx context.Context, resourceVersion string) (watch.Interface, error)
}

// typedClient lists and watches the objects of a kind.
type typedClient[L runtime.Object] interface {
	List(context.Context, metav1.ListOptions) (L, error)
	Watch(context.Context, metav1.ListOptions) (watch.Interface, error)
}

type objectsOf[L runtime.Object] struct{ typedClient[L] }

// first returns the version of the list now.
func (o objectsOf[L]) first(ctx context.Context) (string, error) {
	found, err := o.List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return "", err
	}
	list, ok := any(found).(metav1.ListInterface)
	if !ok {
		return "", fmt.Errorf("%T: %w: not a list", found, gpu.ErrNotSupported)
	}
	return list.GetResourceVersion(), nil
}

func (o objectsOf[L]) watch(ctx context.Context, resourceVersion string) (watch.Interface, error) {
	return o.Watch(ctx, metav1.ListOptions{ResourceVersion: resourceVersion})
}

func watchableOf[L runtime.Object](c typedClient[L]) watchable { return objectsOf[L]{c} }

// Watch implements [gpupages.Source].
func (s uiSource) Watch(ctx context.Context, changed func()) error {
	core, devices := s.client.CoreV1(), s.client.ResourceV1()
	all := []watcher{
		{doctor.Nodes, watchableOf(core.Nodes()), nil},
		{doctor.Pods, watchableOf(core.Pods(metav1.NamespaceAll)), watchableOf(core.Pods(s.namespace))},
		{doctor.Claims, watchableOf(devices.ResourceClaims(metav1.NamespaceAll)), watchableOf(devices.ResourceClaims(s.namespace))},
		{doctor.Slices, watchableOf(devices.ResourceSlices()), nil},
		{doctor.Classes, watchableOf(devices.DeviceClasses()), nil},
		{doctor.Rules, watchableOf(devices.DeviceTaintRules()), nil},
	}
	var waiting atomic.Int32
	waiting.Store(int32(len(all))) //nolint:gosec // six
	running, ctx := errgroup.WithContext(ctx)
	for _, w := range all {
		running.Go(func() error {
			begun := false
			return w.run(ctx, func() {
				if !begun {
					begun = true
					waiting.Add(-1)
				}
				if waiting.Load() <= 0 {
					changed()
				}
			})
		})
	}
	return running.Wait()
}

// errUnread means that the user may not list the objects, so the pages lack them.
var errUnread = errors.New("not read")

// run calls changed when the watch begins, after each change and after each break, until ctx
// ends. The error wraps [gpu.ErrPermission] if the user may read the objects, but not watch them.
func (w watcher) run(ctx context.Context, changed func()) error {
	from, pause := w.all, watchPause
	for ctx.Err() == nil {
		err := follow(ctx, from, changed)
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // the caller has ended the watch
		case errors.Is(err, errUnread) && from == w.all && w.inOwn != nil:
			from = w.inOwn
			continue
		case errors.Is(err, errUnread):
			changed()
			<-ctx.Done()
			continue
		case apierrors.IsForbidden(err):
			return fmt.Errorf("watch %s: %w", w.list, gpu.ErrPermission)
		case err == nil:
			pause = watchPause
		}
		changed()
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
		pause = min(2*pause, mostWatchPause)
	}
	return nil
}

// follow watches objects until the watch ends.
func follow(ctx context.Context, objects watchable, changed func()) error {
	version, err := objects.first(ctx)
	if apierrors.IsForbidden(err) || apierrors.IsNotFound(err) {
		return fmt.Errorf("%w: %w", errUnread, err)
	}
	if err != nil {
		return err
	}
	events, err := objects.watch(ctx, version)
	if err != nil {
		return err
	}
	defer events.Stop()
	changed()
	for {
		select {
		case event, open := <-events.ResultChan():
			switch {
			case !open:
				return nil
			case event.Type == watch.Error:
				return apierrors.FromObject(event.Object)
			}
			changed()
		case <-ctx.Done():
			return nil
		}
	}
}
