package plugin

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"google.golang.org/grpc"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// registration remembers what the kubelet last said of our registration. The
// helper's own RegistrationStatus may not be read while the kubelet calls.
type registration struct {
	last atomic.Pointer[registerapi.RegistrationStatus]
}

func (r *registration) intercept(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	if status, ok := req.(*registerapi.RegistrationStatus); ok {
		r.last.Store(status)
	}
	return handler(ctx, req)
}

// err is nil while the kubelet knows the plugin.
func (r *registration) err() error {
	switch status := r.last.Load(); {
	case status == nil:
		return errors.New("the kubelet has not registered this plugin yet; is it running, and is --kubelet-registry-dir its plugins_registry?")
	case !status.PluginRegistered:
		return fmt.Errorf("the kubelet refused this plugin: %s", status.Error)
	}
	return nil
}
