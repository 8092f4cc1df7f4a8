// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"strings"
	"testing"

	"github.com/gpu-dra/gpu-dra-driver/simulator/nvmlsim"
)

// Containers that allocate known amounts: the kubelet, the container runtime and the kernel
// show which container a process is in, and whose pod.
func TestTheMetricsHaveWhatContainersAllocate(t *testing.T) {
	runWithDriver(t, "gpu-1b-00-ts", "dgx-h100-r615", "--offer=share,mig,timeslice")
	ns := namespaceFor(t, "metrics")
	manifests := claim("whole", "", "") + of("timeslice.nvidia.com", claim("slot", "", "")) + share("held", "10Gi", config("ShareConfig", `"containers": 2`)) +
		of("mig.nvidia.com", claim("mig", `selectors: [{cel: {expression: "device.attributes['gpu.nvidia.com'].profile == '1g.10gb'"}}]`, ""))
	used := map[string]float64{"whole": 3 * gi, "slot": 30 * gi, "held": 2 * gi, "mig": 5 * gi}
	size := map[string]string{"whole": "3Gi", "slot": "30Gi", "held": "2Gi", "mig": "5Gi"}
	for name := range used {
		// Two containers, with as much memory each.
		manifests += cudaPod(name, []string{name, name}[:containersOf(name)], "--no-mps", "--memory", size[name])
	}
	apply(t, ns, manifests)
	ready(t, ns, "whole", "slot", "held", "mig")
	for name := range used {
		allocated(t, ns, name, []string{"main", "main-1"}[:containersOf(name)]...)
	}
	metrics, err := agent.Metrics(t.Context())
	must(t, err)
	for name, bytes := range used {
		for _, container := range []string{"main", "main-1"}[:containersOf(name)] {
			if got, want := claimMetric(t, metrics, "memory_used_bytes", ns, name, name, container), bytes+contextOf(name); got != want {
				t.Errorf("%s of %s uses %v bytes, want %v", container, name, got, want)
			}
			if name == "held" && claimMetric(t, metrics, "memory_limit_bytes", ns, name, name, container) != 5*gi {
				t.Errorf("%s of %s has another limit than 5 GiB", container, name)
			}
		}
	}
	for name, promised := range map[string]float64{"held": 10 * gi, "whole": 80928 << 20, "mig": 9904 << 20} {
		if got := claimMetric(t, metrics, "memory_promised_bytes", ns, name, "", ""); got != promised {
			t.Errorf("%s was promised %v bytes, want %v", name, got, promised)
		}
	}
	for name, class := range map[string]string{"held": "mps.nvidia.com", "whole": "gpu.nvidia.com", "mig": "mig.nvidia.com", "slot": "timeslice.nvidia.com"} {
		if want := `gpu_dra_share_seconds_total{class="` + class + `",namespace="` + ns + `"} `; !strings.Contains(metrics, want) {
			t.Errorf("nothing is charged for %s: no %s", name, want)
		}
	}
}

// h100 is what the context of a process depends on.
var h100 = nvmlsim.ComputeDevice{ComputeCapability: nvmlsim.Version{Major: 9}, Multiprocessors: 132}

// contextOf returns the size of a CUDA context on the device of the claim. The device
// is an H100 or a 1g.10gb of it.
func contextOf(claim string) float64 {
	if claim == "mig" {
		return float64(h100.ContextBytes(16))
	}
	return float64(h100.ContextBytes(132))
}

// containersOf returns how many containers use the claim.
func containersOf(claim string) int {
	if claim == "whole" || claim == "held" {
		return 2
	}
	return 1
}
