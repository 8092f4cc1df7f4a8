// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/gpu-dra/gpu-dra-driver/pkg/claim"
	"github.com/gpu-dra/gpu-dra-driver/pkg/procfs"
)

// occupancy asks the GPUs for their processes, the kernel for the pods of these,
// and the API server for the pods of a claim. Simulated GPUs have the PIDs of real
// processes too.
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
