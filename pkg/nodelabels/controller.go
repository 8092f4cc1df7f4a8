// SPDX-License-Identifier: Apache-2.0

package nodelabels

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
)

const (
	// Manager is the name under which the API server records the labels of the
	// controller.
	Manager = "gpu-dra-driver-node-labels"
	// byNode is an index of ResourceSlices.
	byNode = "node"
	// resync is the time after which all nodes are compared again.
	resync = 10 * time.Minute
	// retryFirst and retryMost are the shortest and the longest time between attempts.
	retryFirst, retryMost = time.Second, 5 * time.Minute
)

// controller sets the labels of nodes.
type controller struct {
	client kubernetes.Interface
	nodes  corelisters.NodeLister
	slices cache.Indexer
	queue  workqueue.TypedRateLimitingInterface[string]
}

// Run keeps the labels of all nodes with ResourceSlices of the driver until ctx ends. It
// returns an error if the objects cannot be watched.
func Run(ctx context.Context, client kubernetes.Interface, driver string) error {
	nodes := informers.NewSharedInformerFactory(client, resync)
	slices := informers.NewSharedInformerFactoryWithOptions(client, resync, informers.WithTweakListOptions(func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector(resourceapi.ResourceSliceSelectorDriver, driver).String()
	}))
	nodeInformer, sliceInformer := nodes.Core().V1().Nodes(), slices.Resource().V1().ResourceSlices().Informer()
	c := &controller{
		client: client, nodes: nodeInformer.Lister(), slices: sliceInformer.GetIndexer(),
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](retryFirst, retryMost)),
	}
	err := sliceInformer.AddIndexers(cache.Indexers{byNode: func(object any) ([]string, error) { return nodesOf(driver, object), nil }})
	_, nodeErr := nodeInformer.Informer().AddEventHandler(handler(func(object any) []string {
		if node, is := object.(*corev1.Node); is {
			return []string{node.Name}
		}
		return nil
	}, c.queue.Add))
	_, sliceErr := sliceInformer.AddEventHandler(handler(func(object any) []string { return nodesOf(driver, object) }, c.queue.Add))
	if err := errors.Join(err, nodeErr, sliceErr); err != nil {
		return fmt.Errorf("watch nodes and ResourceSlices: %w", err)
	}
	for _, factory := range []informers.SharedInformerFactory{nodes, slices} {
		factory.StartWithContext(ctx)
		defer factory.Shutdown()
	}
	// Without all slices every node would seem to have none.
	if !cache.WaitForCacheSync(ctx.Done(), nodeInformer.Informer().HasSynced, sliceInformer.HasSynced) {
		return nil // ctx has ended
	}
	defer context.AfterFunc(ctx, c.queue.ShutDown)()
	for c.next(ctx) {
	}
	return nil
}

// handler returns an event handler that passes on the nodes of each object. After a change it
// passes on the earlier nodes, too.
func handler(nodes func(object any) []string, add func(string)) cache.ResourceEventHandlerFuncs {
	all := func(object any) {
		if gone, is := object.(cache.DeletedFinalStateUnknown); is {
			object = gone.Obj
		}
		for _, name := range nodes(object) {
			add(name)
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc: all, DeleteFunc: all,
		UpdateFunc: func(before, after any) {
			all(before)
			all(after)
		},
	}
}

// nodesOf returns the node of a ResourceSlice of the driver.
func nodesOf(driver string, object any) []string {
	slice, is := object.(*resourceapi.ResourceSlice)
	if !is || slice.Spec.Driver != driver || slice.Spec.NodeName == nil {
		return nil
	}
	return []string{*slice.Spec.NodeName}
}

// next handles one node. It returns false when the queue is shut down.
func (c *controller) next(ctx context.Context) bool {
	name, ended := c.queue.Get()
	if ended {
		return false
	}
	defer c.queue.Done(name)
	if err := c.reconcile(ctx, name); err != nil {
		klog.FromContext(ctx).Error(err, "Cannot set the labels of a node, will retry", "node", name)
		c.queue.AddRateLimited(name)
		return true
	}
	c.queue.Forget(name)
	return true
}

// reconcile sets the labels of a node. It does nothing while the node's slices are
// incomplete.
func (c *controller) reconcile(ctx context.Context, name string) error {
	node, err := c.nodes.Get(name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	objects, err := c.slices.ByIndex(byNode, name)
	if err != nil {
		return err
	}
	var published []*resourceapi.ResourceSlice
	for _, object := range objects {
		if slice, is := object.(*resourceapi.ResourceSlice); is {
			published = append(published, slice)
		}
	}
	wanted, complete := Labels(published)
	if !complete {
		return nil
	}
	apply, needed := change(node, Manager, wanted)
	if !needed {
		return nil
	}
	// The API server removes labels that this manager has applied before and that are missing
	// now. The UID keeps it from making a node that is gone.
	if _, err := c.client.CoreV1().Nodes().Apply(ctx, corev1ac.Node(name).WithUID(node.UID).WithLabels(apply), metav1.ApplyOptions{FieldManager: Manager}); err != nil {
		return fmt.Errorf("apply the labels %v: %w", apply, err)
	}
	klog.FromContext(ctx).Info("Labels of a node are set", "node", name, "labels", apply)
	return nil
}
