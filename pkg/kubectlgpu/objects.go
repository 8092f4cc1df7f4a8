// SPDX-License-Identifier: Apache-2.0

package kubectlgpu

import (
	"context"
	"fmt"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/pager"

	"github.com/gpu-dra/gpu-dra-driver/pkg/fleet"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// readObjects reads the objects of the cluster that concern devices. missing names the right
// for each list that the user may not read; the objects lack these lists. An error wraps
// [gpu.ErrNotSupported] if the API server is too old.
func readObjects(ctx context.Context, client kubernetes.Interface) (objects fleet.Objects, missing []string, err error) {
	core, devices := client.CoreV1(), client.ResourceV1()
	everywhere := metav1.NamespaceAll
	var mu sync.Mutex
	var running sync.WaitGroup
	read := func(resource string, page pager.ListPageFunc, add func(runtime.Object)) {
		running.Go(func() {
			var all []runtime.Object
			listErr := pager.New(page).EachListItem(ctx, metav1.ListOptions{ResourceVersion: "0"}, func(o runtime.Object) error {
				all = append(all, o)
				return nil
			})
			mu.Lock()
			defer mu.Unlock()
			switch {
			case apierrors.IsForbidden(listErr):
				missing = append(missing, "list "+resource)
			case apierrors.IsNotFound(listErr) && resource == taintRules:
				// Releases before 1.37 do not serve them, or as a beta.
			case apierrors.IsNotFound(listErr):
				err = fmt.Errorf("list %s: %w: the API server does not serve resource.k8s.io/v1; it needs Kubernetes 1.34 or newer", resource, gpu.ErrNotSupported)
			case listErr != nil:
				err = fmt.Errorf("list %s: %w", resource, listErr)
			}
			for _, o := range all {
				add(o)
			}
		})
	}
	read("nodes", func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		return core.Nodes().List(ctx, o)
	},
		func(o runtime.Object) { objects.Nodes = appendAs(objects.Nodes, o) })
	read("pods", func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		return core.Pods(everywhere).List(ctx, o)
	},
		func(o runtime.Object) { objects.Pods = appendAs(objects.Pods, o) })
	read("resourceclaims.resource.k8s.io", func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		return devices.ResourceClaims(everywhere).List(ctx, o)
	},
		func(o runtime.Object) { objects.Claims = appendAs(objects.Claims, o) })
	read("resourceslices.resource.k8s.io", func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		return devices.ResourceSlices().List(ctx, o)
	},
		func(o runtime.Object) { objects.Slices = appendAs(objects.Slices, o) })
	read("deviceclasses.resource.k8s.io", func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		return devices.DeviceClasses().List(ctx, o)
	},
		func(o runtime.Object) { objects.Classes = appendAs(objects.Classes, o) })
	read(taintRules, func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		return devices.DeviceTaintRules().List(ctx, o)
	},
		func(o runtime.Object) { objects.TaintRules = appendAs(objects.TaintRules, o) })
	running.Wait()
	slices.Sort(missing)
	return objects, missing, err
}

const taintRules = "devicetaintrules.resource.k8s.io"

func appendAs[T runtime.Object](all []T, o runtime.Object) []T {
	if item, ok := o.(T); ok {
		return append(all, item)
	}
	return all
}
