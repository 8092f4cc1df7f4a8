// SPDX-License-Identifier: Apache-2.0

package walkthrough

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpu-dra/gpu-dra-driver/test/markdown"
)

// scene is the state that a document requires, and the output that it promises.
type scene struct {
	// pulled says that the node has the driver's images from the reader's
	// registry.
	pulled bool
	// applied are manifests; of a document, its DeviceClasses.
	applied []string
	// installed says that the driver runs.
	installed bool
	// printed lists texts that the commands print, with one space between words.
	printed []string
}

// scenes of the documents with commands. A document that needs none is missing.
var scenes = map[string]scene{
	"README.md": {printed: []string{
		`"name": "gpu-1b-00"`,
		"made a dgx-h100 with 8 GPUs in",
		"GPU_DRA_NODE_NAME",
	}},
	"demo/classes/README.md":   {installed: true, printed: []string{"pod/cuda condition met"}},
	"demo/fleet/README.md":     {printed: []string{"gpu-9a-00 NVIDIA A100 80GB PCIe timeslice 6", "serving 20 2.3 180.0Gi 240% 0", "job.batch/pretrain unchanged"}},
	"demo/fractions/README.md": {printed: []string{"gpu-07-00 19.0Gi 25% ok mps, memory cooperative, compute cooperative"}},
	"demo/held/README.md": {printed: []string{
		"greedy/main gpu-1b-00 10240Mi driver --greedy --no-mps --processes 3 8854Mi",
		"well-behaved/main gpu-1b-00 20480Mi driver --memory 18Gi 18432Mi 25% -",
		"gpu-1b-00 10.0Gi - ok mps, memory driver, compute daemon 10.0Gi - -",
		"the ShareConfig requires driver: the driver is older than release 615",
		"gpu-1b-00 10.0Gi - ok mps, memory cooperative, compute cooperative 79.1Gi - -",
		"greedy/main gpu-1b-00 10240Mi cooperative --greedy --no-mps --processes 3 79622Mi",
		"well-behaved/main gpu-1b-00 20480Mi cooperative --memory 18Gi 0Mi - MPS_CONNECTION_FAILED",
	}},
	"demo/mig/README.md": {printed: []string{"eight-gpus has started by itself"}},
	"demo/tenancy/README.md": {installed: true, printed: []string{
		"requests.nvidia.com/gpu 2 2",
		`"/dev/nvidia7"`,
	}},
	"demo/topology/README.md": {printed: []string{
		"gpu-0b-00 NV2 NV1 NV2 X SYS SYS SYS NV1 0 pci0000:00 demo/any-four-extended-resources-",
		"gpu-85-00 NV2 SYS SYS SYS X NV1 NV1 NV2 1 pci0000:80 demo/any-four-extended-resources-",
		"gpu-85-00 NV2 SYS SYS SYS X NV1 NV1 NV2 1 pci0000:80 demo/four-linked-gpus-",
		"gpu-87-00 NV12 NV12 NV12 NV12 X NV12 NV12 NV12 7 pci0000:80 demo/four-socket-gpus-",
		"gpu-9d-00 NV18 NV18 NV18 NV18 X NV18 NV18 NV18 1 pci0000:97 demo/four-numa-gpus-",
		"whole-node waits:",
		"gpu-df-00 NV18 NV18 NV18 NV18 NV18 NV18 NV18 X 1 pci0000:d9 demo/whole-node-gpus-",
		"gpu-cpu 16 of cpudevnuma001 1 - - - gpu-cpu gpu-9d-00 1 pci0000:97 1b-00 -",
		"gpu-nic gpu-43-00 0 pci0000:3d 1b-00 - gpu-nic pci-0000-40-00-0 - pci0000:3d - -",
		"GPU_CPUS_43_00=0-55,112-167 GPU_NICS_43_00=0000:40:00.0 GPU_NUMA_NODE_43_00=0 GPU_RDMA_DEVICES_43_00=mlx5_3",
		"gpu-43-00 NV18 X NV18 NV18 NV18 NV18 NV18 NV18 0 pci0000:3d demo/gpu-nic-",
	}},
	"demo/whole-gpu/README.md":                  {installed: true, printed: []string{"cannot allocate all claims", "productName"}},
	"deployments/container/README.md":           {printed: []string{"gpu-kubelet-plugin:v0.1.0: digest:"}},
	"deployments/helm/gpu-dra-driver/README.md": {pulled: true},
	"docs/admin/administrator.md":               {installed: true},
	"docs/user/attributes.md":                   {installed: true, printed: []string{`"persistenceMode": {`}},
	"docs/dev/developer.md":                     {printed: []string{"LOST"}},
	"docs/admin/install.md": {printed: []string{
		"gpu-kubelet-plugin:v0.1.0: digest:",
		"Phase: Succeeded",
		"daemonset.apps/gpu-dra-driver-agent created",
		"request fewer devices: no node has so many",
		"dgx-h100 with 8 GPUs in",
	}},
	"docs/user/kubectl.md": {installed: true, printed: []string{
		"gpu-df-00 NVIDIA H100 80GB HBM3 free 0 ░░░░░░░░░░ 0.0Gi/79.0Gi ░░░░░░░░░░ 0% ok",
		"gpu-9d-00 79.0Gi 100% ok -",
		"mps.nvidia.com 20.0Gi gpu-dra-",
		"demo 7 7.0 553.3Gi 700% 0",
		"gpu-df-00 NV18 NV18 NV18 NV18 NV18 NV18 NV18 X 1 pci0000:d9 -",
		"request gpus: 1 of 9 devices",
		"request fewer devices: no node has so many",
		"serving deployment/server 20 20 dgx-a100-0000 (20)",
		"GPUs in use: 4 of 8, before: 0",
		"Read it before you publish it",
		"problems: 0, warnings: ",
	}},
	"docs/admin/migration.md": {pulled: true, printed: []string{
		"Phase: Succeeded",
		"name: gpu-1b-00",
	}},
	"docs/admin/multi-node.md": {installed: true},
	"docs/admin/outside-monitors.md": {installed: true, printed: []string{
		"example.com/dcgm",
		"deleted",
	}},
	"docs/admin/policy.md":         {installed: true, applied: []string{"docs/admin/policy.md"}, printed: []string{"10Gi"}},
	"docs/user/sharing.md":         {installed: true},
	"docs/admin/tenancy.md":        {installed: true, applied: []string{"demo/tenancy/team-class.yaml"}},
	"docs/user/troubleshooting.md": {installed: true, applied: []string{"demo/whole-gpu/nine-gpus.yaml"}, printed: []string{"cannot allocate all claims"}},
}

// set brings the cluster into the state that the document requires.
func (s scene) set(ctx context.Context, t *testing.T, file string) {
	t.Helper()
	if s.pulled {
		must(t, pull(ctx, file))
	}
	for _, path := range s.applied {
		if strings.HasSuffix(path, ".md") {
			_, err := cluster.KubectlInput(ctx, classes(t, path), "apply", "--filename", "-")
			must(t, err)
			continue
		}
		_, err := cluster.Kubectl(ctx, "apply", "--filename", path)
		must(t, err)
	}
	if s.installed {
		must(t, cluster.NewAgent(model).Start(ctx))
	}
}

// pull tags the driver's images with the names that the document uses. The tag is the chart's default.
func pull(ctx context.Context, file string) error {
	for name, reference := range cluster.References {
		ctr := exec.CommandContext(ctx, filepath.Join(cluster.BinDir, "ctr"), "--address", cluster.ContainerdSocket,
			"--namespace", "k8s.io", "images", "tag", "--force", reference, desk.own(file)+"/team/"+name+":v0.1.0")
		if out, err := ctr.CombinedOutput(); err != nil {
			return fmt.Errorf("ctr images tag %s: %w: %s", reference, err, out)
		}
	}
	return nil
}

// classes returns the DeviceClasses in a document.
func classes(t *testing.T, file string) string {
	t.Helper()
	var found []string
	for _, f := range fences(t, file) {
		if text := strings.Join(f.Lines, "\n"); f.Language == "yaml" && strings.Contains(text, "kind: DeviceClass\n") {
			found = append(found, text)
		}
	}
	return strings.Join(found, "\n---\n")
}

func fences(t *testing.T, file string) []markdown.Fence {
	t.Helper()
	found, err := markdown.Read(cluster.Root, file)
	must(t, err)
	return found
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
