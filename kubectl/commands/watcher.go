// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/gpu-dra/gpu-dra-driver/kubectl/doctor"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

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

// watchers returns a watcher of each list of objects. It omits the objects that it cannot watch.
func (r reader) watchers(lists ...doctor.List) []watcher {
	core, devices := r.client.CoreV1(), r.client.ResourceV1()
	all := []watcher{
		{doctor.Nodes, watchableOf(core.Nodes()), nil},
		{doctor.Pods, watchableOf(core.Pods(metav1.NamespaceAll)), watchableOf(core.Pods(r.namespace))},
		{doctor.Claims, watchableOf(devices.ResourceClaims(metav1.NamespaceAll)), watchableOf(devices.ResourceClaims(r.namespace))},
		{doctor.Slices, watchableOf(devices.ResourceSlices()), nil},
		{doctor.Classes, watchableOf(devices.DeviceClasses()), nil},
		{doctor.Rules, watchableOf(devices.DeviceTaintRules()), nil},
	}
	return slices.DeleteFunc(all, func(w watcher) bool { return !slices.Contains(lists, w.list) })
}

// errUnread means that the user may not list the objects, so a watch makes no sense.
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
		pauseFor(ctx, pause, nil)
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
			if event.Type != watch.Bookmark {
				changed()
			}
		case <-ctx.Done():
			return nil
		}
	}
}
