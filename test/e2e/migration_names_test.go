package e2e

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/gpu-dra/gpu-dra-driver/test/harness"
)

// takesGPU takes the extended resource of whole GPUs for MIG devices, as a class
// that NVIDIA has published does. The newest of several classes has the name.
const takesGPU = `
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata:
  name: mig-1g-12gb.gpu.nvidia.com
spec:
  selectors:
  - cel: {expression: "device.driver == 'gpu.nvidia.com' && device.attributes['gpu.nvidia.com'].type == 'mig' && device.attributes['gpu.nvidia.com'].profile == '1g.12gb'"}
  extendedResourceName: nvidia.com/gpu
`

// The recipes of docs/migration.md for an extended resource that two classes
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
	waits := func(name string) {
		apply(t, ns, pod(name, "", "nvidia.com/gpu: 1"))
		_, err := cluster.Unschedulable(t.Context(), ns, name)
		must(t, err)
	}
	gets := func(name string, slice bool) {
		ready(t, ns, name)
		if got := report(t, ns)[name+"/main"].Device; !strings.HasPrefix(got, "gpu-") || strings.HasSuffix(got, "-ts") != slice {
			t.Errorf("%s has %s, is a time slice wanted: %t", name, got, slice)
		}
		remove(t, ns, name)
	}

	t.Run("a class that took it and is gone leaves it to nobody until the other is changed", func(t *testing.T) {
		cleared(t, "deviceclass/mig-1g-12gb.gpu.nvidia.com")
		apply(t, "", takesGPU)
		waits("taken")
		_, err := cluster.Kubectl(t.Context(), "delete", "deviceclass", "mig-1g-12gb.gpu.nvidia.com")
		must(t, err)
		waits("lost")
		restore(t.Context(), "gpu.nvidia.com")
		gets("taken", false)
		gets("lost", false)
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
