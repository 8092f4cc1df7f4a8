// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/util/wait"
)

// lockMachine keeps commands that make and remove clusters of this machine apart: they share
// addresses and kernel settings. It ends with the process, too.
func lockMachine(ctx context.Context, say func(format string, args ...any)) (unlock func(), err error) {
	if err := os.MkdirAll(StateRoot, 0o755); err != nil {
		return nil, fmt.Errorf("lock clusters: %w", err)
	}
	return lockFolder(ctx, StateRoot, say)
}

// lockDaemons keeps commands that end daemons of one cluster apart. They need not wait for
// other clusters, of which one may be built. The error wraps [fs.ErrNotExist] if there is no
// cluster.
func lockDaemons(ctx context.Context, l Layout, say func(format string, args ...any)) (unlock func(), err error) {
	return lockFolder(ctx, l.State, say)
}

func lockFolder(ctx context.Context, path string, say func(format string, args ...any)) (unlock func(), err error) {
	dir, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("lock clusters: %w", err)
	}
	waiting := false
	err = wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, 10*time.Minute, true, func(context.Context) (bool, error) {
		err := unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if errors.Is(err, unix.EWOULDBLOCK) {
			if !waiting {
				waiting = true
				say("waiting for another cluster command to finish")
			}
			return false, nil
		}
		return err == nil, err
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock clusters: %w", err), dir.Close())
	}
	return func() { dir.Close() }, nil //nolint:errcheck // closing is what unlocks
}
