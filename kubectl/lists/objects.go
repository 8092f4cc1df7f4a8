// SPDX-License-Identifier: Apache-2.0

package lists

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/pager"

	"github.com/gpu-dra/gpu-dra-driver/kubectl/doctor"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/rows"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// All are the lists of [Objects].
var All = []doctor.List{doctor.Nodes, doctor.Pods, doctor.Claims, doctor.Slices, doctor.Classes, doctor.Rules}

// Objects reads the objects of the cluster that concern devices. If the user may read
// pods or claims of the namespace only, it returns these. refused has a sentence for each
// list that the user may not read as a whole. An error wraps [gpu.ErrNotSupported] if the API
// server is too old, and [gpu.ErrPermission] if the user may not read a required list at all.
// The objects are from the cache of an API server, and can be old.
func Objects(ctx context.Context, client kubernetes.Interface, namespace string, required ...doctor.List) (objects fleet.Objects, refused map[doctor.List]string, err error) {
	return read(ctx, client, &listing{version: "0", namespace: namespace, required: required})
}

// Newest is like [Objects] for commands that change something: an old list may lack their last change.
func Newest(ctx context.Context, client kubernetes.Interface, namespace string, required ...doctor.List) (objects fleet.Objects, refused map[doctor.List]string, err error) {
	return read(ctx, client, &listing{namespace: namespace, required: required})
}

func read(ctx context.Context, client kubernetes.Interface, r *listing) (objects fleet.Objects, refused map[doctor.List]string, err error) {
	core, devices := client.CoreV1(), client.ResourceV1()
	r.refused = map[doctor.List]string{}
	readList(ctx, r, doctor.Nodes, &objects.Nodes, Of(core.Nodes().List), nil)
	readList(ctx, r, doctor.Pods, &objects.Pods, Of(core.Pods(metav1.NamespaceAll).List), Of(core.Pods(r.namespace).List))
	readList(ctx, r, doctor.Claims, &objects.Claims, Of(devices.ResourceClaims(metav1.NamespaceAll).List), Of(devices.ResourceClaims(r.namespace).List))
	readList(ctx, r, doctor.Slices, &objects.Slices, Of(devices.ResourceSlices().List), nil)
	readList(ctx, r, doctor.Classes, &objects.Classes, Of(devices.DeviceClasses().List), nil)
	readList(ctx, r, doctor.Rules, &objects.TaintRules, Of(devices.DeviceTaintRules().List), nil)
	r.running.Wait()
	slices.SortFunc(r.failures, func(a, b error) int { return cmp.Compare(a.Error(), b.Error()) })
	return objects, r.refused, errors.Join(r.failures...)
}

// listing is several lists that are read at a time.
type listing struct {
	// version is "" for the newest objects.
	version, namespace string
	required           []doctor.List
	running            sync.WaitGroup

	mu       sync.Mutex
	refused  map[doctor.List]string
	failures []error
}

// readList starts to read a list. own lists the objects of the namespace for a user who may
// not read all; nil for objects without a namespace.
func readList[T any](ctx context.Context, r *listing, name doctor.List, to *[]T, all, own pager.ListPageFunc) {
	r.running.Go(func() {
		err := into(ctx, r.version, to, all)
		sentence := ""
		if apierrors.IsForbidden(err) {
			sentence = fmt.Sprintf("You have no right to list %s: ask an administrator for the ClusterRole %s.", name, roleFor(name))
			if own != nil {
				if err = into(ctx, r.version, to, own); err == nil {
					sentence = fmt.Sprintf("You have no right to list %s of all namespaces, only of %s: devices that seem free may be in use. Ask an administrator for the ClusterRole %s.", name, r.namespace, roleFor(name))
				}
			}
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		if sentence != "" {
			r.refused[name] = sentence
		}
		switch {
		case apierrors.IsForbidden(err) && slices.Contains(r.required, name):
			r.failures = append(r.failures, fmt.Errorf("list %s: %w: the output would be wrong without this right: ask an administrator for the ClusterRole %s", name, gpu.ErrPermission, roleFor(name)))
		case apierrors.IsForbidden(err), apierrors.IsNotFound(err) && name == doctor.Rules:
			// Releases before 1.37 do not serve rules, or as a beta.
		case apierrors.IsNotFound(err):
			r.failures = append(r.failures, fmt.Errorf("list %s: %w: the API server does not serve resource.k8s.io/v1; it needs Kubernetes 1.34 or newer", name, gpu.ErrNotSupported))
		case err != nil:
			r.failures = append(r.failures, fmt.Errorf("list %s: %w", name, err))
		}
	})
}

// roleFor returns the ClusterRole of the chart that has the right to a list.
func roleFor(list doctor.List) string {
	if slices.Contains([]doctor.List{doctor.Slices, doctor.Classes, doctor.Rules}, list) {
		return rows.RoleDevices
	}
	return doctor.RoleViewer
}
