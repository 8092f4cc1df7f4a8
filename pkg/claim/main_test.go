// SPDX-License-Identifier: Apache-2.0

package claim_test

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"
)

// memoryDir is a tmpfs.
const memoryDir = "/dev/shm"

// TestMain puts the temporary folders of all tests into memory, because the tests run
// thousands of agents, each with its own files. It also discards the log; a test that
// reads log messages has a logger of its own.
func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	klog.SetLogger(klog.Logger{})
	if err := flag.Set("rapid.checks", checksPerProperty); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if unix.Access(memoryDir, unix.W_OK) != nil {
		return m.Run()
	}
	dir, err := os.MkdirTemp(memoryDir, "claim-test-")
	if err == nil {
		defer func() { _ = os.RemoveAll(dir) }() // after tests that failed
		err = os.Setenv("TMPDIR", dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}
