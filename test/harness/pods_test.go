// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"os/exec"
	"strings"
	"testing"
	"time"
)

func TestUntilReturnsTheLastReasonIfItsLimitEndsACommand(t *testing.T) {
	err := Until(t.Context(), 50*time.Millisecond, func(ctx context.Context) (bool, string, error) {
		return false, "no metric", exec.CommandContext(ctx, "sleep", "60").Run()
	})
	if err == nil || !strings.Contains(err.Error(), "no metric") {
		t.Errorf("the error is %v, want the reason", err)
	}
}
