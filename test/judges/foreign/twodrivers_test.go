// SPDX-License-Identifier: Apache-2.0

package foreign

import (
	"context"
	"fmt"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/gpu-dra/gpu-dra-driver/test/internal/harness"
)

// startAgent starts our agent, which is uninstalled at the end of the test.
func startAgent(t *testing.T, model string) *harness.Agent {
	t.Helper()
	agent := cluster.NewAgent(model)
	t.Cleanup(func() {
		must(t, cluster.Uninstall(context.WithoutCancel(t.Context())))
		deleteSlices(t)
	})
	must(t, agent.Start(t.Context()))
	return agent
}

// published waits until all devices of the node are NVIDIA's, or all are ours.
func published(t *testing.T, agent *harness.Agent, nvidias bool) {
	t.Helper()
	must(t, harness.Until(t.Context(), func(ctx context.Context) (bool, string, error) {
		var theirs, ours []string
		err := cluster.EachSlice(ctx, func(slice resourceapi.ResourceSlice) {
			for _, device := range slice.Spec.Devices {
				// NVIDIA's names end with the minor of the GPU, ours with its PCI address.
				if strings.Count(device.Name, "-") == 1 {
					theirs = append(theirs, device.Name)
				} else {
					ours = append(ours, device.Name)
				}
			}
		})
		is, other := ours, theirs
		if nvidias {
			is, other = theirs, ours
		}
		return len(is) > 0 && len(other) == 0, fmt.Sprintf("NVIDIA's devices %q, ours %q; the agent:\n%s", theirs, ours, agent.LogTail(ctx)), err
	}))
}

func TestTheAgentWaitsForNVIDIAsDriverToEnd(t *testing.T) {
	agent := startAgent(t, "dgx-h100")
	must(t, agent.Stop(t.Context()))
	deleteSlices(t)
	startNVIDIA(t, agent.SimDir())
	const ns = "moves"
	newNamespace(t, ns)
	runOn(t, ns, "before", claimOf("before", "gpu.nvidia.com", "", ""))

	must(t, agent.Launch(t.Context()))
	must(t, harness.Until(t.Context(), func(ctx context.Context) (bool, string, error) {
		log, err := agent.Log(ctx)
		// There is no log before the container runs.
		return strings.Contains(log, "gpu.nvidia.com-reg.sock"), fmt.Sprintf("the agent's log does not name the socket of NVIDIA's driver: %v\n%s", err, log), nil
	}))
	published(t, agent, true)
	// NVIDIA's driver still serves the node.
	runOn(t, ns, "during", claimOf("during", "gpu.nvidia.com", "", ""))
	end(t, ns, "before")
	end(t, ns, "during")

	must(t, cluster.StopForeign(t.Context(), gpuPlugin))
	must(t, agent.WaitReady(t.Context()))
	published(t, agent, false)
	runOn(t, ns, "after", claimOf("after", "gpu.nvidia.com", "", ""))
	end(t, ns, "after")
}
