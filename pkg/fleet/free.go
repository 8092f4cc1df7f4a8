// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"fmt"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// FreeOnNode is how many more claims fit on a node.
type FreeOnNode struct {
	Node   string
	Claims int
}

// Free returns how many more claims with these devices fit on each node, one after the
// other, at most limit on a node. Nodes without free are left out. The error wraps
// [gpu.ErrTimeout] or [gpu.ErrInvalid].
func (f *Fleet) Free(ctx context.Context, devices resourceapi.DeviceClaim, limit int) ([]FreeOnNode, error) {
	var all []FreeOnNode
	for _, node := range f.NodeNames() {
		q := f.newAttempt(node, &resourceapi.ResourceClaim{
			ObjectMeta: metav1.ObjectMeta{Name: "free"}, Spec: resourceapi.ResourceClaimSpec{Devices: devices},
		})
		n := 0
		for ; n < limit; n++ {
			found, err := f.allocate(ctx, q)
			if err != nil {
				return nil, fmt.Errorf("claim %d: %w", n+1, err)
			}
			if found == nil {
				break
			}
			for _, result := range found[0].Devices.Results {
				Count(q.state, result)
			}
		}
		if n > 0 {
			all = append(all, FreeOnNode{Node: node, Claims: n})
		}
	}
	return all, nil
}
