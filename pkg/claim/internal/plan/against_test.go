// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"errors"
	"testing"

	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/share"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind/kindtest"
)

func TestTwoSharesWithoutShareIDsConflict(t *testing.T) {
	share := Device{Name: kindtest.Name("gpu-1b-00"), Terms: share.Terms{Share: &share.Amount{Memory: 1 << 30}}}
	if err := (Inputs{}).checkCombination(share, []Device{share}); !errors.Is(err, gpu.ErrInvalid) {
		t.Errorf("got %v, want %v", err, gpu.ErrInvalid)
	}
}
