// SPDX-License-Identifier: Apache-2.0

package memoryhook

import (
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/gpu-dra/gpu-dra-driver/pkg/node/containerlimits"
)

func TestTheListenerOutlivesAnErrorOfItsSocket(t *testing.T) {
	dir, err := os.MkdirTemp("", "hook") //nolint:usetesting // the path of a socket has at most 107 bytes
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "hooks.sock")
	l, err := Listen(path)
	must(t, err)
	failed := make(chan struct{}, 1)
	var serving sync.WaitGroup
	t.Cleanup(serving.Wait)
	ctx := t.Context() // ends before the wait
	serving.Go(func() {
		l.Serve(ctx, nil, func(containerlimits.Limit, error) { failed <- struct{}{} })
	})
	fail := func(deadline time.Time) {
		if err := l.socket.SetDeadline(deadline); err != nil {
			t.Error(err)
		}
	}
	fail(time.Now())
	<-failed
	fail(time.Time{})
	conn, err := net.Dial("unix", path)
	must(t, err)
	defer conn.Close() //nolint:errcheck // it was read
	if err := expect(t.Context(), conn, ready); err != nil {
		t.Errorf("the next hook: %v", err)
	}
}
