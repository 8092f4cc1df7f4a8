// SPDX-License-Identifier: Apache-2.0

package claim_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

func TestAGPUThatADevicePluginAllocatedIsNotPrepared(t *testing.T) {
	w := newWorld(t, t.TempDir(), 2)
	allocate := func(external ...gpu.ExternalAllocation) {
		w.mu.Lock()
		defer w.mu.Unlock()
		a := gpu.PCIAddress{}
		g := w.gpus[a]
		g.ExternalPod = ""
		w.gpus[a] = g.WithExternalAllocations(external)
	}
	m, wanted := w.start(), pieces("c", piece{device: "gpu-00-00"})
	allocate(gpu.ExternalAllocation{Device: "GPU-0", Pod: "team/old"})
	if _, err := m.Prepare(once(), wanted); !errors.Is(err, gpu.ErrInUse) || !strings.Contains(err.Error(), "a device plugin of this node has given it") {
		t.Errorf("error %v, want one that wraps %v and says why", err, gpu.ErrInUse)
	}
	if _, err := m.Prepare(once(), pieces("other", piece{device: "gpu-01-00"})); err != nil {
		t.Errorf("another GPU: %v", err)
	}
	// The external allocation may end while the call waits.
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	prepared := make(chan error, 1)
	go func() {
		_, err := m.Prepare(ctx, wanted)
		prepared <- err
	}()
	allocate()
	if err := <-prepared; err != nil {
		t.Fatal(err)
	}
	// A prepared claim keeps its GPU.
	allocate(gpu.ExternalAllocation{Device: "GPU-0", Pod: "team/new"})
	if _, err := m.Prepare(once(), wanted); err != nil {
		t.Errorf("the same again: %v", err)
	}
	must(t, m.Unprepare(once(), wanted.UID))
}
