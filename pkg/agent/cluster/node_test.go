// SPDX-License-Identifier: Apache-2.0

package cluster_test

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/cluster"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

func TestWatchNodeFindsADevicePluginByTheNodesCapacity(t *testing.T) {
	for name, c := range map[string]struct {
		capacity corev1.ResourceList
		want     bool
	}{
		"none":                   {nil, false},
		"GPUs":                   {corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("8")}, true},
		"MIG devices":            {corev1.ResourceList{"nvidia.com/mig-1g.10gb": resource.MustParse("7")}, true},
		"a plugin that has gone": {corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("0")}, false},
		"another vendor":         {corev1.ResourceList{"example.com/gpu": resource.MustParse("8"), "cpu": resource.MustParse("8")}, false},
	} {
		t.Run(name, func(t *testing.T) {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1", Labels: map[string]string{"a": "b"}}}
			node.Status.Capacity = c.capacity
			ctx, cancel := context.WithCancel(t.Context())
			cluster.WatchNode(fake.NewClientset(node), "node-1")(ctx, func(got cluster.Node, err error) {
				if err != nil {
					t.Error(err)
				}
				require.Same(t, "node", cluster.Node{Labels: node.Labels, DevicePlugin: c.want}, got)
				cancel()
			})
		})
	}
}
