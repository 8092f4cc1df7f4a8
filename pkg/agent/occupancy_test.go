// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/simulator/nvmlsim"
)

func TestAgentHandsOutAGPUWhenTheProcessOnItHasEnded(t *testing.T) {
	t.Parallel()
	wanted := claimFor("wanted", "gpu-1b-00")
	n := newNode(t, wanted)
	a := n.start(t)
	sim := n.sim(t)
	// A process that no claim knows of, as after a forced deletion.
	ctx, kill := context.WithCancel(t.Context())
	defer kill()
	process := exec.CommandContext(ctx, "sleep", "1000")
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	if err := sim.AddProcess(0, nvmlsim.Process{PID: process.Process.Pid}); err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	results, err := a.agent.serving.plugin.get().PrepareResourceClaims(short, []*resourceapi.ResourceClaim{wanted})
	if err != nil {
		t.Fatal(err)
	}
	if got := results["uid-wanted"].Err; !errors.Is(got, gpu.ErrInUse) || !strings.Contains(got.Error(), fmt.Sprintf("process %d", process.Process.Pid)) {
		t.Errorf("error %v, want %v that names process %d", got, gpu.ErrInUse, process.Process.Pid)
	}
	kill()
	_ = process.Wait() // it was killed
	a.mustPrepare(t, wanted)
}
