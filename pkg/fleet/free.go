// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"fmt"
	"maps"
	"runtime"
	"slices"

	"golang.org/x/sync/errgroup"
	resourceapi "k8s.io/api/resource/v1"
)

// FreeOnNode is how many more claims fit on a node.
type FreeOnNode struct {
	Node   string
	Claims int
}

// Free returns how many more of each claim fit on each node. It does so for each claim as if
// there were no others, and places at most limit on a node. Nodes without free devices are
// left out. The error wraps [gpu.ErrTimeout] or [gpu.ErrInvalid] and names the claim.
func (f *Fleet) Free(ctx context.Context, limit int, claims ...*resourceapi.ResourceClaim) ([][]FreeOnNode, error) {
	names, search := f.NodeNames(), f.NewSearch(0)
	all := make([]int, len(names))
	for i := range all {
		all[i] = i
	}
	// Most nodes of a fleet have the same outline. Only the first of them is described for each claim.
	outlines := alike(all, func(i int) (likeness, bool) { return search.outline(names[i], claims...) })
	firsts := slices.Compact(slices.Sorted(maps.Values(outlines)))
	found := make([][]FreeOnNode, len(claims))
	for c, claim := range claims {
		same := alike(firsts, func(i int) (likeness, bool) { return search.describe(ctx, names[i], claim) })
		free, err := f.freeOnEach(ctx, names, slices.Compact(slices.Sorted(maps.Values(same))), claim, limit)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", claim.Name, err)
		}
		for i, name := range names {
			if n := free[same[outlines[i]]]; n > 0 {
				found[c] = append(found[c], FreeOnNode{Node: name, Claims: n})
			}
		}
	}
	return found, nil
}

// freeOnEach returns how many claims fit on some nodes, by their index.
func (f *Fleet) freeOnEach(ctx context.Context, names []string, nodes []int, claim *resourceapi.ResourceClaim, limit int) ([]int, error) {
	free := make([]int, len(names))
	searches, ctx := errgroup.WithContext(ctx)
	searches.SetLimit(runtime.GOMAXPROCS(0))
	for _, i := range nodes {
		searches.Go(func() (err error) {
			free[i], err = f.freeOn(ctx, names[i], claim, limit)
			return err
		})
	}
	return free, searches.Wait()
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
