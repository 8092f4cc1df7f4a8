// SPDX-License-Identifier: Apache-2.0

package report

import (
	"errors"
	"fmt"
	"testing"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

func TestTheReasonOfARefusal(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{fmt.Errorf("device gpu-1b-00: %w: process 7 uses it", gpu.ErrInUse), "AlreadyInUse"},
		{fmt.Errorf("%w: it cannot be a share", gpu.ErrInvalid), "Invalid"},
		{errors.Join(fmt.Errorf("undo: %w", gpu.ErrTimeout), gpu.ErrUnhealthy), "GPUUnhealthy"},
		{errors.New("the disk is full"), "PrepareFailed"},
	} {
		if got := Reason(c.err); got != c.want {
			t.Errorf("%v: %s, want %s", c.err, got, c.want)
		}
	}
}
