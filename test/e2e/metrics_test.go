// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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

// A pod names a container by a folder that is like the kubelet's, and not even text.
func TestAPodCannotNameItsContainersInTheMetrics(t *testing.T) {
	runWithDriver(t, "gpu-1b-00", "dgx-h100-r615")
	ns := namespaceFor(t, "names")
	const names = 2
	volume := t.TempDir()
	mounts := ""
	for i := range names {
		mounts += fmt.Sprintf("    - {name: v, mountPath: /%d, subPath: link-%d}\n", i, i)
	}
	pod := strings.NewReplacer(
		"spec:\n", "spec:\n  schedulingGates: [{name: example.com/wait}]\n  volumes: [{name: v, hostPath: {path: "+volume+"}}]\n",
		"    resources:\n", "    volumeMounts:\n"+mounts+"    resources:\n",
	).Replace(cudaPod("hostile", []string{"hostile"}, "--no-mps", "--memory", "3Gi"))
	apply(t, ns, claim("hostile", "", "")+claim("other", "", "")+pod+cudaPod("other", []string{"other"}, "--no-mps", "--memory", "2Gi"))
	created, err := cluster.Client.CoreV1().Pods(ns).Get(t.Context(), "hostile", metav1.GetOptions{})
	must(t, err)
	for i, name := range [names]string{"evil", "\xff\xfe"} {
		file := filepath.Join("pods", string(created.UID), "containers", name, "0a0b0c0d")
		must(t, os.MkdirAll(filepath.Join(volume, filepath.Dir(file)), 0o755))
		must(t, os.WriteFile(filepath.Join(volume, file), nil, 0o600))
		must(t, os.Symlink(file, filepath.Join(volume, fmt.Sprintf("link-%d", i))))
	}
	_, err = cluster.Kubectl(t.Context(), "patch", "pod", "hostile", "-n", ns, "--type=json", `-p=[{"op": "remove", "path": "/spec/schedulingGates"}]`)
	must(t, err)
	ready(t, ns, "hostile", "other")
	allocated(t, ns, "hostile", "main")
	allocated(t, ns, "other", "main")
	metrics, err := agent.Metrics(t.Context())
	must(t, err)
	for name, bytes := range map[string]float64{"hostile": 3 * gi, "other": 2 * gi} {
		if got, want := claimMetric(t, metrics, "memory_used_bytes", ns, name, name, "main"), bytes+contextOf(name); got != want {
			t.Errorf("main of %s uses %v bytes, want %v", name, got, want)
		}
	}
	if strings.Contains(metrics, `container="evil"`) {
		t.Error("a container has the name of a folder")
	}
}
