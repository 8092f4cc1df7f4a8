// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// Node is what the API server says about the node.
type Node struct {
	Labels      map[string]string
	Annotations map[string]string
	// DevicePlugin is set if a device plugin offers GPUs of the node.
	DevicePlugin bool
}

// NodeFunc calls on with the node when it is first known, and whenever it changes.
// While the node cannot be read, it calls on with an error. It returns when ctx
// ends.
type NodeFunc func(ctx context.Context, on func(node Node, err error))

// WatchNode returns a function that watches the node through the API.
func WatchNode(client kubernetes.Interface, node string) NodeFunc {
	return func(ctx context.Context, on func(Node, error)) {
		// An informer factory would bring informers of everything into the agent.
		informer := coreinformers.NewFilteredNodeInformer(client, 0, nil, func(o *metav1.ListOptions) {
			o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, node).String()
		})
		changed := func(object any) {
			if n, ok := object.(*corev1.Node); ok && n.Name == node {
				on(Node{Labels: n.Labels, Annotations: n.Annotations, DevicePlugin: hasDevicePlugin(n)}, nil)
			}
		}
		// Neither fails before the informer has started.
		_ = informer.SetWatchErrorHandlerWithContext(func(ctx context.Context, r *cache.Reflector, err error) {
			cache.DefaultWatchErrorHandler(ctx, r, err)
			if !informer.HasSynced() {
				on(Node{}, err)
			}
		})
		_, _ = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    changed,
			UpdateFunc: func(_, object any) { changed(object) },
		})
		var running sync.WaitGroup
		running.Go(func() { informer.RunWithContext(ctx) })
		defer running.Wait()
		if cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) && len(informer.GetStore().List()) == 0 {
			on(Node{}, fmt.Errorf("node %s: %w", node, gpu.ErrNotFound))
		}
		<-ctx.Done()
	}
}

// pluginResources is the prefix of the resources as which device plugins offer
// NVIDIA's GPUs.
const pluginResources = "nvidia.com/"

// hasDevicePlugin reports whether a device plugin offers GPUs of the node. A plugin
// that is gone leaves a capacity of 0.
func hasDevicePlugin(node *corev1.Node) bool {
	for name, quantity := range node.Status.Capacity {
		if strings.HasPrefix(string(name), pluginResources) && !quantity.IsZero() {
			return true
		}
	}
	return false
}
