// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
)

func TestTheDemoOfMIG(t *testing.T) {
	runOn(t, "gpu-1b-00-mig-1g-10gb-0", "dgx-h100", "--offer=share,mig")
	t.Run("seven 1g pods fill one GPU", testSeven)
	t.Run("a mix of sizes in one pod comes from one GPU", testMix)
	t.Run("whole GPUs wait while one is cut and start when it is free", testWholeWaits)
	t.Run("a pod that asks for the extended resource gets an instance", testMIGExtendedResource)
	t.Run("slices stay the same while claims come and go", testSlicesStay)
	t.Run("the node's label overrides the offer and takes nothing from a claim", testLabel)
	t.Run("a process that holds the GPU is named, and the next try starts clean", testModeRefused)
	t.Run("a program without a context that keeps a MIG device is named", testOpenDevice)
}

func testSeven(t *testing.T) {
	ns := namespaceFor(t, "mig-seven")
	apply(t, ns, "demo/mig/seven-1g.yaml")
	pods := []string{"seven-0", "seven-1", "seven-2", "seven-3", "seven-4", "seven-5", "seven-6"}
	ready(t, ns, pods...)
	rows := report(t, ns)
	seen, parents := map[string]string{}, map[string]bool{}
	for _, pod := range pods {
		row := rows[pod+"/main"]
		if !strings.HasPrefix(row.UUID, "MIG-") {
			t.Errorf("%s: UUID %q is not that of a MIG instance", pod, row.UUID)
		}
		if other, taken := seen[row.UUID]; taken {
			t.Errorf("%s and %s hold the same instance %s", pod, other, row.UUID)
		}
		seen[row.UUID] = pod
		parents[parent(row.Device)] = true
		sight, err := cluster.Sight(t.Context(), ns, pod, "main")
		must(t, err)
		if len(sight.GPUs()) != 1 || len(sight.Capabilities()) != 2 {
			t.Errorf("%s sees the GPUs %v and the capabilities %v, want the parent and two capabilities", pod, sight.GPUs(), sight.Capabilities())
		}
	}
	if len(parents) != 1 {
		t.Errorf("the seven are spread over %v, want one GPU", parents)
	}
}

func testMix(t *testing.T) {
	ns := namespaceFor(t, "mig-mix")
	apply(t, ns, "demo/mig/mix.yaml")
	ready(t, ns, "mix")
	rows, err := cluster.Report(t.Context(), ns)
	must(t, err)
	if len(rows) != 4 {
		t.Fatalf("the pod has %d devices, want 4: %v", len(rows), rows)
	}
	for _, row := range rows {
		if parent(row.Device) != parent(rows[0].Device) {
			t.Errorf("%s and %s are of different GPUs", row.Device, rows[0].Device)
		}
	}
	sight, err := cluster.Sight(t.Context(), ns, "mix", "main")
	must(t, err)
	if got := sight.Capabilities(); len(got) != 8 {
		t.Errorf("capabilities %v, want two for each of four instances", got)
	}
}

func testWholeWaits(t *testing.T) {
	ns := namespaceFor(t, "mig-whole")
	apply(t, ns, "demo/mig/cut.yaml")
	ready(t, ns, "cut")
	apply(t, ns, "demo/mig/eight-gpus.yaml")
	_, err := cluster.Unschedulable(t.Context(), ns, "eight-gpus")
	must(t, err)
	remove(t, ns, "cut")
	ready(t, ns, "eight-gpus")
	sight, err := cluster.Sight(t.Context(), ns, "eight-gpus", "main")
	must(t, err)
	if got := sight.GPUs(); len(got) != 8 {
		t.Errorf("the container sees %v, want eight GPUs", got)
	}
}

func testMIGExtendedResource(t *testing.T) {
	ns := namespaceFor(t, "mig-extended")
	apply(t, ns, "demo/mig/extended-resource.yaml")
	ready(t, ns, "extended-resource")
	sight, err := cluster.Sight(t.Context(), ns, "extended-resource", "main")
	must(t, err)
	if got := sight.Capabilities(); len(got) != 2 {
		t.Errorf("capabilities %v, want those of one instance", got)
	}
}

func testSlicesStay(t *testing.T) {
	ns := namespaceFor(t, "mig-slices")
	before := sliceVersions(t)
	apply(t, ns, "demo/mig/cut.yaml")
	ready(t, ns, "cut")
	remove(t, ns, "cut")
	if after := sliceVersions(t); after != before {
		t.Errorf("slices were written: %s before, %s after", before, after)
	}
}

func testLabel(t *testing.T) {
	ns := namespaceFor(t, "mig-label")
	apply(t, ns, "demo/mig/cut.yaml")
	ready(t, ns, "cut")
	held := report(t, ns)["cut/main"].Device
	label(t, "gpu.nvidia.com/offer=share")
	publishes(t, 9)
	devices, err := cluster.Devices(t.Context())
	must(t, err)
	if _, ok := devices[held]; !ok {
		t.Errorf("%s is held and no longer published", held)
	}
	remove(t, ns, "cut")
	publishes(t, 8)
	label(t, "gpu.nvidia.com/offer-")
	publishes(t, 112)
}

func testModeRefused(t *testing.T) {
	ns := namespaceFor(t, "mig-refused")
	end := occupy(t)
	apply(t, ns, "demo/mig/cut.yaml")
	message, err := cluster.WaitEvent(t.Context(), ns, "cut", "process 42")
	end()
	must(t, err)
	if !strings.Contains(message, "GPU at 0000:") || !strings.Contains(message, "MIG mode") {
		t.Errorf("the event %q does not name the GPU and the reason", message)
	}
	remove(t, ns, "cut")
	nothingLeft(t)
	apply(t, ns, "demo/mig/cut.yaml")
	ready(t, ns, "cut")
}

// occupy lets a process with a number of 42… compute on each GPU, until end is
// called. No process of the kernel has such a large number.
func occupy(t *testing.T) (end func()) {
	t.Helper()
	pid := func(i int) string { return fmt.Sprint(42_000_000 + i) }
	for i := range 8 {
		sim(t, "process", "add", "--gpu", fmt.Sprint(i), "--pid", pid(i), "--memory", "100")
	}
	return func() {
		for i := range 8 {
			if _, err := agent.Sim(context.WithoutCancel(t.Context()), "process", "remove", "--pid", pid(i)); err != nil {
				t.Error(err)
			}
		}
	}
}

// parent is the name of the GPU that a MIG device is cut from.
func parent(device string) string {
	name, _, _ := strings.Cut(device, "-mig-")
	return name
}

// sliceVersions changes whenever one of our ResourceSlices is written.
func sliceVersions(t *testing.T) string {
	t.Helper()
	var versions []string
	must(t, cluster.EachSlice(t.Context(), func(slice resourceapi.ResourceSlice) {
		versions = append(versions, slice.Name+"@"+slice.ResourceVersion)
	}))
	return strings.Join(versions, " ")
}

// The hardware refuses to destroy a MIG device that a monitor has open, and lists no process.
func testOpenDevice(t *testing.T) {
	ns := namespaceFor(t, "mig-open")
	apply(t, ns, "demo/mig/cut.yaml")
	ready(t, ns, "cut")
	folder := filepath.Join(t.TempDir(), "dev", "nvidia-caps")
	must(t, os.MkdirAll(folder, 0o755))
	for minor := range 512 { // the device's is one of them
		file, err := os.Create(filepath.Join(folder, fmt.Sprintf("nvidia-cap%d", minor)))
		must(t, err)
		t.Cleanup(func() { must(t, file.Close()) })
	}
	healsAtTheEnd(t)
	sim(t, "fault", "call", "--method", "ComputeInstanceDestroy", "--return", "ERROR_IN_USE")
	kubectl(t, "delete", "pod", "--wait=false", "-n", ns, "cut")
	process := fmt.Sprintf("it is open in process %d of the host", os.Getpid())
	waitExplained(t, ns, "cut", 2, "cannot release claim cut-", process)
	_, err := cluster.WaitEvent(t.Context(), ns, "cut", process)
	must(t, err)
	heal(t)
	must(t, cluster.WaitGone(t.Context(), ns, "cut"))
	nothingLeft(t)
}
