// SPDX-License-Identifier: Apache-2.0

// Package agenttest has what tests of the packages below pkg/agent share: claims of one GPU, and an
// observer.
package agenttest

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/gpu-dra/gpu-dra-driver/pkg/claim"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/share"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind/kindtest"
)

// Driver is the name of the driver.
const Driver = "gpu.nvidia.com"

// Now is the time when tests begin.
func Now() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) }

// Node returns the object of the node.
func Node() *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node", UID: "node-uid"}}
}

// Allocated returns a claim with the GPU 1b-00 of the node, which is reserved for pods.
func Allocated(name string, pods ...string) *resourceapi.ResourceClaim {
	c := &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, UID: types.UID("uid-" + name)},
		Status: resourceapi.ResourceClaimStatus{Allocation: &resourceapi.AllocationResult{
			Devices: resourceapi.DeviceAllocationResult{Results: []resourceapi.DeviceRequestAllocationResult{
				{Request: "gpu", Driver: Driver, Pool: "node", Device: "gpu-1b-00"},
			}},
		}},
	}
	for _, pod := range pods {
		c.Status.ReservedFor = append(c.Status.ReservedFor, resourceapi.ResourceClaimConsumerReference{Resource: "pods", Name: pod, UID: types.UID("uid-" + pod)})
	}
	return c
}

// Share is the UID of the share of [Device].
func Share() *types.UID { return ptr.To[types.UID]("0d7ad4cf-93c6-4b73-94a8-4d4d1a9a1fc4") }

// Device returns a share of the GPU 1b-00.
func Device() claim.Device {
	return claim.Device{
		Request: "gpu", Pool: "node", Name: kindtest.Name("gpu-1b-00"), ShareID: Share(),
		UUID: "GPU-11111111-2222-3333-4444-555555555555",
	}
}

// MPSShare returns the terms of a share by MPS.
func MPSShare() share.Terms {
	return share.Terms{
		Share: &share.Amount{Memory: 10 << 30, Compute: 50},
		MPS:   &share.Client{Daemon: kindtest.Name("gpu-1b-00"), Processes: 2, ThreadPercentage: 25, MemoryLimit: 4608 << 20},
	}
}

// Holding returns prepared claims with the same names as [Allocated].
func Holding(names ...string) (held []claim.Claim) {
	device := Device()
	device.ShareID = nil
	for _, name := range names {
		held = append(held, claim.Claim{
			Ref:   claim.Ref{Namespace: "team", Name: name, UID: types.UID("uid-" + name)},
			Phase: claim.Prepared, Devices: []claim.Device{device},
		})
	}
	return held
}
