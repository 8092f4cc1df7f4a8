// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// installedPatience bounds the request for the DaemonSet when the agent ends.
const installedPatience = 3 * time.Second

// checkDaemonSet returns an error unless the DaemonSet is empty or has a namespace and a
// name.
func (c *Config) checkDaemonSet() error {
	namespace, name, found := strings.Cut(c.DaemonSet, "/")
	if c.DaemonSet != "" && (!found || namespace == "" || name == "" || strings.Contains(name, "/")) {
		return fmt.Errorf("--daemon-set=%s: %w: want namespace/name of a DaemonSet", c.DaemonSet, gpu.ErrInvalid)
	}
	return nil
}

// isInstalled reports whether another agent will follow this one: its DaemonSet exists. A
// DaemonSet is deleted before its pods, and the rights of the agent at about the same time.
// An agent without a DaemonSet has no successor that it knows of.
func isInstalled(ctx context.Context, client kubernetes.Interface, daemonSet string) bool {
	if daemonSet == "" {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, installedPatience)
	defer cancel()
	namespace, name, _ := strings.Cut(daemonSet, "/")
	set, err := client.AppsV1().DaemonSets(namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case err == nil:
		return set.DeletionTimestamp == nil
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		return false
	}
	klog.FromContext(ctx).Error(err, "Cannot read the agent's DaemonSet, leaving the folder", "daemonSet", daemonSet)
	return true
}
