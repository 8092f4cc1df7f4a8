// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/gpu-dra/gpu-dra-driver/test/internal/harness"
)

func TestAGPUWithMPSSharesIsExclusive(t *testing.T) {
	runWithDriver(t, "gpu-07-00", "dgx-a100", "--exclusive-compute")
	ns := namespaceFor(t, "exclusive")
	wantModes(t, "")
	apply(t, ns, share("first", "10Gi", "")+cudaPod("first", []string{"first"}, "--memory", "1Gi"))
	ready(t, ns, "first")
	apply(t, ns, share("second", "10Gi", "")+cudaPod("second", []string{"second"}, "--memory", "1Gi"))
	ready(t, ns, "second")
	rows := report(t, ns)
	uuid := oneGPU(t, rows["first/main"], rows["second/main"])
	wantModes(t, uuid+" ExclusiveProcess")
	for _, name := range []string{"first", "second"} {
		if client := held(t, ns, name); !client.MPS || client.Error.Name != "" {
			t.Errorf("%s is a client of MPS: %t, with the error %+v", name, client.MPS, client.Error)
		}
	}

	t.Run("a process of a container that ignores MPS gets nothing", func(t *testing.T) {
		if got := ask(t, ns, "first", "--no-mps", "--memory", "1Gi"); got.MPS || got.AllocatedBytes > 0 || got.Error.Name != "DEVICE_UNAVAILABLE" {
			t.Errorf("it has %d bytes and then the error %+v, as a client of MPS: %t", got.AllocatedBytes, got.Error, got.MPS)
		}
		if got := ask(t, ns, "first", "--memory", "1Gi"); !got.MPS || got.AllocatedBytes != gi {
			t.Errorf("a client of MPS has %d bytes, with the error %+v", got.AllocatedBytes, got.Error)
		}
	})
	t.Run("a process of the host cannot use it", func(t *testing.T) {
		out, err := agent.Sim(t.Context(), "process", "add", "--gpu", uuid, "--pid", strconv.Itoa(os.Getpid()))
		if err == nil || !strings.Contains(err.Error(), "compute mode ExclusiveProcess") {
			t.Errorf("it is admitted: %s, %v", out, err)
		}
	})
	t.Run("it has no taint", func(t *testing.T) {
		devices, err := cluster.Devices(t.Context())
		must(t, err)
		for name, device := range devices {
			if len(device.Taints) > 0 {
				t.Errorf("%s has the taints %v", name, device.Taints)
			}
		}
	})
	t.Run("a plain share is refused with the reason", func(t *testing.T) {
		apply(t, ns, plainShare(t, `"strategy": "Plain"`)+pod("plain", "plain", ""))
		_, err := cluster.WaitEvent(t.Context(), ns, "plain", "--exclusive-compute")
		must(t, err)
		remove(t, ns, "plain")
	})
	t.Run("an agent without the setting sets the mode back with the last share", func(t *testing.T) {
		must(t, agent.Upgrade(t.Context(), "--exclusive-compute=false"))
		must(t, agent.WaitReady(t.Context()))
		remove(t, ns, "first")
		wantModes(t, uuid+" ExclusiveProcess")
		remove(t, ns, "second")
		wantModes(t, "")
	})
}

// wantModes waits until the GPU with a non-default compute mode, and the mode, are as
// wanted. "" means that there is no such GPU.
func wantModes(t *testing.T, want string) {
	t.Helper()
	must(t, harness.Until(t.Context(), func(context.Context) (bool, string, error) {
		var got []string
		for _, g := range simulated(t).GPUs {
			if g.ComputeMode != "Default" {
				got = append(got, g.UUID+" "+g.ComputeMode)
			}
		}
		return strings.Join(got, ", ") == want, fmt.Sprintf("compute modes %q, want %q", got, want), nil
	}))
}
