// SPDX-License-Identifier: Apache-2.0

// Package livefile follows a small file that changes while a program runs. An
// example is a key of a ConfigMap that is mounted into its container.
package livefile

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"time"
)

// interval is the time between reads of a file.
const interval = 5 * time.Second

// Follow calls on with the content of the file, or with the error of reading it: first
// at once, and then whenever one of them has changed. It returns when ctx ends.
//
// It reads the file every five seconds. The kubelet takes up to a minute to update a
// mount, so inotify would hardly be faster, and a node with many pods can run out of its
// instances.
func Follow(ctx context.Context, path string, on func(content []byte, err error)) {
	content, err := os.ReadFile(path)
	on(content, err)
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		before, beforeErr := content, err
		if content, err = os.ReadFile(path); !bytes.Equal(content, before) || fmt.Sprint(err) != fmt.Sprint(beforeErr) {
			on(content, err)
		}
	}
}
