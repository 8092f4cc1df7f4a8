// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/gpu-dra/gpu-dra-driver/test/internal/harness"
)

// secondClass has the extended resource of a class of the chart. NVIDIA publishes
// such a class, mig-1g-12gb, as an example for its profile. The newest of several
// classes has the name.
const secondClass = `
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata:
  name: mig-1g-10gb.gpu.nvidia.com
spec:
  selectors:
  - cel: {expression: "device.driver == 'gpu.nvidia.com' && device.attributes['gpu.nvidia.com'].type == 'mig' && device.attributes['gpu.nvidia.com'].profile == '1g.10gb'"}
  extendedResourceName: nvidia.com/mig-1g.10gb
`

// The recipes of docs/admin/device-plugin-differences.md#one-name-one-class for an extended resource that two classes
// have had.
func TestMigrationOfTheNameOfAnExtendedResource(t *testing.T) {
	ns := namespaceFor(t, "names")
	restore := func(ctx context.Context, class string) {
		_, err := cluster.Kubectl(ctx, "annotate", "--overwrite", "deviceclass", class, "restored="+time.Now().Format("150405.000"))
		must(t, err)
	}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		must(t, agent.Start(ctx)) // with the chart's own names
		restore(ctx, "gpu.nvidia.com")
	})
	gets := func(name string, slice bool) {
		ready(t, ns, name)
		if got := report(t, ns)[name+"/main"].Device; !strings.HasPrefix(got, "gpu-") || strings.HasSuffix(got, "-ts") != slice {
			t.Errorf("%s has %s, is a time slice wanted: %t", name, got, slice)
		}
		remove(t, ns, name)
	}

	t.Run("a second class that is deleted leaves it to no class until the first is changed", func(t *testing.T) {
		label(t, "gpu.nvidia.com/offer=share.mig")
		published(t, "gpu-1b-00-mig-1g-10gb-0", true)
		t.Cleanup(func() {
			restore(context.WithoutCancel(t.Context()), "mig-1g.10gb")
			label(t, "gpu.nvidia.com/offer-")
			published(t, "gpu-1b-00-mig-1g-10gb-0", false)
		})
		getsMIG := func(name string) {
			t.Helper()
			apply(t, ns, pod(name, "", "nvidia.com/mig-1g.10gb: 1"))
			ready(t, ns, name)
			if got := report(t, ns)[name+"/main"].UUID; !strings.HasPrefix(got, "MIG-") {
				t.Errorf("%s has %s, want a MIG device", name, got)
			}
		}
		cleared(t, "deviceclass/mig-1g-10gb.gpu.nvidia.com")
		apply(t, "", secondClass)
		getsMIG("by-the-second-class")
		kubectl(t, "delete", "deviceclass", "mig-1g-10gb.gpu.nvidia.com")
		apply(t, ns, pod("waits", "", "nvidia.com/mig-1g.10gb: 1"))
		why, err := cluster.Unschedulable(t.Context(), ns, "waits")
		must(t, err)
		if !strings.Contains(why, "Insufficient nvidia.com/mig-1g.10gb") {
			t.Errorf("the scheduler refuses the pod with %q, want it to name the resource", why)
		}
		restore(t.Context(), "mig-1g.10gb")
		getsMIG("created-afterwards")
		remove(t, ns, "waits")
		getsMIG("waits") // created again
		remove(t, ns, "by-the-second-class", "created-afterwards", "waits")
	})
	t.Run("it moves to another class and back in two upgrades", func(t *testing.T) {
		label(t, "gpu.nvidia.com/offer=share.timeslice")
		published(t, "gpu-1b-00-ts", true)
		t.Cleanup(func() {
			label(t, "gpu.nvidia.com/offer-")
			published(t, "gpu-1b-00-ts", false)
		})
		upgrade := func(value string) {
			_, err := cluster.Helm(t.Context(), "upgrade", "--reuse-values", "--set", value, harness.Namespace, "deployments/helm/gpu-dra-driver")
			must(t, err)
		}
		upgrade("deviceClasses.gpu.extendedResource=")
		upgrade("deviceClasses.timeslice.extendedResource=nvidia.com/gpu")
		apply(t, ns, pod("turns", "", "nvidia.com/gpu: 1"))
		gets("turns", true)
		upgrade("deviceClasses.timeslice.extendedResource=nvidia.com/gpu.shared")
		upgrade("deviceClasses.gpu.extendedResource=nvidia.com/gpu")
		apply(t, ns, pod("whole", "", "nvidia.com/gpu: 1"))
		gets("whole", false)
	})
	nothingLeft(t)
}
