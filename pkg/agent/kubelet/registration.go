// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"
	"k8s.io/klog/v2"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// registration keeps the last registration status from the kubelet. The helper's own
// RegistrationStatus must not be read while the kubelet calls.
type registration struct {
	last atomic.Pointer[registerapi.RegistrationStatus]
	// known is closed when the kubelet registers the plugin for the first time.
	known chan struct{}
	once  sync.Once
}

func newRegistration() *registration { return &registration{known: make(chan struct{})} }

func (r *registration) intercept(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	if status, ok := req.(*registerapi.RegistrationStatus); ok {
		r.last.Store(status)
		if status.PluginRegistered {
			r.once.Do(func() { close(r.known) })
		}
	}
	return handler(ctx, req)
}

// err returns nil while the plugin is registered with the kubelet.
func (r *registration) err() error {
	switch status := r.last.Load(); {
	case status == nil:
		return errors.New("the kubelet has not registered this plugin yet; is it running, and is --kubelet-registry-dir its plugins_registry?")
	case !status.PluginRegistered:
		return fmt.Errorf("the kubelet refused this plugin: %s", status.Error)
	}
	return nil
}

// wait waits until the kubelet has registered the plugin once.
func (r *registration) wait(ctx context.Context) error {
	if err := r.err(); err != nil {
		klog.FromContext(ctx).V(2).Info("Waiting for the kubelet before anything is published", "reason", err)
	}
	select {
	case <-r.known:
		return nil
	case <-ctx.Done():
		return errors.Join(context.Cause(ctx), r.err())
	}
}
