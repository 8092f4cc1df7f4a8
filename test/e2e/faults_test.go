// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/test/internal/harness"
)

// broken is the GPU of the DGX H100 that these tests break, the last one in
// published order.
const broken = "gpu-df-00"

// heal ends all faults of the simulated hardware, so that calls that hang return. A test can
// also call it at its end.
func heal(t *testing.T) {
	t.Helper()
	sim(t, "fault", "clear")
}

// healsAtTheEnd ends all faults of the simulated hardware when the test ends.
func healsAtTheEnd(t *testing.T) {
	t.Helper()
	t.Cleanup(func() { heal(t) })
}

// waitUnhealthy waits until the device has the taint of a fault, or has none. A test can also
// call it at its end.
func waitUnhealthy(t *testing.T, device string, want bool) {
	t.Helper()
	must(t, harness.Until(context.WithoutCancel(t.Context()), func(ctx context.Context) (bool, string, error) {
		found, cause, err := unhealthy(ctx, device)
		return found == want, fmt.Sprintf("%s is tainted: %t %s, want %t", device, found, cause, want), err
	}))
}

// unhealthy reports whether the device is published with the taint of a fault. It
// also returns the named cause.
func unhealthy(ctx context.Context, device string) (found bool, cause string, err error) {
	devices, err := cluster.Devices(ctx)
	for _, taint := range devices[device].Taints {
		if taint.Key == v1alpha1.TaintUnhealthy {
			return true, taint.Value, err
		}
	}
	return false, "", err
}

// hangs makes every call of the simulated driver about a GPU hang until the
// faults are cleared.
func hangs(t *testing.T, device string) {
	t.Helper()
	sim(t, "fault", "call", "--gpu", pciAddress(device), "--method", "*", "--hang", "1h")
}

func TestAGPUThatHangsFromTheStartLeavesSevenInService(t *testing.T) {
	nothingLeft(t)
	must(t, agent.Stop(t.Context()))
	kubectl(t, "delete", "resourceslices", "--all")
	healsAtTheEnd(t)
	hangs(t, broken)
	must(t, agent.Launch(t.Context()))
	ns := namespaceFor(t, "hangs-from-start")
	publishes(t, 7)
	published(t, broken, false)
	pods := eachWithAGPU(t, ns, 7)
	ready(t, ns, pods...)
	remove(t, ns, pods...)

	heal(t)
	publishes(t, 8)
	waitUnhealthy(t, broken, false)
	must(t, agent.WaitReady(t.Context()))
	nothingLeft(t)
}

func TestAGPUThatHangsLaterLeavesSevenInService(t *testing.T) {
	nothingLeft(t)
	healsAtTheEnd(t)
	ns := namespaceFor(t, "hangs-later")
	pods := eachWithAGPU(t, ns, 8)
	ready(t, ns, pods...)

	hangs(t, broken)
	// All pods can end, also the one whose GPU no longer answers.
	remove(t, ns, pods...)
	waitUnhealthy(t, broken, true)
	pods = eachWithAGPU(t, ns, 7)
	ready(t, ns, pods...)
	must(t, agent.Stop(t.Context()))
	must(t, agent.Launch(t.Context()))
	remove(t, ns, pods...)

	heal(t)
	waitUnhealthy(t, broken, false)
	must(t, agent.WaitReady(t.Context()))
	nothingLeft(t)
}

// eachWithAGPU applies that many pods with a GPU of their own, and returns their
// names.
func eachWithAGPU(t *testing.T, namespace string, count int) []string {
	t.Helper()
	var names []string
	var manifest strings.Builder
	for i := range count {
		name := fmt.Sprintf("one-of-%d-%d", count, i)
		names = append(names, name)
		manifest.WriteString(pod(name, "", "nvidia.com/gpu: 1") + "---\n")
	}
	apply(t, namespace, manifest.String())
	return names
}
