// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

func TestAnAgentThatEndsWithACallUnderWayLeavesItsFolder(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	home := filepath.Join(n.driverDir(), "agent")
	for _, c := range []struct {
		idle bool
		want error
	}{
		{idle: false, want: nil},
		{idle: true, want: fs.ErrNotExist},
	} {
		hw := n.hardware(t)
		a, err := newAgent(t.Context(), n.Config, hw, n.client)
		if err != nil {
			t.Fatal(err)
		}
		a.leave(t.Context(), c.idle)
		if _, err := os.Stat(home); !errors.Is(err, c.want) {
			t.Errorf("the agent's folder after an end that is idle (%t): %v, want %v", c.idle, err, c.want)
		}
		if err := hw.close(); err != nil {
			t.Error(err)
		}
	}
}
