package plugin

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/klog/v2"

	"github.com/gpu-dra/gpu-dra-driver/pkg/claim"
)

// reconcileLoop compares the claims held here with the API at once and then
// from time to time. Only these claims are read, one by one: watching all claims
// of a cluster from every node would cost the API server far more.
func (p *Plugin) reconcileLoop(ctx context.Context) {
	ticker := p.clock.NewTicker(p.interval)
	defer ticker.Stop()
	for {
		p.reconcile(ctx)
		select {
		case <-ticker.C():
		case <-ctx.Done():
			return
		}
	}
}

// reconcile lists before it asks the API server: a claim that is prepared in
// between must not look as if it were gone.
func (p *Plugin) reconcile(ctx context.Context) {
	logger := klog.FromContext(ctx)
	if _, err := p.claims.Recover(ctx); err != nil && ctx.Err() == nil {
		logger.Error(err, "Could not repair every claim; will try again", "after", p.interval)
	}
	all, err := p.claims.Held(ctx)
	if err != nil {
		logger.Error(err, "Could not list the claims held; will try again", "after", p.interval)
		return
	}
	for _, held := range all {
		logger := logger.WithValues("claim", klog.KRef(held.Namespace, held.Name), "claimUID", held.UID)
		err := p.reconcileClaim(klog.NewContext(ctx, logger), held)
		if err != nil && ctx.Err() == nil {
			logger.Error(err, "Could not compare the claim with the API; will try again", "after", p.interval)
		}
	}
}

// reconcileClaim lets go of a claim that the API does not know any more: nobody
// asks to unprepare it when the kubelet lost its own records. A claim that is
// still there gets the device status that is missing in it.
func (p *Plugin) reconcileClaim(ctx context.Context, held claim.Held) error {
	object, err := p.client.ResourceV1().ResourceClaims(held.Namespace).Get(ctx, held.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return p.letGo(ctx, held, "the claim is gone")
	case err != nil:
		return err
	case object.UID != held.UID:
		return p.letGo(ctx, held, "another claim has taken its name")
	case object.Status.Allocation == nil:
		return p.letGo(ctx, held, "the claim is not allocated any more")
	}
	if held.Phase == claim.Prepared {
		p.report(object, held.Devices, nil)
	}
	return nil
}

func (p *Plugin) letGo(ctx context.Context, held claim.Held, why string) error {
	klog.FromContext(ctx).Info("Unpreparing a claim that nobody needs", "why", why)
	object := kubeletplugin.NamespacedObject{
		NamespacedName: types.NamespacedName{Namespace: held.Namespace, Name: held.Name}, UID: held.UID,
	}
	if err := p.unprepare(ctx, object); err != nil {
		return fmt.Errorf("unprepare: %w", err)
	}
	return nil
}
