// SPDX-License-Identifier: Apache-2.0

package supervisor

import (
	"context"
	"errors"

	"k8s.io/component-base/version"
	"k8s.io/klog/v2"
)

// Run serves the agent on a socket until ctx ends. The daemons continue.
func Run(ctx context.Context, o Options, socket string) error {
	// Work that no call waits for ends after the last call.
	s, err := New(context.WithoutCancel(ctx), o)
	if err != nil {
		return err
	}
	klog.FromContext(ctx).Info("Supervising MPS daemons", "version", version.Get().GitVersion, "socket", socket, "driverRoot", o.Driver, "multiUser", o.MultiUser)
	return errors.Join(Serve(ctx, socket, s), s.Leave(context.WithoutCancel(ctx), socket))
}
