// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

const (
	// confirmations is in how many consecutive rounds a claim must be unneeded
	// before it is released.
	confirmations = 2
	// massConfirmations is the same for a round that would release more than one
	// claim, or all that the node holds: what is wrong then is more likely the
	// answer than the claims.
	massConfirmations = confirmations + 1
)

// rounds counts in how many consecutive rounds of reconciliation each claim was
// unneeded. The zero value is ready to use.
type rounds struct {
	seen map[types.UID]int
}

// next takes what a round has found and returns the claims to release now, in
// order of the UID. A claim that is not in unneeded starts anew: it is needed, or
// nothing is known of it. held is the number of claims that the node holds.
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
