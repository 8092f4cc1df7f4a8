// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	deviceplugin "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/gpu-dra/gpu-dra-driver/simulator/nvmlsim"
	"github.com/gpu-dra/gpu-dra-driver/test/internal/harness"
)

// pluginSpec is the CDI spec that NVIDIA's device plugin leaves behind when it ends.
const pluginSpec = "k8s.device-plugin.nvidia.com-gpu.json"

// timeSlices is the configuration of NVIDIA's device plugin in docs/admin/device-plugin-differences.md.
const timeSlices = `
version: v1
sharing:
  timeSlicing:
    renameByDefault: true
    failRequestsGreaterThanOne: true
    resources:
    - {name: nvidia.com/gpu, replicas: 4}
`

// mpsReplicas is the configuration for seats in docs/admin/device-plugin-differences.md.
const mpsReplicas = `
version: v1
sharing:
  mps:
    renameByDefault: true
    resources:
    - {name: nvidia.com/gpu, replicas: 4}
`

// nvidiaPlugin is NVIDIA's device plugin, which runs until the test ends or it is stopped.
type nvidiaPlugin struct{ program harness.Foreign }

// startPlugin starts NVIDIA's device plugin on the agent's hardware with a
// configuration, "" for none, and further arguments. It waits until the node has the
// resources.
func startPlugin(t *testing.T, want map[corev1.ResourceName]int64, config string, args ...string) nvidiaPlugin {
	t.Helper()
	return startPluginIn(t, nil, want, config, args...)
}

// startPluginIn is startPlugin with folders of the node at other paths.
func startPluginIn(t *testing.T, folders map[string]string, want map[corev1.ResourceName]int64, config string, args ...string) nvidiaPlugin {
	t.Helper()
	forgetDevicePlugins(t)
	p := nvidiaPlugin{program: nvidiaProgram(t, "device-plugin", "nvidia-device-plugin", config)}
	p.program.Args = append(p.program.Args, "--device-list-strategy=cdi-cri", "--device-discovery-strategy=nvml",
		"--container-driver-root="+p.program.Machine, "--driver-root="+p.program.Machine, "--nvidia-cdi-hook-path="+cluster.Program("nvidia-cdi-hook"))
	p.program.Args = append(p.program.Args, args...)
	p.program.Folders[filepath.Dir(deviceplugin.KubeletSocket)] = cluster.DevicePluginsDir
	maps.Copy(p.program.Folders, folders)
	t.Cleanup(func() {
		p.stop(t)
		if err := os.Remove(filepath.Join(cluster.CDIDir, pluginSpec)); err != nil && !os.IsNotExist(err) {
			t.Error(err)
		}
	})
	must(t, cluster.StartForeign(t.Context(), p.program))
	p.offers(t, want)
	return p
}

// nvidiaProgram returns a program of NVIDIA's device plugin on the agent's hardware.
func nvidiaProgram(t *testing.T, name, program, config string) harness.Foreign {
	t.Helper()
	machine := agent.SimDir()
	f := harness.Foreign{
		Name: name, Program: program, Machine: machine,
		Folders: map[string]string{"/run/cdi": cluster.CDIDir},
		Env:     append(libraryPath(t, machine), "PATH="+filepath.Join(machine, "usr/bin")+":"+os.Getenv("PATH")),
	}
	if config != "" {
		file := filepath.Join(t.TempDir(), "config.yaml")
		must(t, os.WriteFile(file, []byte(config), 0o600))
		f.Args = []string{"--config-file=" + file}
	}
	return f
}

// stop ends the plugin, as its pod ends.
func (p nvidiaPlugin) stop(t *testing.T) {
	t.Helper()
	must(t, cluster.StopForeign(context.WithoutCancel(t.Context()), p.program.Name))
}

// log is the log of a program of NVIDIA's.
func (p nvidiaPlugin) log(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(cluster.ForeignLog(p.program.Name))
	must(t, err)
	return string(text)
}

// offers waits until the allocatable resources of the node are those.
func (p nvidiaPlugin) offers(t *testing.T, want map[corev1.ResourceName]int64) {
	t.Helper()
	err := harness.Until(t.Context(), func(ctx context.Context) (bool, string, error) {
		for name, count := range want {
			n, err := allocatable(ctx, name)
			if err != nil {
				return false, "", err
			}
			if n != count {
				return false, fmt.Sprintf("the node has %d %s, want %d", n, name, count), nil
			}
		}
		return true, "", nil
	})
	if err != nil {
		t.Fatalf("%v\n%s", err, p.log(t))
	}
}

var markedUnhealthy = regexp.MustCompile(`device marked unhealthy: (\S+)`)

// unhealthy returns the devices that the plugin has marked unhealthy, in order.
func (p nvidiaPlugin) unhealthy(t *testing.T) []string {
	t.Helper()
	var ids []string
	for _, match := range markedUnhealthy.FindAllStringSubmatch(p.log(t), -1) {
		ids = append(ids, match[1])
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// forgetDevicePlugins starts the kubelet without its record of earlier plugins. It would have
// their resources for minutes: a pod that requests one gets no device of an agent meanwhile. They
// stay in the node's status, so they are removed from it. A kubelet that starts also deletes the
// ResourceSlices of the node. An agent that runs publishes them again half a minute later.
func forgetDevicePlugins(t *testing.T) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(cluster.DevicePluginsDir, "*"))
	must(t, err)
	for _, file := range files {
		must(t, os.Remove(file))
	}
	must(t, cluster.Restart(t.Context(), "kubelet"))
	must(t, harness.Until(t.Context(), func(context.Context) (bool, string, error) {
		_, err := os.Stat(filepath.Join(cluster.DevicePluginsDir, filepath.Base(deviceplugin.KubeletSocket)))
		return err == nil, "the kubelet serves no device plugins", nil
	}))
	node, err := cluster.Client.CoreV1().Nodes().Get(t.Context(), cluster.NodeName, metav1.GetOptions{})
	must(t, err)
	gone := map[corev1.ResourceName]any{}
	for name := range node.Status.Capacity {
		if strings.HasPrefix(string(name), "nvidia.com/") {
			gone[name] = nil
		}
	}
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"capacity": gone, "allocatable": gone}})
	must(t, err)
	_, err = cluster.Client.CoreV1().Nodes().Patch(t.Context(), cluster.NodeName, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	must(t, err)
}

// onlyGPU returns the UUID of the one GPU whose device node the container of a pod has.
// The pod has it by the device plugin: no claim is for it.
func onlyGPU(t *testing.T, namespace, pod string) string {
	t.Helper()
	rows, err := cluster.Report(t.Context(), namespace)
	must(t, err)
	for _, row := range rows {
		if row.Pod == pod {
			t.Fatalf("%s has %s by a claim", pod, row.Device)
		}
	}
	sight, err := cluster.Sight(t.Context(), namespace, pod, "main")
	must(t, err)
	if len(sight.GPUs()) != 1 {
		t.Fatalf("%s sees the GPUs %v, want one", pod, sight.GPUs())
	}
	for _, g := range simulated(t).GPUs {
		if fmt.Sprintf("/dev/nvidia%d", g.Minor) == sight.GPUs()[0] {
			return g.UUID
		}
	}
	t.Fatalf("no GPU of the node is %s", sight.GPUs()[0])
	return ""
}

// simulated returns the agent's hardware.
func simulated(t *testing.T) nvmlsim.View {
	t.Helper()
	text, err := agent.Sim(t.Context(), "show", "-o", "json")
	must(t, err)
	var view nvmlsim.View
	must(t, json.Unmarshal([]byte(text), &view))
	return view
}

// cutMIG makes MIG devices on a GPU of a simulated node until the test ends. It runs nvidia-smi,
// as an administrator does. A device is its profile and first memory slice: "1g.10gb:0".
func cutMIG(t *testing.T, machine string, index int, devices ...string) {
	t.Helper()
	id := strconv.Itoa(index)
	smi(t, machine, "-i", id, "-mig", "1")
	t.Cleanup(func() {
		smi(t, machine, "mig", "-i", id, "-dci")
		smi(t, machine, "mig", "-i", id, "-dgi")
		smi(t, machine, "-i", id, "-mig", "0")
	})
	smi(t, machine, "mig", "-i", id, "-cgi", strings.Join(devices, ","), "-C")
}

// smi runs nvidia-smi of a simulated node, also at the end of a test.
func smi(t *testing.T, machine string, args ...string) {
	t.Helper()
	out, err := exec.CommandContext(context.WithoutCancel(t.Context()), filepath.Join(machine, "usr/bin/nvidia-smi"), args...).CombinedOutput()
	if err != nil {
		t.Fatalf("nvidia-smi %s: %v: %s", strings.Join(args, " "), err, out)
	}
}
