// SPDX-License-Identifier: Apache-2.0

package nvmlsim

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/google/go-cmp/cmp"
)

// container has the node's nvidia-smi and the given device nodes, and neither
// gpu-sim nor the node's state.
type container struct {
	t    *testing.T
	root string
}

func newContainer(t *testing.T, s *Sim, nodes ...string) container {
	t.Helper()
	c := container{t, t.TempDir()}
	script, err := os.ReadFile(filepath.Join(s.Root(), "usr/bin/nvidia-smi"))
	if err != nil {
		t.Fatal(err)
	}
	for path, content := range map[string][]byte{"usr/bin/nvidia-smi": script, "dev/nvidiactl": nil} {
		c.file(path, content)
	}
	for _, node := range nodes {
		c.file("dev/"+node, nil)
	}
	return c
}

func (c container) file(path string, content []byte) {
	c.t.Helper()
	path = filepath.Join(c.root, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		c.t.Fatal(err)
	}
	if err := os.WriteFile(path, content, 0o755); err != nil {
		c.t.Fatal(err)
	}
}

// smi runs nvidia-smi and returns its output and its exit status.
func (c container) smi(args ...string) (output string, status int) {
	c.t.Helper()
	out, err := exec.CommandContext(c.t.Context(), filepath.Join(c.root, "usr/bin/nvidia-smi"), args...).CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		c.t.Fatal(err)
	}
	if exit != nil {
		status = exit.ExitCode()
	}
	return string(out), status
}

// shows compares what nvidia-smi prints.
func (c container) shows(want string, args ...string) {
	c.t.Helper()
	got, status := c.smi(args...)
	if diff := cmp.Diff(want, got); diff != "" || status != 0 {
		c.t.Errorf("nvidia-smi %s: status %d (-want +got):\n%s", strings.Join(args, " "), status, diff)
	}
}

func TestNvidiaSMIInAContainerShowsTheGPUsOfTheContainer(t *testing.T) {
	s, _ := newTestSim(t, "dgx1-v100")
	c := newContainer(t, s, "nvidia2", "nvidia7")
	two, seven := s.node.gpus[2], s.node.gpus[7]
	c.shows(fmt.Sprintf("GPU 0: Tesla V100-SXM2-32GB (UUID: %s)\nGPU 1: Tesla V100-SXM2-32GB (UUID: %s)\n", two.uuid, seven.uuid), "-L")
	c.shows(fmt.Sprintf("GPU 1: Tesla V100-SXM2-32GB (UUID: %s)\n", seven.uuid), "-L", "-i", seven.uuid)
	c.shows(fmt.Sprintf("index, uuid, memory.total [MiB], memory.used [MiB], mig.mode.current\n"+
		"0, %s, 32768 MiB, [N/A], [N/A]\n1, %s, 32768 MiB, [N/A], [N/A]\n", two.uuid, seven.uuid),
		"--query-gpu=index,uuid,memory.total,memory.used,mig.mode.current", "--format=csv")
	c.shows("Tesla V100-SXM2-32GB, "+longAddress(seven.address)+", 32768, 2\n", "--query-gpu=name,pci.bus_id,memory.total,count", "--format=csv,noheader,nounits", "--id=1")

	topology, _ := c.smi("topo", "-m")
	header, _, _ := strings.Cut(topology, "\n")
	if header != "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID" {
		t.Errorf("topology:\n%s", topology)
	}
	table, status := c.smi()
	if status != 0 || !strings.Contains(table, longAddress(two.address)) || !strings.Contains(table, "Driver Version: 570.124.06") {
		t.Errorf("status %d:\n%s", status, table)
	}
	for _, line := range strings.Split(strings.TrimSpace(table), "\n")[1:] {
		if line != "" && len(line) != 91 {
			t.Errorf("a line of %d characters: %s", len(line), line)
		}
	}
	for _, hidden := range []int{0, 1, 3, 4, 5, 6} {
		for _, args := range [][]string{nil, {"-L"}, {"--query-gpu=uuid,pci.bus_id", "--format=csv"}} {
			if out, _ := c.smi(args...); strings.Contains(out, s.node.gpus[hidden].uuid) || strings.Contains(out, longAddress(s.node.gpus[hidden].address)) {
				t.Errorf("nvidia-smi %v shows GPU %d, which the container does not have", args, hidden)
			}
		}
	}
}

func TestNvidiaSMINamesTheLinkTypeBetweenGPUs(t *testing.T) {
	for model, want := range map[string]string{
		"dgx-h100":   "GPU0\t X \tNV18\t",
		"dgx1-v100":  "GPU0\t X \tNV1\t",
		"a30-bridge": "GPU0\t X \tNV4\t",
		"t4":         "GPU0\t X \tNODE\t",
	} {
		s, _ := newTestSim(t, model)
		got, _ := newContainer(t, s, "nvidia0", "nvidia1").smi("topo", "-m")
		if !strings.Contains(got, "\n"+want) {
			t.Errorf("%s: want %q:\n%s", model, want, got)
		}
	}
}

func TestNvidiaSMIInAContainerShowsTheMIGDevicesOfTheContainer(t *testing.T) {
	s, lib := newTestSim(t, "dgx-h100")
	gpu := migOn(t, lib, 0)
	var uuids []string
	for _, number := range []int{nvml.GPU_INSTANCE_PROFILE_1_SLICE, nvml.GPU_INSTANCE_PROFILE_3_SLICE} {
		instance := must[nvml.GpuInstance](t, "instance")(gpu.CreateGpuInstance(profileInfo(t, gpu, number)))
		spans := map[int]int{nvml.GPU_INSTANCE_PROFILE_1_SLICE: nvml.COMPUTE_INSTANCE_PROFILE_1_SLICE, nvml.GPU_INSTANCE_PROFILE_3_SLICE: nvml.COMPUTE_INSTANCE_PROFILE_3_SLICE}
		info := must[nvml.ComputeInstanceProfileInfo](t, "profile")(instance.GetComputeInstanceProfileInfo(spans[number], nvml.COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED))
		compute := must[nvml.ComputeInstance](t, "compute instance")(instance.CreateComputeInstance(&info))
		made := must[nvml.ComputeInstanceInfo](t, "info")(compute.GetInfo())
		uuids = append(uuids, must[string](t, "UUID")(made.Device.GetUUID()))
	}
	st, err := s.load()
	if err != nil {
		t.Fatal(err)
	}
	line := "GPU 0: NVIDIA H100 80GB HBM3 (UUID: " + s.node.gpus[0].uuid + ")\n"
	var lines, nodes []string
	for _, in := range st.GPUs[0].Instances {
		ci := in.Compute[0]
		lines = append(lines, fmt.Sprintf("  MIG %-11s Device  %%d: (UUID: %s)\n", s.node.gpus[0].migName(&in, &ci), ci.UUID))
		nodes = append(nodes, fmt.Sprintf("nvidia-caps/nvidia-cap%d", instanceCap(0, in.ID)), fmt.Sprintf("nvidia-caps/nvidia-cap%d", computeCap(0, in.ID, ci.ID)))
	}
	if len(lines) != 2 || !strings.Contains(lines[0]+lines[1], "  MIG 3g.40gb     Device  ") {
		t.Fatalf("lines %q of %v", lines, uuids)
	}
	for name, c := range map[string]struct {
		nodes []string
		want  string
	}{
		"none":               {nil, line},
		"the first":          {nodes[:2], line + fmt.Sprintf(lines[0], 0)},
		"the second":         {nodes[2:], line + fmt.Sprintf(lines[1], 0)},
		"both":               {nodes, line + fmt.Sprintf(lines[0], 0) + fmt.Sprintf(lines[1], 1)},
		"half of one":        {nodes[:1], line},
		"a monitor's access": {[]string{"nvidia-caps/nvidia-cap2"}, line + fmt.Sprintf(lines[0], 0) + fmt.Sprintf(lines[1], 1)},
	} {
		t.Run(name, func(t *testing.T) {
			container := newContainer(t, s, append([]string{"nvidia0"}, c.nodes...)...)
			container.shows(c.want, "-L")
			container.shows("Enabled\n", "--query-gpu=mig.mode.current", "--format=csv,noheader")
			if table, _ := container.smi(); strings.Contains(table, "MIG devices") != (c.want != line) {
				t.Errorf("table:\n%s", table)
			}
		})
	}
	if err := s.ResetGPU(0); err != nil {
		t.Fatal(err)
	}
	newContainer(t, s, append([]string{"nvidia0"}, nodes...)...).shows(line, "-L")
}

func TestNvidiaSMIRefusesWhatTheRealOneRefuses(t *testing.T) {
	s, _ := newTestSim(t, "t4")
	one, none := newContainer(t, s, "nvidia1"), newContainer(t, s)
	for name, tc := range map[string]struct {
		container container
		args      []string
		status    int
		says      string
	}{
		"an unknown option":       {one, []string{"--wings"}, 2, "Invalid combination of input arguments"},
		"an unknown field":        {one, []string{"--query-gpu=uuid,wings", "--format=csv"}, 2, `Field "wings" is not a valid field to query.`},
		"no format":               {one, []string{"--query-gpu=uuid"}, 2, `"--format=" switch is missing`},
		"an unknown format":       {one, []string{"--query-gpu=uuid", "--format=xml"}, 2, "--format"},
		"half a format":           {one, []string{"--query-gpu=uuid", "--format=noheader"}, 2, "--format"},
		"two questions":           {one, []string{"-L", "--query-gpu=uuid", "--format=csv"}, 2, "Invalid combination"},
		"an ID that is missing":   {one, []string{"-L", "-i"}, 2, "Invalid combination"},
		"topology without matrix": {one, []string{"topo"}, 2, "Invalid combination"},
		"a hidden GPU":            {one, []string{"-L", "-i", s.node.gpus[0].uuid}, 6, "No devices were found"},
		"no GPU":                  {none, nil, 6, "No devices were found"},
		"no GPU to list":          {none, []string{"-L"}, 6, "No devices were found"},
		"no GPU to query":         {none, []string{"--query-gpu=uuid", "--format=csv"}, 6, "No devices were found"},
		"no GPU to connect":       {none, []string{"topo", "-m"}, 6, "No devices were found"},
		"a reset":                 {one, []string{"--gpu-reset", "-i", "0"}, 4, "Insufficient permissions"},
		"a policy":                {one, []string{"compute-policy", "--list"}, 4, "Insufficient permissions"},
	} {
		t.Run(name, func(t *testing.T) {
			out, status := tc.container.smi(tc.args...)
			if status != tc.status || !strings.Contains(out, tc.says) {
				t.Errorf("status %d, want %d and %q:\n%s", status, tc.status, tc.says, out)
			}
		})
	}
}

func TestNvidiaSMIPrintsItsVersion(t *testing.T) {
	s, _ := newTestSim(t, "t4")
	out, status := newContainer(t, s).smi("--version")
	if want := "DRIVER version      : 570.124.06\nCUDA Version        : 12.8\n"; status != 0 || !strings.HasSuffix(out, want) {
		t.Errorf("status %d, %q, want the end %q", status, out, want)
	}
}

func TestNvidiaSMIRunsInBusybox(t *testing.T) {
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		t.Skip("no busybox here, the shell of the images for simulated hardware")
	}
	s, _ := newTestSim(t, "dgx-h100")
	c := newContainer(t, s, "nvidia3")
	for _, args := range [][]string{{"-L"}, {"--query-gpu=uuid,memory.total", "--format=csv"}, {"topo", "-m"}} {
		want, _ := c.smi(args...)
		got, err := exec.CommandContext(t.Context(), busybox, append([]string{"sh", filepath.Join(c.root, "usr/bin/nvidia-smi")}, args...)...).CombinedOutput()
		if err != nil {
			t.Errorf("%v: %v", args, err)
		}
		if diff := cmp.Diff(want, string(got)); diff != "" {
			t.Errorf("%v (-/bin/sh +busybox):\n%s", args, diff)
		}
	}
}
