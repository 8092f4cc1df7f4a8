// SPDX-License-Identifier: Apache-2.0

package walkthrough

import (
	"cmp"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/gpu-dra/gpu-dra-driver/test/internal/course"
	"github.com/gpu-dra/gpu-dra-driver/test/internal/markdown"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

// scene is the state that a document requires, and the output that it promises.
type scene struct {
	// pulled says that the node has the driver's images from the reader's
	// registry.
	pulled bool
	// published says that the reader's registry has the images and the chart of a release.
	published bool
	// pushed says that the reader's registry has the chart.
	pushed bool
	// applied are manifests; of a document, its DeviceClasses.
	applied []string
	// installed says that the driver runs, on hardware of model, or of the reader's.
	installed bool
	// exercises says that the driver runs on the node of the page in test/internal/course, for each part of the document.
	exercises bool
	model     string
	// driver says that the simulated kernel driver runs, which limits the memory of containers.
	driver bool
	// offer is what the node offers, or "" for the default.
	offer string
	// programs says that the document's programs are replaced by the probe of the
	// cluster, because there is neither their image nor a GPU that computes.
	programs bool
	// printed lists texts that the commands print, with one space between words.
	printed []string
	// later are the scenes of the later parts of the document, if they differ from the first.
	later []scene
}

// scenes of the documents with commands. A document that needs none is missing.
var scenes = map[string]scene{
	"README.md": {printed: []string{
		`"name": "gpu-1b-00"`,
		"made a dgx-h100 with 8 GPUs in",
		"GPU_DRA_NODE_NAME",
	}},
	"demo/compare-sharing/README.md": {installed: true, model: "demo/compare-sharing/eight-a100-40gb.yaml", driver: true, printed: []string{
		"gpu-07-00 A100-SXM4-40GB shared 2 39.0Gi/39.4Gi 100% ok",
		"gpu-bd-00 A100-SXM4-40GB shared 2 39.0Gi/39.4Gi 100% ok",
		"2 gpu-07-00 2 gpu-0f-00 2 gpu-47-00",
		"8 16",
		"19.5Gi 50% ok mps, memory driver, compute daemon",
	}},
	"demo/course/README.md": {exercises: true, printed: []string{
		"CEL runtime error: no such key: memory",
		"memory is a capacity: write device.capacity['gpu.nvidia.com'].memory",
		"ml-team training-job main training-gpu",
		"GPU2 SYS SYS X NV1 20-39,60-79",
		"GPU3 NV2 NV1 NV2 X 20-39,60-79",
	}},
	"demo/course/four-gpus/README.md": {exercises: true, printed: []string{
		"gpu-18-00 X PIX SYS SYS 0 pci0000:15 -",
		"GPU0 X NV12 NV12 NV12",
		"GPU0 X SYS 0-15,32-47",
		"GPU0 X PIX 16-31,48-63",
		"no such group of devices meets the constraints of the claim",
		"deployment/notebook: 4 of 8 pods stay Pending",
		"GPUs in use: 32 of 32, before: 0",
		"GPUs in use: 20 of 24, before: 0",
	}},
	"demo/course/lab/README.md": {exercises: true, printed: []string{
		"Tesla T4, GPU-7c0f4fc6-47f4-5a24-956f-08af0426161b, 15360 MiB",
		"gpu_dra_claims_held 3",
		"0/1 nodes are available: 1 cannot allocate all claims.",
		"other claims hold the devices",
		"no capacity left: 3236 MiB wanted, 1643 MiB left",
		"the client has 2559 MiB of its limit of 2560 MiB",
	}},
	"demo/course/mig/README.md": {exercises: true, printed: []string{
		"A100 80GB PCIe mig 6",
		"A100 80GB PCIe timeslice 6",
		"mig-4g-40gb-0 39.2Gi",
		"pod/by-night condition met",
	}},
	"demo/fractions/README.md": {printed: []string{
		"gpu-07-00 19.0Gi 25% ok mps, memory cooperative, compute cooperative",
		"eight-gpus has started by itself",
		"greedy has 8698Mi; the error of CUDA: OUT_OF_MEMORY",
		"well-behaved has 18432Mi; the error of CUDA: none",
		"gpu-1b-00 10.0Gi - ok mps, memory driver, compute daemon 10.0Gi",
		"the ShareConfig requires driver: the driver is older than release 615",
		"gpu-1b-00 10.0Gi - ok mps, memory cooperative, compute cooperative 79.1Gi",
		"greedy has 79466Mi; the error of CUDA: OUT_OF_MEMORY",
		"well-behaved has 0Mi; the error of CUDA: MPS_CONNECTION_FAILED",
		"gpu-9a-00 A100 80GB PCIe timeslice 6",
		"serving 20 2.3 180.0Gi 240% 0",
		"job.batch/pretrain unchanged",
	}},
	"demo/topology/README.md": {printed: []string{
		"gpu-0b-00 NV2 NV1 NV2 X SYS SYS SYS NV1 0 pci0000:00 demo/any-four-extended-resources-",
		"gpu-85-00 NV2 SYS SYS SYS X NV1 NV1 NV2 1 pci0000:80 demo/any-four-extended-resources-",
		"gpu-85-00 NV2 SYS SYS SYS X NV1 NV1 NV2 1 pci0000:80 demo/four-linked-gpus-",
		"gpu-87-00 NV12 NV12 NV12 NV12 X NV12 NV12 NV12 7 pci0000:80 demo/four-socket-gpus-",
		"gpu-9d-00 NV18 NV18 NV18 NV18 X NV18 NV18 NV18 1 pci0000:97 demo/four-numa-gpus-",
		"whole-node waits:",
		"gpu-df-00 NV18 NV18 NV18 NV18 NV18 NV18 NV18 X 1 pci0000:d9 demo/whole-node-gpus-",
		"GPU_CPUS_43_00=0-55,112-167 GPU_NICS_43_00=0000:40:00.0 GPU_NUMA_NODE_43_00=0 GPU_RDMA_DEVICES_43_00=mlx5_3",
		"gpu-43-00 NV18 X NV18 NV18 NV18 NV18 NV18 NV18 0 pci0000:3d demo/gpu-nic-",
	}},
	"demo/training/README.md": {exercises: true, printed: []string{
		"Guaranteed",
		"GPU3 NV12 NV12 NV12 X 16-31,144-159",
		`"GPU_CPUS_07_00": "48-63,176-191"`,
		"prefill-decode prefill main linked",
		"prefill-decode decode main linked",
		"GPU 1: NVIDIA H100 80GB HBM3 (UUID: GPU-5e6fa99f-a183-5d14-85a9-178650ee9f60)",
		"7, NVIDIA H100 80GB HBM3, GPU-6766c132-1bbf-5e86-98c9-504d8dcd4067, 81559 MiB, Enabled, Enabled, Disabled",
		"GPU7 NV18 NV18 NV18 NV18 NV18 NV18 NV18 X",
	}},
	"demo/whole-gpu/README.md": {installed: true, printed: []string{
		"cannot allocate all claims", "productName", "pod/cuda condition met",
	}},
	"deployments/container/README.md": {printed: []string{"gpu-kubelet-plugin:v0.1.0: digest:"}},
	"docs/admin/support.md":           {installed: true},
	"docs/admin/rights.md":            {installed: true},
	"docs/admin/ai-conformance.md":    {installed: true, printed: []string{"gpu-1b-00 570.124.6 12.8.0"}},
	"docs/user/attributes.md":         {installed: true, printed: []string{`"persistenceMode": {`}},
	"docs/admin/install-from-registry.md": {published: true, printed: []string{
		"Pulled: 127.0.0.1",
		"team/gpu-mps-supervisor:v0.1.0",
	}},
	"docs/dev/simulator.md": {printed: []string{"LOST"}},
	"docs/admin/install.md": {printed: []string{
		"gpu-kubelet-plugin:v0.1.0: digest:",
		"Phase: Succeeded",
		"daemonset.apps/gpu-dra-driver-agent created",
		"request fewer devices: no node has so many",
		"dgx-h100 with 8 GPUs in",
	}},
	"docs/user/look.md": {installed: true, printed: []string{
		"gpu-df-00 H100 80GB HBM3 free 0 0.0Gi/79.0Gi 0% ok",
		"gpu-9d-00 79.0Gi 100% ok -",
		"share.nvidia.com 20.0Gi gpu-dra-",
		"demo 7 7.0 553.2Gi 700% 0",
		"gpu-df-00 NV18 NV18 NV18 NV18 NV18 NV18 NV18 X 1 pci0000:d9 -",
	}},
	"docs/user/kubectl.md": {installed: true, printed: []string{
		"gpu-df-00 H100 80GB HBM3 free 0 0.0Gi/79.0Gi 0% ok",
		"GPUList",
	}},
	"docs/user/explain.md": {installed: true, printed: []string{
		"held by claim demo/by-memory-gpu-",
		"request fewer devices: no node has so many",
		"exit status 2",
		"gpu-1b-00 X NV18",
		"problems: 0, warnings: ",
	}},
	"docs/admin/links-and-power.md": {installed: true, printed: []string{
		"8",
	}},
	"docs/admin/pools.md": {installed: true, printed: []string{
		"24 of 24 pods fit",
	}},
	"docs/admin/operate.md": {installed: true, printed: []string{
		"Read it before you publish it",
		"problems: 0, warnings: ",
	}},
	"docs/admin/failed-gpus.md":                {installed: true, applied: []string{"demo/whole-gpu/one-gpu.yaml"}, printed: []string{"is drained: no claim has it", "example.com/dcgm", "deleted"}},
	"docs/admin/migrate-from-device-plugin.md": {pulled: true, printed: []string{"Phase: Succeeded"}},
	"docs/admin/migration.md":                  {installed: true, printed: []string{"name: gpu-1b-00"}},
	"docs/admin/device-plugin-differences.md":  {installed: true, printed: []string{"nvidia.com/gpu gpu.nvidia.com"}},
	"docs/admin/policy.md":                     {installed: true, applied: []string{"docs/admin/policy.md"}, printed: []string{"10Gi"}},
	"docs/admin/room.md":                       {installed: true, printed: []string{"has been upgraded"}},
	"docs/admin/sharing.md":                    {installed: true},
	"docs/admin/tenancy.md": {installed: true, printed: []string{
		"requests.nvidia.com/gpu 2 2",
		`"/dev/nvidia7"`,
	}},
	"docs/user/troubleshooting.md": {installed: true, applied: []string{"demo/whole-gpu/nine-gpus.yaml"}, printed: []string{"cannot allocate all claims"}},
	"docs/user/choose.md":          {installed: true, offer: "share,timeslice", printed: []string{"share.nvidia.com 10.0Gi gpu-dra-"}},
	"docs/admin/platforms.md": {pulled: true, printed: []string{
		`daemon set "gpu-dra-driver-agent" successfully rolled out`,
		"kind: SecurityContextConstraints",
	}},
	"docs/user/course.md": {installed: true, printed: []string{
		"cannot allocate all claims",
		"request fewer devices: no node has so many",
		"describe node has no nvidia.com/gpu",
	}},
	"docs/user/programs.md": {installed: true, model: "dgx-h100-r615", programs: true, later: []scene{
		{installed: true, offer: "share,mig", programs: true},
		{installed: true, programs: true},
		{installed: true, offer: "share,timeslice", programs: true},
	}, printed: []string{
		"20.0Gi 50% ok mps, memory driver, compute daemon",
		`"containerMemoryLimit":"20Gi"`,
		"-mig-1g-10gb-0 9.7Gi - ok -", `"uuid":"MIG-`,
		"gpu-9d-00 NV18 NV18 NV18 NV18 X NV18 NV18 NV18 1 pci0000:97",
		"GPU_NUMA_NODE_1B_00=0",
		"/dev/nvidia3",
		"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=4096M",
		"TF_FORCE_GPU_ALLOW_GROWTH=true",
		"demo notebook notebook notebook-gpu-",
		"8.0Gi - ok mps, memory cooperative, compute cooperative",
		"demo notebook-slot notebook notebook-slot-gpu-",
	}},
	"docs/user/quickstart.md": {pulled: true, pushed: true, printed: []string{
		"demo first main first-gpu-",
		"10.0Gi - ok mps, memory cooperative, compute cooperative",
		"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT",
	}},
}

// part returns the scene of a part of the document, from 0.
func (s scene) part(i int) scene {
	if i > 0 && i <= len(s.later) {
		return s.later[i-1]
	}
	return s
}

// common says that the scene is only the driver on the reader's hardware.
func (s scene) common() bool {
	s.printed = nil
	return reflect.DeepEqual(s, scene{installed: true})
}

// set brings an empty cluster into the scene of a part of a document.
func (s scene) set(ctx context.Context, t *testing.T, file string, part int) {
	t.Helper()
	if s.pulled {
		must(t, pull(ctx, file))
	}
	if s.published {
		must(t, publish(ctx, file))
	}
	if s.pushed {
		must(t, push(ctx, file))
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
	if s.programs {
		_, err := cluster.Kubectl(ctx, "apply", "--filename", "test/e2e/walkthrough/programs.yaml")
		must(t, err)
	}
	if s.exercises {
		page, ok := course.Find(file, part)
		if !ok {
			t.Fatalf("test/internal/course has no part %d of %s", part, file)
		}
		_, err := page.Start(ctx, cluster)
		must(t, err)
	}
	if s.installed {
		must(t, s.start(ctx))
	}
}

// start starts the driver.
func (s scene) start(ctx context.Context) error {
	var flags []string
	if s.offer != "" {
		flags = append(flags, "--offer="+s.offer)
	}
	agent := cluster.NewAgent(cmp.Or(s.model, model), flags...)
	if s.driver {
		if err := agent.StartDriver(ctx); err != nil {
			return err
		}
	}
	return agent.Start(ctx)
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

// publish pushes the images of this machine and the chart, as a release does.
func publish(ctx context.Context, file string) error {
	registry := desk.own(file) + "/team"
	run := func(program string, args ...string) error {
		cmd := exec.CommandContext(ctx, program, args...)
		cmd.Dir, cmd.Env = cluster.Root, desk.environment(file, desk.dir)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s %s: %w: %s", program, strings.Join(args, " "), err, out)
		}
		return nil
	}
	for name := range cluster.References {
		if err := run(desk.path("bin", "crane"), "push", filepath.Join(cluster.Images, name+".tar"), registry+"/"+name+":v0.1.0"); err != nil {
			return err
		}
	}
	return push(ctx, file)
}

// push pushes the chart to the registry that the document names.
func push(ctx context.Context, file string) error {
	for _, args := range [][]string{
		{"package", filepath.Join(cluster.Root, "deployments/helm/gpu-dra-driver"), "--destination", desk.dir},
		{"push", desk.path("gpu-dra-driver-0.1.0.tgz"), "oci://" + desk.own(file) + "/team/charts", "--plain-http"},
	} {
		if out, err := exec.CommandContext(ctx, cluster.Program("helm"), args...).CombinedOutput(); err != nil {
			return fmt.Errorf("helm %s: %w: %s", args[0], err, out)
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

var must = require.NoError
