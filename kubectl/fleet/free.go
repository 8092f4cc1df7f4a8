// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"errors"
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
// left out. The error has one that wraps [gpu.ErrTimeout] or [gpu.ErrInvalid] for each claim that has no result, and
// names it.
func (f *Fleet) Free(ctx context.Context, limit int, claims ...*resourceapi.ResourceClaim) ([][]FreeOnNode, error) {
	nodes, search := f.NodeNames(), f.NewSearch(0)
	// Most nodes of a fleet have the same outline. Only the first of them is described for each claim.
	outlines := alike(nodes, func(node string) (likeness, bool) { return search.outline(node, claims...) })
	found, problems := make([][]FreeOnNode, len(claims)), []error(nil)
	for c, claim := range claims {
		same := alike(firsts(outlines), func(node string) (likeness, bool) { return search.describe(ctx, node, claim) })
		free, err := f.freeOnEach(ctx, firsts(same), claim, limit)
		if err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", claim.Name, err))
			continue
		}
		found[c] = []FreeOnNode{}
		for _, node := range nodes {
			if n := free[same[outlines[node]]]; n > 0 {
				found[c] = append(found[c], FreeOnNode{Node: node, Claims: n})
			}
		}
	}
	return found, errors.Join(problems...)
}

// firsts returns the nodes that are searched for others, in order.
func firsts(same map[string]string) []string {
	return slices.Compact(slices.Sorted(maps.Values(same)))
}

// freeOnEach returns how many claims fit on each of some nodes.
func (f *Fleet) freeOnEach(ctx context.Context, nodes []string, claim *resourceapi.ResourceClaim, limit int) (map[string]int, error) {
	claims := make([]int, len(nodes))
	searches, ctx := errgroup.WithContext(ctx)
	searches.SetLimit(runtime.GOMAXPROCS(0))
	for i, node := range nodes {
		searches.Go(func() (err error) {
			claims[i], err = f.freeOn(ctx, node, claim, limit)
			return err
		})
	}
	err := searches.Wait()
	free := make(map[string]int, len(nodes))
	for i, node := range nodes {
		free[node] = claims[i]
	}
	return free, err
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
