// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"testing"

	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/share"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind/kindtest"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

func TestTwoSharesWithoutShareIDsConflict(t *testing.T) {
	share := Device{Name: kindtest.Name("gpu-1b-00"), Terms: share.Terms{Share: &share.Amount{Memory: 1 << 30}}}
	require.Error(t, "checkCombination", (Inputs{}).checkCombination(share, []Device{share}), gpu.ErrInvalid)
}
