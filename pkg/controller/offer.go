package controller

import (
	"context"
	"fmt"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	corev1 "k8s.io/api/core/v1"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// Node is what the API says of the node.
type Node struct {
	Labels map[string]string
	// DevicePlugin says that a device plugin offers GPUs of it.
	DevicePlugin bool
	// Repaired is the value of its [v1alpha1.AnnotationRepaired]; empty if it has none.
	Repaired string
}

// NodeFunc calls on with the node, first as soon as it is known and then
// whenever it changes, or with an error while it is out of reach. It returns
// when ctx ends.
type NodeFunc func(ctx context.Context, on func(node Node, err error))

// WatchNode watches the node through the API.
func WatchNode(client kubernetes.Interface, node string) NodeFunc {
	return func(ctx context.Context, on func(Node, error)) {
		// An informer factory would bring informers of everything into the agent.
		informer := coreinformers.NewFilteredNodeInformer(client, 0, nil, func(o *metav1.ListOptions) {
			o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, node).String()
		})
		told := func(object any) {
			if n, ok := object.(*corev1.Node); ok && n.Name == node {
				on(Node{Labels: n.Labels, DevicePlugin: offersByPlugin(n), Repaired: n.Annotations[v1alpha1.AnnotationRepaired]}, nil)
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
			AddFunc:    told,
			UpdateFunc: func(_, object any) { told(object) },
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

// watchNode follows the node until ctx ends.
func (c *Controller) watchNode(ctx context.Context) {
	if c.node == nil {
		close(c.labelled)
		return
	}
	c.node(ctx, func(node Node, err error) {
		if c.follow(node, err) {
			c.lookAgain()
		}
	})
}

// follow makes the label's word the node's offer, or the flag's where there is
// no label. A label that cannot be read or understood changes nothing. It
// reports whether that is to be told after what was published.
func (c *Controller) follow(node Node, err error) (tell bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	repaired := false
	if err == nil {
		c.pluginSeen(node.DevicePlugin)
		repaired = c.declared(node.Repaired)
	}
	offer := c.standard
	value, labelled := node.Labels[v1alpha1.LabelOffer]
	switch {
	case err != nil:
		err = fmt.Errorf("the node's label %s is out of reach: %w", v1alpha1.LabelOffer, err)
	case labelled:
		offer, err = catalog.ParseOfferLabel(value)
		if err != nil {
			err = fmt.Errorf("the node's label %s=%s is not followed: %w; write words with a dot between them, such as share.mig", v1alpha1.LabelOffer, value, err)
		}
	}
	before, beforeErr := c.catalog.Offer, c.labelErr
	c.labelErr = err
	if err == nil {
		c.catalog.Offer = offer
	} else {
		c.labelErr = fmt.Errorf("%w; the node still offers %q", err, before)
	}
	select {
	case <-c.labelled:
	default:
		close(c.labelled)
		return false // the first look waits for this
	}
	return repaired || c.catalog.Offer != before || fmt.Sprint(c.labelErr) != fmt.Sprint(beforeErr)
}

// declared takes in which GPUs an administrator declares repaired, and reports
// whether that is another word than before. An annotation that is not understood
// ends nothing, also where a part of it could be understood. Callers hold mu.
func (c *Controller) declared(value string) bool {
	if value == c.repaired {
		return false
	}
	c.repaired = value
	c.repairs, c.repairSyntax = parseRepaired(value)
	if c.repairSyntax != nil {
		c.repairSyntax = fmt.Errorf("the node's annotation %s is not followed: %w", v1alpha1.AnnotationRepaired, c.repairSyntax)
	}
	return true
}

// ClaimsChanged tells that claims hold other devices than before. What a claim
// held although the node no longer offers it can go once it is free.
func (c *Controller) ClaimsChanged() {
	select {
	case c.claims <- struct{}{}:
	default: // one is waiting already
	}
}

// Look asks for another look at the hardware, for those who have found it other
// than published.
func (c *Controller) Look() { c.lookAgain() }

// heldNow gives the devices that claims hold; if that cannot be read, those of
// last time.
func (c *Controller) heldNow(ctx context.Context) catalog.Held {
	if c.held == nil {
		return catalog.Held{}
	}
	held, err := c.held(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		klog.FromContext(ctx).Error(err, "Cannot read what claims hold; what they held before stays published")
		return c.inUse
	}
	c.inUse = held
	return held
}

// switchedNow returns the GPUs whose MIG mode claims have switched on; if that
// cannot be read, those of last time.
func (c *Controller) switchedNow(ctx context.Context) map[gpu.PCIAddress]bool {
	if c.switched == nil {
		return map[gpu.PCIAddress]bool{}
	}
	switched, err := c.switched(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		klog.FromContext(ctx).Error(err, "Cannot read which MIG modes claims have switched on")
		return c.modes
	}
	c.modes = switched
	return switched
}

// logWithheld says once what the node offers and does not give of some GPUs.
// Callers hold mu.
func (c *Controller) logWithheld(ctx context.Context, node gpu.Node) {
	if reasons := strings.Join(c.catalog.Withheld(node), "; "); reasons != c.withheld {
		c.withheld = reasons
		if reasons != "" {
			klog.FromContext(ctx).Info("Not everything is offered of every GPU", "why", reasons)
		}
	}
}
