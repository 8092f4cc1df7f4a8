// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"fmt"
	"net"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// ListenOnLoopback listens on an address of the node's loopback interface, which is not the
// host's. The container runtime needs no TLS for registries there. The socket belongs to the
// network namespace of the node.
func (c *Cluster) ListenOnLoopback(address string) (net.Listener, error) {
	type result struct {
		listener net.Listener
		err      error
	}
	results := make(chan result, 1)
	go func() {
		// The thread ends with this goroutine, so nothing else runs in the
		// namespace.
		runtime.LockOSThread()
		handle, err := os.Open(c.NetNS)
		if err != nil {
			results <- result{nil, err}
			return
		}
		defer func() { _ = handle.Close() }() // it was only read
		if err := unix.Setns(int(handle.Fd()), unix.CLONE_NEWNET); err != nil {
			results <- result{nil, fmt.Errorf("enter network namespace %s: %w", c.NetNS, err)}
			return
		}
		listener, err := net.Listen("tcp", address) //nolint:noctx // it returns at once
		results <- result{listener, err}
	}()
	r := <-results
	return r.listener, r.err
}
