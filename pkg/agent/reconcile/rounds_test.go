// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

func TestClaimsAreReleasedOnlyAfterRoundsThatAgree(t *testing.T) {
	type round struct {
		held     int
		unneeded []types.UID
		release  []types.UID
	}
	for name, all := range map[string][]round{
		"one of several is released by the second round": {
			{held: 3, unneeded: []types.UID{"a"}},
			{held: 3, unneeded: []types.UID{"a"}, release: []types.UID{"a"}},
		},
		"two wait for the third": {
			{held: 3, unneeded: []types.UID{"b", "a"}},
			{held: 3, unneeded: []types.UID{"b", "a"}},
			{held: 3, unneeded: []types.UID{"b", "a"}, release: []types.UID{"a", "b"}},
		},
		"the only one waits for the third": {
			{held: 1, unneeded: []types.UID{"a"}},
			{held: 1, unneeded: []types.UID{"a"}},
			{held: 1, unneeded: []types.UID{"a"}, release: []types.UID{"a"}},
		},
		"one that is needed in between starts anew": {
			{held: 2, unneeded: []types.UID{"a"}},
			{held: 2},
			{held: 2, unneeded: []types.UID{"a"}},
			{held: 2, unneeded: []types.UID{"a"}, release: []types.UID{"a"}},
		},
		"one that comes later does not go with the others": {
			{held: 4, unneeded: []types.UID{"a", "b"}},
			{held: 4, unneeded: []types.UID{"a", "b", "c"}},
			{held: 4, unneeded: []types.UID{"a", "b", "c"}, release: []types.UID{"a", "b"}},
			{held: 2, unneeded: []types.UID{"c"}, release: []types.UID{"c"}},
		},
		"one that could not be released is released again": {
			{held: 2, unneeded: []types.UID{"a"}},
			{held: 2, unneeded: []types.UID{"a"}, release: []types.UID{"a"}},
			{held: 2, unneeded: []types.UID{"a"}, release: []types.UID{"a"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var r rounds
			for i, now := range all {
				require.Same(t, fmt.Sprintf("round %d releases", i+1), now.release, r.next(now.held, now.unneeded), cmpopts.EquateEmpty())
			}
		})
	}
}
