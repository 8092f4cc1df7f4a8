// SPDX-License-Identifier: Apache-2.0

package kubectlgpu

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"

	"github.com/gpu-dra/gpu-dra-driver/pkg/doctor"
)

// readTemplates reads the claim templates of all namespaces.
func readTemplates(ctx context.Context, client kubernetes.Interface, c *doctor.Cluster) error {
	if c.Unread[doctor.Slices] != "" {
		return nil // the API server may not serve the group at all
	}
	all, err := listAll(ctx, func(ctx context.Context, namespace string, o metav1.ListOptions) (runtime.Object, error) {
		return client.ResourceV1().ResourceClaimTemplates(namespace).List(ctx, o)
	}, metav1.NamespaceAll)
	for _, template := range all {
		c.Templates = appendAs(c.Templates, template)
	}
	return note(c, doctor.Templates, err)
}
