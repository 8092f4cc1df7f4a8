// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

func TestARunOfNvidiaSMIThatIsKilledAtItsDeadlineTimesOut(t *testing.T) {
	program := filepath.Join(t.TempDir(), "nvidia-smi")
	must(t, os.WriteFile(program, []byte("#!/bin/sh\nsleep 1000 & wait\n"), 0o755))
	// Without time it is not started, with some it is killed.
	for _, limit := range []time.Duration{0, 50 * time.Millisecond} {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		if _, err := output(ctx, program, nil); !errors.Is(err, gpu.ErrTimeout) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("after %s: got %v, want a timeout", limit, err)
		}
	}
}
