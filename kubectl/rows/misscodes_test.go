// SPDX-License-Identifier: Apache-2.0

package rows

import (
	"fmt"
	"testing"

	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// Programs compare the codes: they do not change.
func TestTheCodesOfMisses(t *testing.T) {
	w := shared(t)
	for want, v := range map[string]fleet.Verdict{
		"in-use":          {Missing: []fleet.Condition{fleet.ConditionHolders}},
		"tainted":         {Missing: []fleet.Condition{fleet.ConditionTaints, fleet.ConditionHolders}},
		"constraint":      {Missing: []fleet.Condition{fleet.ConditionConstraints}},
		"selector":        {Missing: []fleet.Condition{fleet.ConditionSelectors}},
		"too-small":       {Missing: []fleet.Condition{fleet.ConditionSize}},
		"other-class":     {Missing: []fleet.Condition{fleet.ConditionClass}},
		"pool-refused":    {Problem: fmt.Errorf("pool a: %w", fleet.ErrPoolRefused)},
		"pool-incomplete": {Problem: fmt.Errorf("pool a: %w", gpu.ErrNotReady)},
		"not-examined":    {Problem: fmt.Errorf("node a: %w", fleet.ErrNotExamined)},
		"search-failed":   {Problem: gpu.ErrTimeout},
		"excluded":        {Excluded: []string{"it is cordoned"}},
		"too-few-devices": {},
	} {
		v.Node = "a"
		if got, _ := cluster(w).Missing(v); got != want {
			t.Errorf("%+v: got %s, want %s", v, got, want)
		}
	}
	if got, _ := cluster(w).Missing(fleet.Verdict{Node: "without"}); got != "nothing-published" {
		t.Errorf("a node without devices: got %s", got)
	}
}
