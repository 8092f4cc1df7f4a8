// SPDX-License-Identifier: Apache-2.0

package foreign

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpu-dra/gpu-dra-driver/test/internal/harness"
)

const (
	// gpuPlugin is the name of NVIDIA's gpu-kubelet-plugin among the programs on the node.
	gpuPlugin = "nvidia-gpus"
	// shellImage has a shell, and is on the node of each cluster.
	shellImage = "localhost/gpu-dra/probe:test"
)

// newMachine makes the driver root of a simulated node, for the time of the test.
func newMachine(t *testing.T, model string) string {
	t.Helper()
	machine := filepath.Join(cluster.StateDir, "foreign", strings.ReplaceAll(t.Name(), "/", "-"))
	must(t, os.MkdirAll(filepath.Dir(machine), 0o755))
	t.Cleanup(func() { must(t, os.RemoveAll(machine)) })
	must(t, harness.CreateNode(t.Context(), cluster.Bin, machine, model))
	return machine
}

// startNVIDIA starts NVIDIA's gpu-kubelet-plugin on a simulated machine, and returns the
// devices that it publishes. It ends with the test. Gates are feature gates as NAME=true.
func startNVIDIA(t *testing.T, machine string, gates ...string) []resourceapi.Device {
	t.Helper()
	args := []string{
		"--kubeconfig=" + cluster.Kubeconfig, "--node-name=" + cluster.NodeName, "--namespace=" + nvidiaNamespace, "--image-name=" + shellImage,
		"--container-driver-root=" + machine, "--nvidia-driver-root=" + machine, "--cdi-root=" + cluster.CDIDir,
		"--nvidia-cdi-hook-path=" + cluster.Program("nvidia-cdi-hook"),
		"--kubelet-plugins-directory-path=" + cluster.PluginsDir, "--kubelet-registrar-directory-path=" + cluster.PluginsRegistryDir,
	}
	if len(gates) > 0 {
		args = append(args, "--feature-gates="+strings.Join(gates, ","))
	}
	shared := filepath.Join(cluster.DriverDir(), "mps")
	shareMounts(t, shared)
	t.Cleanup(func() { stopNVIDIA(t) })
	must(t, cluster.StartForeign(t.Context(), harness.Foreign{Name: gpuPlugin, Program: "gpu-kubelet-plugin", Machine: machine, Shared: shared, Args: args}))
	var devices []resourceapi.Device
	must(t, harness.Until(t.Context(), func(ctx context.Context) (bool, string, error) {
		devices = nil
		found, want := 0, int64(0)
		err := cluster.EachSlice(ctx, func(slice resourceapi.ResourceSlice) {
			devices = append(devices, slice.Spec.Devices...)
			found, want = found+1, slice.Spec.Pool.ResourceSliceCount
		})
		return found > 0 && int64(found) == want, "no slices of NVIDIA's driver; its log:\n" + foreignLog(t, gpuPlugin), err
	}))
	return devices
}

// shareMounts makes a folder for the time of the test, in which the node sees the mounts of
// NVIDIA's plugin, as with a mountPropagation of Bidirectional.
func shareMounts(t *testing.T, folder string) {
	t.Helper()
	must(t, os.MkdirAll(folder, 0o755))
	must(t, unix.Mount(folder, folder, "", unix.MS_BIND, ""))
	t.Cleanup(func() {
		must(t, unix.Unmount(folder, 0))
		must(t, os.Remove(folder))
	})
	// A copy of a shared mount is of its group, which would have each mount on the machine too.
	must(t, unix.Mount("", folder, "", unix.MS_PRIVATE, ""))
	must(t, unix.Mount("", folder, "", unix.MS_SHARED, ""))
}

// stopNVIDIA ends NVIDIA's plugin, and removes its slices and its records.
func stopNVIDIA(t *testing.T) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	must(t, cluster.StopForeign(ctx, gpuPlugin))
	deleteSlices(t)
	for _, record := range []string{filepath.Join(cluster.DriverDir(), "checkpoint.json"), filepath.Join(cluster.CDIDir, "k8s.gpu.nvidia.com-device_base.yaml")} {
		if err := os.Remove(record); !errors.Is(err, fs.ErrNotExist) {
			must(t, err)
		}
	}
}

// deleteSlices removes the slices of a driver that has ended. The kubelet would do so half a
// minute later.
func deleteSlices(t *testing.T) {
	t.Helper()
	must(t, cluster.Client.ResourceV1().ResourceSlices().DeleteCollection(context.WithoutCancel(t.Context()), metav1.DeleteOptions{},
		metav1.ListOptions{FieldSelector: "spec.driver=" + harness.DriverName}))
}

// installNVIDIAsClasses applies the DeviceClasses of NVIDIA's chart, for the time of the test.
func installNVIDIAsClasses(t *testing.T) {
	t.Helper()
	classes, err := cluster.Helm(t.Context(), "template", "nvidia", filepath.Join(cluster.ForeignSource(), "deployments/helm/dra-driver-nvidia-gpu"),
		"--namespace", nvidiaNamespace, "--set", "gpuResourcesEnabledOverride=true", "--api-versions", "resource.k8s.io/v1",
		"--show-only", "templates/deviceclass-gpu.yaml", "--show-only", "templates/deviceclass-mig.yaml")
	must(t, err)
	t.Cleanup(func() {
		_, err := cluster.KubectlInput(context.WithoutCancel(t.Context()), classes, "delete", "--filename", "-")
		must(t, err)
	})
	_, err = cluster.KubectlInput(t.Context(), classes, "apply", "--filename", "-")
	must(t, err)
}

// smi runs the simulated nvidia-smi of a machine.
func smi(t *testing.T, machine string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), filepath.Join(machine, "usr/bin/nvidia-smi"), args...).CombinedOutput()
	if err != nil {
		t.Fatalf("nvidia-smi %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// claimOf is a claim of one device of a class, with a selector and a configuration of
// NVIDIA's driver, or with neither, and a pod that runs the probe with it.
func claimOf(name, class, selector, config string, command ...string) string {
	var selectors, configs, args string
	if selector != "" {
		selectors = fmt.Sprintf(", selectors: [{cel: {expression: %q}}]", selector)
	}
	if config != "" {
		configs = fmt.Sprintf("config: [{opaque: {driver: gpu.nvidia.com, parameters: {apiVersion: resource.nvidia.com/v1beta1, %s}}}]", config)
	}
	if len(command) > 0 {
		args = "args: [" + strings.Join(command, ", ") + "]"
	}
	return fmt.Sprintf(`
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: %[1]s}
spec:
  devices:
    requests:
    - {name: gpu, exactly: {deviceClassName: %[2]s%[3]s}}
    %[4]s
---
apiVersion: v1
kind: Pod
metadata: {name: %[1]s}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: localhost/gpu-dra-driver/gpu-probe:demo
    %[5]s
    resources: {claims: [{name: gpu}]}
  resourceClaims: [{name: gpu, resourceClaimName: %[1]s}]
`, name, class, selectors, configs, args)
}

// runOn applies a claim and its pod in a namespace, and returns what the container sees.
func runOn(t *testing.T, namespace, name, manifest string) harness.Sight {
	t.Helper()
	_, err := cluster.KubectlInput(t.Context(), manifest, "apply", "--namespace", namespace, "--filename", "-")
	must(t, err)
	if err := cluster.WaitReady(t.Context(), namespace, name); err != nil {
		t.Fatalf("%v\nthe plugin's log:\n%s", err, foreignLog(t, gpuPlugin))
	}
	sight, err := cluster.Sight(t.Context(), namespace, name, "main")
	must(t, err)
	return sight
}

// end deletes a pod and its claim, and waits until both are gone.
func end(t *testing.T, namespace, name string) {
	t.Helper()
	_, err := cluster.Kubectl(t.Context(), "delete", "--namespace", namespace, "--timeout", "1m", "pod/"+name, "resourceclaim/"+name)
	must(t, err)
}

// newNamespace makes a namespace for the time of the test.
func newNamespace(t *testing.T, name string) {
	t.Helper()
	must(t, cluster.CreateNamespace(t.Context(), name))
	t.Cleanup(func() { must(t, cluster.DeleteNamespace(context.WithoutCancel(t.Context()), name)) })
}

func TestNVIDIAsDriverSharesGPUs(t *testing.T) {
	machine := newMachine(t, "dgx-h100")
	installNVIDIAsClasses(t)
	newNamespace(t, nvidiaNamespace)
	theirs := byIdentity(startNVIDIA(t, machine, "TimeSlicingSettings=true", "MPSSupport=true"))
	ours := byIdentity(ourDevices(t, machine))
	for id, device := range theirs {
		if verdict := compare(device, ours[id])["capacity memory"]; verdict != "same" {
			t.Errorf("%s: the memory is %q without MIG, want the same as ours", id, verdict)
		}
	}
	const ns = "nvidia-shares"
	const gpu2 = "device.attributes['resource.kubernetes.io'].pciBusID == '0000:52:00.0'"
	newNamespace(t, ns)

	whole := runOn(t, ns, "whole", claimOf("whole", "gpu.nvidia.com", gpu2, ""))
	if gpus := whole.GPUs(); !slices.Equal(gpus, []string{"/dev/nvidia2"}) {
		t.Errorf("the container of the claim for 0000:52:00.0 has %q, want /dev/nvidia2", gpus)
	}
	end(t, ns, "whole")

	slice := "kind: GpuConfig, sharing: {strategy: TimeSlicing, timeSlicingConfig: {interval: Long}}"
	runOn(t, ns, "slice", claimOf("slice", "gpu.nvidia.com", gpu2, slice))
	if out := smi(t, machine, "compute-policy", "--list", "-i", "2"); !strings.Contains(out, "Long") {
		t.Errorf("the time slice of the GPU is not long:\n%s", out)
	}
	end(t, ns, "slice")
	if out := smi(t, machine, "compute-policy", "--list", "-i", "2"); !strings.Contains(out, "Default") {
		t.Errorf("the time slice of the GPU is not the default again:\n%s", out)
	}

	mps := "kind: GpuConfig, sharing: {strategy: MPS, mpsConfig: {defaultActiveThreadPercentage: 50, defaultPinnedDeviceMemoryLimit: 10Gi}}"
	start := time.Now()
	runOn(t, ns, "mps", claimOf("mps", "gpu.nvidia.com", gpu2, mps, "cuda", "--memory", "9Gi"))
	t.Logf("the pod with the first share of MPS was ready after %s", time.Since(start).Round(100*time.Millisecond))
	out, err := cluster.Kubectl(t.Context(), "logs", "--namespace", ns, "mps")
	must(t, err)
	for _, want := range []string{`"activeThreadPercentage": 50,`, fmt.Sprintf(`"limitBytes": %d`, 10<<30)} {
		if !strings.Contains(out, want) {
			t.Errorf("the client of MPS lacks %s:\n%s", want, out)
		}
	}
	if mode := smi(t, machine, "--query-gpu=compute_mode", "--format=csv,noheader", "-i", "2"); strings.TrimSpace(mode) != "Exclusive_Process" {
		t.Errorf("with MPS the GPU's compute mode is %s", mode)
	}
	end(t, ns, "mps")
	if mode := smi(t, machine, "--query-gpu=compute_mode", "--format=csv,noheader", "-i", "2"); strings.TrimSpace(mode) != "Default" {
		t.Errorf("after MPS the GPU's compute mode is %s", mode)
	}
}

func TestNVIDIAsDriverCutsMIGDevices(t *testing.T) {
	machine := newMachine(t, "dgx-h100")
	installNVIDIAsClasses(t)
	startNVIDIA(t, machine, "DynamicMIG=true")
	const ns = "nvidia-mig"
	newNamespace(t, ns)
	sight := runOn(t, ns, "small", claimOf("small", "mig.nvidia.com", "device.attributes['gpu.nvidia.com'].profile == '1g.10gb'", ""))
	if gpus, capabilities := sight.GPUs(), sight.Capabilities(); len(gpus) != 1 || len(capabilities) != 2 {
		t.Errorf("the container has the GPUs %q and the capabilities %q, want one GPU and two capabilities", gpus, capabilities)
	}
	if out := smi(t, machine, "-L"); strings.Count(out, "MIG 1g.10gb") != 1 {
		t.Errorf("the machine has other MIG devices than one 1g.10gb:\n%s", out)
	}
	end(t, ns, "small")
	if out := smi(t, machine, "-L"); strings.Contains(out, "MIG") {
		t.Errorf("a MIG device is left:\n%s", out)
	}
}
