// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	deviceplugin "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/nvml"
	"github.com/gpu-dra/gpu-dra-driver/pkg/nvmlsim"
	"github.com/gpu-dra/gpu-dra-driver/test/harness"
)

// pluginSpec is the CDI spec that NVIDIA's device plugin leaves behind when it ends.
const pluginSpec = "k8s.device-plugin.nvidia.com-gpu.json"

// timeSlices is the configuration of NVIDIA's device plugin in docs/migration.md.
const timeSlices = `
version: v1
sharing:
  timeSlicing:
    renameByDefault: true
    failRequestsGreaterThanOne: true
    resources:
    - {name: nvidia.com/gpu, replicas: 4}
`

// mpsReplicas is the configuration for seats in docs/migration.md.
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
	ownDevicePlugins(t)
	p := nvidiaPlugin{program: nvidiaProgram(t, "device-plugin", "nvidia-device-plugin", config)}
	p.program.Args = append(p.program.Args, "--device-list-strategy=cdi-cri", "--device-discovery-strategy=nvml",
		"--container-driver-root="+p.program.Machine, "--driver-root="+p.program.Machine, "--nvidia-cdi-hook-path="+cluster.Program("nvidia-cdi-hook"))
	p.program.Args = append(p.program.Args, args...)
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
	err := harness.Until(t.Context(), time.Minute, func(ctx context.Context) (bool, string, error) {
		for name, count := range want {
			if n, err := allocatable(ctx, name); n != count || err != nil {
				return false, fmt.Sprintf("the node has %d %s, want %d", n, name, count), err
			}
		}
		return true, "", nil
	})
	if err != nil {
		t.Fatalf("%v\n%s", err, p.log(t))
	}
}

// ownDevicePlugins has the cluster's kubelet serve device plugins. All kubelets of a
// machine use one path. The last one to start owns it: it empties the folder and then
// creates its socket.
func ownDevicePlugins(t *testing.T) {
	t.Helper()
	must(t, os.RemoveAll(deviceplugin.KubeletSocket))
	must(t, cluster.RestartKubelet(t.Context()))
	must(t, harness.Until(t.Context(), time.Minute, func(context.Context) (bool, string, error) {
		_, err := os.Stat(deviceplugin.KubeletSocket)
		return err == nil, "the kubelet serves no device plugins", nil
	}))
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

// cutMIG makes a MIG device on a simulated GPU, as an administrator does. It returns the
// device's UUID.
func cutMIG(t *testing.T, machine string, index int, profile string, start int) string {
	t.Helper()
	sim, err := nvmlsim.Open(machine)
	must(t, err)
	library := nvml.New(sim.NVML())
	defer func() { must(t, library.Close()) }()
	node, err := library.Snapshot(t.Context())
	must(t, err)
	address := node.GPUs[index].Address
	if on, _, err := library.MIGMode(t.Context(), address); err != nil || !on {
		must(t, errors.Join(err, library.SetMIGMode(t.Context(), address, true)))
	}
	name, err := gpu.ParseProfile(profile)
	must(t, err)
	made, err := library.CreatePartition(t.Context(), address, name, start)
	must(t, err)
	return made.UUID
}
