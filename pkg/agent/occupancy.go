// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/gpu-dra/gpu-dra-driver/pkg/claim"
	"github.com/gpu-dra/gpu-dra-driver/pkg/procfs"
)

// occupancy reads the processes of a GPU from NVML, their pods from the kernel, and
// the pods of a claim from the API server. The processes of simulated GPUs have PIDs
// of real processes.
func occupancy(hw *hardware, client kubernetes.Interface) *claim.Occupancy {
	return &claim.Occupancy{Hardware: hw, Task: procfs.Root("/").Task, Pods: podsOf(client)}
}

func podsOf(client kubernetes.Interface) func(context.Context, claim.Ref) ([]types.UID, error) {
	return func(ctx context.Context, ref claim.Ref) ([]types.UID, error) {
		object, err := client.ResourceV1().ResourceClaims(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return nil, nil
		case err != nil:
			return nil, err
		case object.UID != ref.UID:
			return nil, nil
		}
		return claim.PodsOf(object), nil
	}
}
