// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"os/exec"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

func TestUntilReturnsTheLastReasonIfItsContextEndsACommand(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	err := Until(ctx, func(ctx context.Context) (bool, string, error) {
		return false, "no metric", exec.CommandContext(ctx, "sleep", "60").Run()
	})
	if err == nil || !strings.Contains(err.Error(), "no metric") {
		t.Errorf("the error is %v, want the reason", err)
	}
}

func TestUntilAsksABusyServerAgain(t *testing.T) {
	answers := []error{apierrors.NewTimeoutError("etcd has no time", 1), apierrors.NewTooManyRequests("later", 1), nil}
	err := Until(t.Context(), func(context.Context) (bool, string, error) {
		answer := answers[0]
		answers = answers[1:]
		return answer == nil, "", answer
	})
	if err != nil || len(answers) != 0 {
		t.Errorf("Until returns %v, and %d answers are left", err, len(answers))
	}
	refused := apierrors.NewBadRequest("no such field")
	require.Error(t, "Until returns", Until(t.Context(), func(context.Context) (bool, string, error) { return false, "", refused }), refused)
}
