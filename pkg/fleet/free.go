// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"fmt"
	"runtime"

	"golang.org/x/sync/errgroup"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// FreeOnNode is how many more claims fit on a node.
type FreeOnNode struct {
	Node   string
	Claims int
}

// Free returns how many more claims with these devices fit on each node. It places them
// one after the other, at most limit on a node. Nodes without free devices are left out.
// The error wraps [gpu.ErrTimeout] or [gpu.ErrInvalid].
func (f *Fleet) Free(ctx context.Context, devices resourceapi.DeviceClaim, limit int) ([]FreeOnNode, error) {
	claim := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: "free"}, Spec: resourceapi.ResourceClaimSpec{Devices: devices}}
	nodes := f.NodeNames()
	same := f.NewSearch(0).alike(ctx, nodes, claim)
	claims := make([]int, len(nodes))
	searches, ctx := errgroup.WithContext(ctx)
	searches.SetLimit(runtime.GOMAXPROCS(0))
	for i, node := range nodes {
		if same[i] != i {
			continue
		}
		searches.Go(func() (err error) {
			claims[i], err = f.freeOn(ctx, node, claim, limit)
			return err
		})
	}
	if err := searches.Wait(); err != nil {
		return nil, err
	}
	var found []FreeOnNode
	for i, node := range nodes {
		if n := claims[same[i]]; n > 0 {
			found = append(found, FreeOnNode{Node: node, Claims: n})
		}
	}
	return found, nil
}

func (f *Fleet) freeOn(ctx context.Context, node string, claim *resourceapi.ResourceClaim, limit int) (int, error) {
	q := f.newAttempt(node, claim)
	for n := range limit {
		found, err := f.allocate(ctx, q)
		if err != nil {
			return 0, fmt.Errorf("claim %d: %w", n+1, err)
		}
		if found == nil {
			return n, nil
		}
		for _, result := range found[0].Devices.Results {
			Count(q.state, result)
		}
	}
	return limit, nil
}
