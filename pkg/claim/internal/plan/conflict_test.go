// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"errors"
	"testing"

	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/internal/journal"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

func TestTwoSharesWithoutShareIDsConflict(t *testing.T) {
	name, err := kind.Parse("gpu-1b-00")
	if err != nil {
		t.Fatal(err)
	}
	share := journal.Device{Name: "gpu-1b-00", Share: &journal.Share{Memory: 1 << 30}}
	p := &Plan{Names: []kind.Name{name}}
	if err := p.checkCombination(share, name, []journal.Device{share}); !errors.Is(err, gpu.ErrInvalid) {
		t.Errorf("got %v, want %v", err, gpu.ErrInvalid)
	}
}
