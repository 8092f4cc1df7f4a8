// SPDX-License-Identifier: Apache-2.0

package attribution

import (
	"context"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/usage"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim"
)

// Accounts keep the names of the pods of claims, and charge claims for their devices. Its
// methods may be called from any goroutine.
type Accounts struct {
	Pods  *Pods
	Meter *usage.Meter
	// Claims returns the claims that hold devices.
	Claims func(ctx context.Context) ([]claim.Claim, error)
	// Node returns the capacities of the node that claims can hold.
	Node func() usage.Node
}

// Seen records the pods of a claim that the node prepares, or must hold.
func (a Accounts) Seen(object *resourceapi.ResourceClaim) { a.Pods.Observe(object) }

// Held charges a prepared claim for its devices from now on.
func (a Accounts) Held(object *resourceapi.ResourceClaim, devices []claim.Device) {
	a.Meter.Hold(object.UID, a.Node().Charges(object.Namespace, devices))
}

// Released forgets a claim that holds no devices any more.
func (a Accounts) Released(uid types.UID) {
	a.Meter.Release(uid)
	a.Pods.Forget(uid)
}

// PodsOf returns the names of the pods of a claim, as far as they are known.
func (a Accounts) PodsOf(ctx context.Context, ref claim.Ref) map[types.UID]string {
	return a.Pods.namesOf(ctx, ref)
}

// Accrue charges the claims up to now. It returns which part of a GPU accounts have held for
// how long, in GPUs times seconds; nil if the claims cannot be read.
func (a Accounts) Accrue() map[usage.Account]float64 {
	held, err := a.Claims(context.Background())
	if err != nil {
		return nil
	}
	node, charges := a.Node(), map[types.UID][]usage.Charge{}
	for _, c := range held {
		charges[c.UID] = node.Charges(c.Namespace, c.Devices)
	}
	return a.Meter.Set(charges)
}
