// SPDX-License-Identifier: Apache-2.0

package memoryhook

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

func TestOneProcessAtATimeCallsTheDriver(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	first, err := lockCalls(t.Context(), path, time.Minute)
	must(t, err)
	soon, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = lockCalls(soon, path, time.Minute)
	require.Error(t, "while a call runs", err, gpu.ErrTimeout)
	waited := make(chan error, 1)
	go func() {
		second, err := lockCalls(t.Context(), path, time.Minute)
		waited <- errors.Join(err, second.end())
	}()
	must(t, first.end())
	if err := <-waited; err != nil {
		t.Errorf("after the call: %v", err)
	}
}

// The parent stops waiting, and its child stays in the driver.
func TestWhileACallHangsOthersFailAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	first, err := lockCalls(t.Context(), path, 0)
	must(t, err)
	child := exec.CommandContext(t.Context(), "sleep", "infinity")
	child.ExtraFiles = append(child.ExtraFiles, first.File)
	must(t, child.Start())
	must(t, first.abandon())
	for range 3 {
		began := time.Now()
		if _, err := lockCalls(t.Context(), path, time.Minute); !errors.Is(err, gpu.ErrTimeout) || time.Since(began) > 10*time.Second {
			t.Fatalf("after %v: %v, want %v at once", time.Since(began), err, gpu.ErrTimeout)
		}
	}
	// It ends with a reset of the GPU.
	must(t, child.Process.Kill())
	_ = child.Wait() // it was killed
	after, err := lockCalls(t.Context(), path, 0)
	if err != nil {
		t.Fatalf("after it has ended: %v", err)
	}
	must(t, after.end())
	// A call that has ended leaves nothing that could look like a call that hangs.
	file, err := os.Open(path)
	must(t, err)
	defer file.Close() //nolint:errcheck // it was only read
	if late := (callLock{file}).late(); late > 0 {
		t.Errorf("a call that has ended is %v late", late)
	}
}

var must = require.NoError
