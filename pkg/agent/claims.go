// SPDX-License-Identifier: Apache-2.0

package agent

import (
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpu-dra/gpu-dra-driver/pkg/attribution"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim"
	"github.com/gpu-dra/gpu-dra-driver/pkg/usage"
)

// accounts keep the names of the pods of claims, and meter for how long claims hold devices.
type accounts struct {
	pods  *attribution.Pods
	meter *usage.Meter
	// node returns what claims can hold.
	node func() usage.Node
}

// Seen implements [plugin.Accounts].
func (a accounts) Seen(object *resourceapi.ResourceClaim) { a.pods.Observe(object) }

// Held implements [plugin.Accounts].
func (a accounts) Held(object *resourceapi.ResourceClaim, devices []claim.Device) {
	a.meter.Hold(object.UID, a.node().Charges(object.Namespace, devices))
}

// Released implements [plugin.Accounts].
func (a accounts) Released(uid types.UID) {
	a.meter.Release(uid)
	a.pods.Forget(uid)
}
