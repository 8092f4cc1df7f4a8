// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

const (
	// confirmations is the number of consecutive rounds in which a claim must be
	// unneeded before it is released.
	confirmations = 2
	// massConfirmations is the same for a round that would release several claims,
	// or all claims of the node. In that case a wrong response of the API server is
	// likely.
	massConfirmations = confirmations + 1
)

// rounds counts the consecutive rounds of reconciliation in which each claim was
// unneeded. The zero value is ready to use.
type rounds struct {
	seen map[types.UID]int
}

// next adds a round and returns the claims to release now, ordered by UID. unneeded are
// the unneeded claims of the round, and held is the number of claims that the node
// holds. The count of a claim that is not in unneeded starts again: it is needed, or
// could not be read.
//
//	round   1    2    3
//	a alone -    a
//	a, b    -    -    a, b
//	the only
//	claim   -    -    a
func (r *rounds) next(held int, unneeded []types.UID) (release []types.UID) {
	seen := make(map[types.UID]int, len(unneeded))
	var ripe []types.UID
	for _, uid := range unneeded {
		seen[uid] = r.seen[uid] + 1
		if seen[uid] >= confirmations {
			ripe = append(ripe, uid)
		}
	}
	r.seen = seen
	if len(ripe) > 1 || len(ripe) == held {
		ripe = slices.DeleteFunc(ripe, func(uid types.UID) bool { return seen[uid] < massConfirmations })
	}
	slices.Sort(ripe)
	return ripe
}
