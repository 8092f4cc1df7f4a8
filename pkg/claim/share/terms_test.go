// SPDX-License-Identifier: Apache-2.0

package share_test

import (
	"testing"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/share"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

func TestTheStrategyFollowsFromTheTerms(t *testing.T) {
	client := &share.Client{Processes: 1}
	for name, c := range map[string]struct {
		terms share.Terms
		kind  kind.Kind
		want  v1alpha1.Strategy
	}{
		"a whole GPU":                           {share.Terms{}, kind.GPU, ""},
		"a share of unknown terms":              {share.Terms{Share: &share.Amount{}, MPS: client}, kind.GPU, ""},
		"a share":                               {share.Terms{Share: &share.Amount{Memory: 1}}, kind.GPU, v1alpha1.StrategyPlain},
		"a share that MPS limits":               {share.Terms{Share: &share.Amount{Memory: 1}, MPS: client}, kind.GPU, v1alpha1.StrategyMPS},
		"a whole GPU with an interval":          {share.Terms{TimeSlice: gpu.TimeSliceLong}, kind.GPU, v1alpha1.StrategyTimeSlicing},
		"a whole GPU with MPS":                  {share.Terms{MPS: client}, kind.GPU, v1alpha1.StrategyMPS},
		"a time slice of a lost record":         {share.Terms{}, kind.TimeSlice, v1alpha1.StrategyTimeSlicing},
		"a time slice with memory":              {share.Terms{Slots: 1, Share: &share.Amount{Memory: 1}}, kind.TimeSlice, v1alpha1.StrategyTimeSlicing},
		"all GPUs of the node, to be monitored": {share.Terms{}, kind.Monitor, ""},
	} {
		if got := c.terms.Strategy(c.kind); got != c.want {
			t.Errorf("%s has the strategy %q, want %q", name, got, c.want)
		}
		if data := c.terms.Data(c.kind); (data == nil) != (c.want == "") {
			t.Errorf("%s has the data %+v", name, data)
		}
	}
}
