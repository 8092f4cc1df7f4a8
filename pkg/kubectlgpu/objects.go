// SPDX-License-Identifier: Apache-2.0

package kubectlgpu

import (
	"cmp"
	"context"
	"errors"
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

// The lists that commands read, as the API server names them.
const (
	nodeList  = "nodes"
	podList   = "pods"
	claimList = "resourceclaims.resource.k8s.io"
	sliceList = "resourceslices.resource.k8s.io"
	classList = "deviceclasses.resource.k8s.io"
	ruleList  = "devicetaintrules.resource.k8s.io"
)

// listFunc lists objects of a namespace, or of all if it is "".
type listFunc func(ctx context.Context, namespace string, o metav1.ListOptions) (runtime.Object, error)

// readObjects reads the objects of the cluster that concern devices. If the user may read
// pods or claims of the namespace only, it returns these. refused has a sentence for each
// list that the user may not read as a whole, by the name of the list. An error wraps
// [gpu.ErrNotSupported] if the API server is too old, and [gpu.ErrPermission] if the user may
// not read a required list at all.
func readObjects(ctx context.Context, client kubernetes.Interface, namespace string, required ...string) (objects fleet.Objects, refused map[string]string, err error) {
	core, devices := client.CoreV1(), client.ResourceV1()
	refused = map[string]string{}
	var mu sync.Mutex
	var running sync.WaitGroup
	var failures []error
	read := func(name string, list listFunc, add func(runtime.Object)) {
		running.Go(func() {
			all, err := listAll(ctx, list, metav1.NamespaceAll)
			sentence := ""
			if apierrors.IsForbidden(err) {
				sentence = "You have no right to list " + name + "."
				if name == podList || name == claimList {
					if all, err = listAll(ctx, list, namespace); err == nil {
						sentence = fmt.Sprintf("You have no right to list %s of all namespaces, only of %s: devices that seem free may be in use.", name, namespace)
					}
				}
			}
			mu.Lock()
			defer mu.Unlock()
			if sentence != "" {
				refused[name] = sentence
			}
			switch {
			case apierrors.IsForbidden(err) && slices.Contains(required, name):
				failures = append(failures, fmt.Errorf("list %s: %w: the output would be wrong without this right", name, gpu.ErrPermission))
			case apierrors.IsForbidden(err), apierrors.IsNotFound(err) && name == ruleList:
				// Releases before 1.37 do not serve rules, or as a beta.
			case apierrors.IsNotFound(err):
				failures = append(failures, fmt.Errorf("list %s: %w: the API server does not serve resource.k8s.io/v1; it needs Kubernetes 1.34 or newer", name, gpu.ErrNotSupported))
			case err != nil:
				failures = append(failures, fmt.Errorf("list %s: %w", name, err))
			}
			for _, o := range all {
				add(o)
			}
		})
	}
	read(nodeList, func(ctx context.Context, _ string, o metav1.ListOptions) (runtime.Object, error) {
		return core.Nodes().List(ctx, o)
	}, func(o runtime.Object) { objects.Nodes = appendAs(objects.Nodes, o) })
	read(podList, func(ctx context.Context, namespace string, o metav1.ListOptions) (runtime.Object, error) {
		return core.Pods(namespace).List(ctx, o)
	}, func(o runtime.Object) { objects.Pods = appendAs(objects.Pods, o) })
	read(claimList, func(ctx context.Context, namespace string, o metav1.ListOptions) (runtime.Object, error) {
		return devices.ResourceClaims(namespace).List(ctx, o)
	}, func(o runtime.Object) { objects.Claims = appendAs(objects.Claims, o) })
	read(sliceList, func(ctx context.Context, _ string, o metav1.ListOptions) (runtime.Object, error) {
		return devices.ResourceSlices().List(ctx, o)
	}, func(o runtime.Object) { objects.Slices = appendAs(objects.Slices, o) })
	read(classList, func(ctx context.Context, _ string, o metav1.ListOptions) (runtime.Object, error) {
		return devices.DeviceClasses().List(ctx, o)
	}, func(o runtime.Object) { objects.Classes = appendAs(objects.Classes, o) })
	read(ruleList, func(ctx context.Context, _ string, o metav1.ListOptions) (runtime.Object, error) {
		return devices.DeviceTaintRules().List(ctx, o)
	}, func(o runtime.Object) { objects.TaintRules = appendAs(objects.TaintRules, o) })
	running.Wait()
	slices.SortFunc(failures, func(a, b error) int { return cmp.Compare(a.Error(), b.Error()) })
	return objects, refused, errors.Join(failures...)
}

// ReadFleet returns the fleet of a cluster. The error wraps [gpu.ErrPermission] if the client
// may not read all of it, and [gpu.ErrNotSupported] if the API server is too old.
func ReadFleet(ctx context.Context, client kubernetes.Interface, driver string) (*fleet.Fleet, error) {
	objects, _, err := readObjects(ctx, client, metav1.NamespaceAll, nodeList, podList, claimList, sliceList, classList, ruleList)
	if err != nil {
		return nil, err
	}
	return newFleet(objects, driver), nil
}

func newFleet(objects fleet.Objects, driver string) *fleet.Fleet {
	return fleet.New(objects, fleet.Options{Driver: driver, Features: fleet.FeaturesOf(objects)})
}

// listAll lists the objects of a namespace, page by page.
func listAll(ctx context.Context, list listFunc, namespace string) ([]runtime.Object, error) {
	var all []runtime.Object
	page := func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		return list(ctx, namespace, o)
	}
	err := pager.New(page).EachListItem(ctx, metav1.ListOptions{ResourceVersion: "0"}, func(o runtime.Object) error {
		all = append(all, o)
		return nil
	})
	return all, err
}

func appendAs[T runtime.Object](all []T, o runtime.Object) []T {
	if item, ok := o.(T); ok {
		return append(all, item)
	}
	return all
}
