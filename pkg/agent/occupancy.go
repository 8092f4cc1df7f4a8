// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"

	resourceapi "k8s.io/api/resource/v1"
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
	get := getClaim(client)
	return func(ctx context.Context, ref claim.Ref) ([]types.UID, error) {
		object, err := get(ctx, ref)
		if object == nil || err != nil {
			return nil, err
		}
		return claim.PodsOf(object), nil
	}
}

// getClaim returns a function that reads a claim from the API server; nil if it is gone.
func getClaim(client kubernetes.Interface) func(context.Context, claim.Ref) (*resourceapi.ResourceClaim, error) {
	return func(ctx context.Context, ref claim.Ref) (*resourceapi.ResourceClaim, error) {
		object, err := client.ResourceV1().ResourceClaims(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return nil, nil
		case err != nil:
			return nil, err
		case object.UID != ref.UID:
			return nil, nil
		}
		return object, nil
	}
}
