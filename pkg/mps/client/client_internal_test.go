// SPDX-License-Identifier: Apache-2.0

package client

import (
	"errors"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc/connectivity"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

func TestAnIdleClientDoesNotTryToReachASupervisorThatIsAway(t *testing.T) {
	client, err := newClient(filepath.Join(t.TempDir(), "s"), 100*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	if _, err := client.MPSDaemons(t.Context()); !errors.Is(err, gpu.ErrNotReady) {
		t.Fatalf("error %v, want ErrNotReady", err)
	}
	for state := client.conn.GetState(); state != connectivity.Idle; state = client.conn.GetState() {
		if !client.conn.WaitForStateChange(t.Context(), state) {
			t.Fatalf("the connection is %s, and no call is under way", state)
		}
	}
	select {
	case <-time.After(time.Second): // more than it waits between two attempts
	case <-t.Context().Done():
	}
	if state := client.conn.GetState(); state != connectivity.Idle {
		t.Errorf("the connection is %s, and no call is under way", state)
	}
}
