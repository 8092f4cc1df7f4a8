// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"

	"k8s.io/component-base/version"
	"k8s.io/klog/v2"

	"github.com/gpu-dra/gpu-dra-driver/pkg/nodelabels"
)

// LabelNodes keeps the labels of all nodes with GPUs of the driver until ctx ends. It uses
// the driver's name and the kubeconfig only. An agent does not run it, and may not
// change nodes.
func LabelNodes(ctx context.Context, c *Config) error {
	client, err := c.newClient()
	if err != nil {
		return err
	}
	klog.FromContext(ctx).Info("Keeping the labels of nodes", "version", version.Get().GitVersion, "driver", c.DriverName)
	return nodelabels.Run(ctx, client, c.DriverName)
}
