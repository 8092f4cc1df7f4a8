// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/gpu-dra/gpu-dra-driver/test/internal/harness"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

// NVIDIA's device plugin with mig-strategy mixed allocates whole GPUs, and the MIG devices
// that an administrator has made. Our agent publishes the same devices meanwhile.
func TestMigrationOfMIGDevicesOfTheDevicePlugin(t *testing.T) {
	var small, medium, large, other string
	var plugin nvidiaPlugin
	resources := map[corev1.ResourceName]int64{"nvidia.com/gpu": 6, "nvidia.com/mig-1g.10gb": 2, "nvidia.com/mig-2g.20gb": 1, "nvidia.com/mig-3g.40gb": 1}
	runAfter(t, func(ctx context.Context) error {
		must(t, agent.CreateNode(ctx))
		cutMIG(t, agent.SimDir(), 0, "1g.10gb:0", "2g.20gb:2")
		cutMIG(t, agent.SimDir(), 1, "1g.10gb:0", "3g.40gb:4")
		gpus := simulated(t).GPUs
		small, medium = gpus[0].Instances[0].UUID, gpus[0].Instances[1].UUID
		other, large = gpus[1].Instances[0].UUID, gpus[1].Instances[1].UUID
		plugin = startPlugin(t, resources, "", "--mig-strategy=mixed")
		return nil
	}, "gpu-1b-00-mig-1g-10gb-0", "dgx-h100", "--offer=share,mig", "--mig=static")
	names := map[string]string{small: "gpu-1b-00-mig-1g-10gb-0", large: "gpu-43-00-mig-3g-40gb-4", medium: "gpu-1b-00-mig-2g-20gb-2", other: "gpu-43-00-mig-1g-10gb-0"}
	ns := namespaceFor(t, "plugin-mig")
	apply(t, ns, pod("whole", "", "nvidia.com/gpu: 1")+"---\n"+pod("small", "", "nvidia.com/mig-1g.10gb: 1")+"---\n"+pod("medium", "", "nvidia.com/mig-2g.20gb: 1"))
	ready(t, ns, "whole", "small", "medium")
	if got := onlyMIG(t, ns, "medium"); got != medium {
		t.Errorf("a pod with nvidia.com/mig-2g.20gb has %s, want %s", got, medium)
	}
	got, spare := onlyMIG(t, ns, "small"), other
	if got == other {
		spare = small
	}
	if names[got] == "" || got == medium {
		t.Fatalf("a pod with nvidia.com/mig-1g.10gb has %s, want %s or %s", got, small, other)
	}
	whole := byUUID(t)[onlyGPU(t, ns, "whole")]

	t.Run("only the allocated devices and the ones in their place are tainted", func(t *testing.T) {
		// No claim can have a GPU as a whole that has MIG devices.
		want := []string{names[got], names[medium], whole, "gpu-1b-00"}
		if got == other {
			want = append(want, "gpu-43-00")
		}
		slices.Sort(want)
		must(t, harness.Until(t.Context(), func(ctx context.Context) (bool, string, error) {
			tainted, err := taintedInUse(ctx)
			return slices.Equal(want, tainted), "tainted (-want +got):\n" + cmp.Diff(want, tainted), err
		}))
	})
	t.Run("an error makes exactly its MIG device or GPU unhealthy", func(t *testing.T) {
		healsAtTheEnd(t)
		sim(t, "fault", "xid", "--mig", spare, "--xid", "94")
		sim(t, "fault", "xid", "--gpu", "7", "--xid", "94")
		resources["nvidia.com/mig-1g.10gb"]--
		resources["nvidia.com/gpu"]--
		plugin.offers(t, resources)
		require.Same(t, "unhealthy", []string{simulated(t).GPUs[7].UUID, spare}, plugin.unhealthy(t))
	})
	t.Run("without the plugin claims have the other MIG devices", func(t *testing.T) {
		plugin.stop(t)
		for name := range resources {
			resources[name] = 0
		}
		plugin.offers(t, resources)
		apply(t, ns, pod("moved", "", "nvidia.com/mig-1g.10gb: 1")+"---\n"+pod("waits", "", "nvidia.com/mig-2g.20gb: 1"))
		ready(t, ns, "moved")
		if row := report(t, ns)["moved/main"]; row.UUID != spare {
			t.Errorf("a claim has %s, want %s", row.UUID, spare)
		}
		_, err := cluster.Unschedulable(t.Context(), ns, "waits")
		must(t, err)
		remove(t, ns, "medium")
		ready(t, ns, "waits")
		if row := report(t, ns)["waits/main"]; row.UUID != medium {
			t.Errorf("a claim has %s, want %s", row.UUID, medium)
		}
	})
}

// byUUID returns the names of the published GPUs, by UUID.
func byUUID(t *testing.T) map[string]string {
	t.Helper()
	devices, err := cluster.Devices(t.Context())
	must(t, err)
	names := map[string]string{}
	for name, device := range devices {
		if uuid := device.Attributes["uuid"].StringValue; uuid != nil {
			names[*uuid] = name
		}
	}
	return names
}

// onlyMIG returns the UUID of the one MIG device whose capabilities the container of a pod
// has. It also has the node of the device's GPU.
func onlyMIG(t *testing.T, namespace, pod string) string {
	t.Helper()
	sight, err := cluster.Sight(t.Context(), namespace, pod, "main")
	must(t, err)
	text, err := os.ReadFile(filepath.Join(agent.SimDir(), "proc/driver/nvidia-caps/mig-minors"))
	must(t, err)
	minors := map[string]string{}
	for line := range strings.Lines(string(text)) {
		access, minor, _ := strings.Cut(strings.TrimSpace(line), " ")
		minors[access] = "/dev/nvidia-caps/nvidia-cap" + minor
	}
	for _, g := range simulated(t).GPUs {
		for _, in := range g.Instances {
			want := []string{
				minors[fmt.Sprintf("gpu%d/gi%d/access", g.Minor, in.GPUInstanceID)],
				minors[fmt.Sprintf("gpu%d/gi%d/ci%d/access", g.Minor, in.GPUInstanceID, *in.ComputeInstanceID)],
			}
			slices.Sort(want)
			if slices.Equal(want, sight.Capabilities()) && slices.Equal(sight.GPUs(), []string{fmt.Sprintf("/dev/nvidia%d", g.Minor)}) {
				return in.UUID
			}
		}
	}
	t.Fatalf("%s sees the GPUs %v and the capabilities %v, want the ones of one MIG device", pod, sight.GPUs(), sight.Capabilities())
	return ""
}
