// SPDX-License-Identifier: Apache-2.0

package smisim_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/google/go-cmp/cmp"

	"github.com/gpu-dra/gpu-dra-driver/simulator/nvmlsim"
	"github.com/gpu-dra/gpu-dra-driver/simulator/smisim"
)

func newNode(t *testing.T, model string) *nvmlsim.Sim {
	t.Helper()
	m, err := nvmlsim.LoadModel(model)
	must(t, err)
	s, err := nvmlsim.Create(t.TempDir(), m)
	must(t, err)
	return s
}

func tables(t *testing.T, s *nvmlsim.Sim) *nvmlsim.SMITables {
	t.Helper()
	all, err := s.SMITables()
	must(t, err)
	return all
}

// container has the node's firmware and the given device nodes, and not the node's state.
type container struct {
	t    *testing.T
	root string
}

func newContainer(t *testing.T, s *nvmlsim.Sim, nodes ...string) container {
	t.Helper()
	c := container{t, t.TempDir()}
	must(t, os.CopyFS(filepath.Join(c.root, "lib"), os.DirFS(filepath.Join(s.Root(), "lib"))))
	for _, node := range append(nodes, "nvidiactl") {
		path := filepath.Join(c.root, "dev", node)
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must(t, os.WriteFile(path, nil, 0o666))
	}
	return c
}

// smi runs nvidia-smi and returns its output and its exit status.
func (c container) smi(args ...string) (output string, status int) {
	c.t.Helper()
	program, err := smisim.InContainer(filepath.Join(c.root, "usr/bin/nvidia-smi"))
	must(c.t, err)
	return run(program, args...)
}

func run(program *smisim.Program, args ...string) (output string, status int) {
	var out bytes.Buffer
	if err := program.Run(args, &out); err != nil {
		return out.String() + err.Error() + "\n", smisim.ExitStatus(err)
	}
	return out.String(), 0
}

// shows compares the output of nvidia-smi.
func (c container) shows(want string, args ...string) {
	c.t.Helper()
	got, status := c.smi(args...)
	if diff := cmp.Diff(want, got); diff != "" || status != 0 {
		c.t.Errorf("nvidia-smi %s: status %d (-want +got):\n%s", strings.Join(args, " "), status, diff)
	}
}

// In most images /lib is a link to /usr/lib.
func TestAContainerWithOneLibFolderShowsItsGPUs(t *testing.T) {
	s := newNode(t, "t4")
	c := newContainer(t, s, "nvidia0")
	lib, merged := filepath.Join(c.root, "lib"), filepath.Join(c.root, "usr", "lib")
	must(t, errors.Join(os.Mkdir(filepath.Dir(merged), 0o755), os.Rename(lib, merged), os.Symlink("usr/lib", lib)))
	c.shows("Tesla T4\n", "--query-gpu=name", "--format=csv,noheader")
}

func TestAContainerShowsItsGPUs(t *testing.T) {
	s := newNode(t, "dgx1-v100")
	c := newContainer(t, s, "nvidia2", "nvidia7")
	gpus := tables(t, s).GPUs
	two, seven := gpus[2], gpus[7]
	c.shows(fmt.Sprintf("GPU 0: Tesla V100-SXM2-32GB (UUID: %s)\nGPU 1: Tesla V100-SXM2-32GB (UUID: %s)\n", two.UUID, seven.UUID), "-L")
	c.shows(fmt.Sprintf("GPU 1: Tesla V100-SXM2-32GB (UUID: %s)\n", seven.UUID), "-L", "-i", seven.UUID)
	c.shows(fmt.Sprintf("index, uuid, memory.total [MiB], memory.used [MiB], mig.mode.current\n"+
		"0, %s, 32768 MiB, [N/A], [N/A]\n1, %s, 32768 MiB, [N/A], [N/A]\n", two.UUID, seven.UUID),
		"--query-gpu=index,uuid,memory.total,memory.used,mig.mode.current", "--format=csv")
	c.shows("Tesla V100-SXM2-32GB, "+seven.BusID+", 32768, 2\n", "--query-gpu=name,pci.bus_id,memory.total,count", "--format=csv,noheader,nounits", "--id=1")
	c.shows("0\n", "--query-gpu=index", "--format=csv,noheader", "-i", strings.TrimPrefix(two.BusID, "0000"))

	topology, _ := c.smi("topo", "-m")
	header, _, _ := strings.Cut(topology, "\n")
	if header != "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID" {
		t.Errorf("topology:\n%s", topology)
	}
	table, status := c.smi()
	if status != 0 || !strings.Contains(table, two.BusID) || !strings.Contains(table, "Driver Version: 570.124.06") {
		t.Errorf("status %d:\n%s", status, table)
	}
	for _, line := range strings.Split(strings.TrimSpace(table), "\n")[1:] {
		if line != "" && len(line) != 91 {
			t.Errorf("a line of %d characters: %s", len(line), line)
		}
	}
	for _, hidden := range []int{0, 1, 3, 4, 5, 6} {
		for _, args := range [][]string{nil, {"-L"}, {"--query-gpu=uuid,pci.bus_id", "--format=csv"}} {
			if out, _ := c.smi(args...); strings.Contains(out, gpus[hidden].UUID) || strings.Contains(out, gpus[hidden].BusID) {
				t.Errorf("nvidia-smi %v shows GPU %d, which the container does not have", args, hidden)
			}
		}
	}
}

func TestTheTopologyNamesTheLinkTypeBetweenGPUs(t *testing.T) {
	for model, want := range map[string]string{
		"dgx-h100":   "GPU0\t X \tNV18\t",
		"dgx1-v100":  "GPU0\t X \tNV1\t",
		"a30-bridge": "GPU0\t X \tNV4\t",
		"t4":         "GPU0\t X \tNODE\t",
	} {
		got, _ := newContainer(t, newNode(t, model), "nvidia0", "nvidia1").smi("topo", "-m")
		if !strings.Contains(got, "\n"+want) {
			t.Errorf("%s: want %q:\n%s", model, want, got)
		}
	}
}

// partition creates a MIG device that spans a GPU instance with the profiles.
func partition(t *testing.T, gpu nvml.Device, instanceProfile, computeProfile int) {
	t.Helper()
	check := func(ret nvml.Return) {
		t.Helper()
		if ret != nvml.SUCCESS {
			t.Fatal(nvmlsim.ReturnName(ret))
		}
	}
	info, ret := gpu.GetGpuInstanceProfileInfo(instanceProfile)
	check(ret)
	instance, ret := gpu.CreateGpuInstance(&info)
	check(ret)
	compute, ret := instance.GetComputeInstanceProfileInfo(computeProfile, nvml.COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED)
	check(ret)
	_, ret = instance.CreateComputeInstance(&compute)
	check(ret)
}

func TestAContainerShowsItsMIGDevices(t *testing.T) {
	s := newNode(t, "dgx-h100")
	lib := s.NVML()
	if ret := lib.Init(); ret != nvml.SUCCESS {
		t.Fatal(ret)
	}
	defer lib.Shutdown() //nolint:errcheck // the test is over
	gpu, ret := lib.DeviceGetHandleByIndex(0)
	if ret != nvml.SUCCESS {
		t.Fatal(ret)
	}
	if _, ret := gpu.SetMigMode(nvml.DEVICE_MIG_ENABLE); ret != nvml.SUCCESS {
		t.Fatal(ret)
	}
	partition(t, gpu, nvml.GPU_INSTANCE_PROFILE_1_SLICE, nvml.COMPUTE_INSTANCE_PROFILE_1_SLICE)
	partition(t, gpu, nvml.GPU_INSTANCE_PROFILE_3_SLICE, nvml.COMPUTE_INSTANCE_PROFILE_3_SLICE)
	g := tables(t, s).GPUs[0]
	line := "GPU 0: NVIDIA H100 80GB HBM3 (UUID: " + g.UUID + ")\n"
	var lines, nodes []string
	for _, m := range g.MIGDevices {
		lines = append(lines, fmt.Sprintf("  MIG %-11s Device  %%d: (UUID: %s)\n", m.Profile, m.UUID))
		nodes = append(nodes, m.Nodes...)
	}
	if len(lines) != 2 || !strings.Contains(lines[0]+lines[1], "  MIG 3g.40gb     Device  ") {
		t.Fatalf("lines %q", lines)
	}
	for name, tc := range map[string]struct {
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
			c := newContainer(t, s, append([]string{"nvidia0"}, tc.nodes...)...)
			c.shows(tc.want, "-L")
			c.shows("Enabled\n", "--query-gpu=mig.mode.current", "--format=csv,noheader")
			if table, _ := c.smi(); strings.Contains(table, "MIG devices") != (tc.want != line) {
				t.Errorf("table:\n%s", table)
			}
		})
	}
	must(t, s.ResetGPU(0))
	newContainer(t, s, append([]string{"nvidia0"}, nodes...)...).shows(line, "-L")
}

func TestItRefusesWhatTheRealOneRefuses(t *testing.T) {
	s := newNode(t, "t4")
	one, none := newContainer(t, s, "nvidia1"), newContainer(t, s)
	for name, tc := range map[string]struct {
		container container
		args      []string
		status    int
		says      string
	}{
		"an unknown option":       {one, []string{"--wings"}, 2, "Invalid combination of input arguments"},
		"an unknown command":      {one, []string{"wings"}, 2, "Invalid combination of input arguments"},
		"an unknown field":        {one, []string{"--query-gpu=uuid,wings", "--format=csv"}, 2, `Field "wings" is not a valid field to query.`},
		"no format":               {one, []string{"--query-gpu=uuid"}, 2, `"--format=" switch is missing`},
		"an unknown format":       {one, []string{"--query-gpu=uuid", "--format=xml"}, 2, "--format"},
		"half a format":           {one, []string{"--query-gpu=uuid", "--format=noheader"}, 2, "--format"},
		"a format for a list":     {one, []string{"-L", "--format=csv"}, 2, "Invalid combination"},
		"two questions":           {one, []string{"-L", "--query-gpu=uuid", "--format=csv"}, 2, "Invalid combination"},
		"an ID that is missing":   {one, []string{"-L", "-i"}, 2, "Invalid combination"},
		"topology without matrix": {one, []string{"topo"}, 2, "Invalid combination"},
		"matrix without topology": {one, []string{"-m"}, 2, "Invalid combination"},
		"a hidden GPU":            {one, []string{"-L", "-i", tables(t, s).GPUs[0].UUID}, 6, "No devices were found"},
		"no GPU":                  {none, nil, 6, "No devices were found"},
		"no GPU to list":          {none, []string{"-L"}, 6, "No devices were found"},
		"no GPU to query":         {none, []string{"--query-gpu=uuid", "--format=csv"}, 6, "No devices were found"},
		"no GPU to connect":       {none, []string{"topo", "-m"}, 6, "No devices were found"},
		"a reset":                 {one, []string{"--gpu-reset", "-i", "0"}, 4, "Insufficient permissions"},
		"a policy":                {one, []string{"compute-policy", "--list"}, 4, "Insufficient permissions"},
		"a mode":                  {one, []string{"-c", "0"}, 4, "Insufficient permissions"},
	} {
		t.Run(name, func(t *testing.T) {
			out, status := tc.container.smi(tc.args...)
			if status != tc.status || !strings.Contains(out, tc.says) {
				t.Errorf("status %d, want %d and %q:\n%s", status, tc.status, tc.says, out)
			}
		})
	}
	if _, err := smisim.InContainer(filepath.Join(t.TempDir(), "usr/bin/nvidia-smi")); err == nil || smisim.ExitStatus(err) != 9 {
		t.Errorf("a container without firmware: %v, want status 9", err)
	}
}

func TestItPrintsItsVersionAndUsage(t *testing.T) {
	c := newContainer(t, newNode(t, "t4"))
	c.shows("NVIDIA-SMI version  : 570.124.06\nNVML version        : 570.124\nDRIVER version      : 570.124.06\nCUDA Version        : 12.8\n", "--version")
	if out, status := c.smi("-h"); status != 0 || !strings.HasPrefix(out, "nvidia-smi [-i ID") {
		t.Errorf("status %d, %q", status, out)
	}
}

// The device nodes of the node are below its root, and changes show at once.
func TestOnTheNodeItShowsAllGPUsAsTheyAre(t *testing.T) {
	s := newNode(t, "t4")
	smi := func(args ...string) string {
		t.Helper()
		program, err := smisim.OnNode(s)
		must(t, err)
		out, status := run(program, args...)
		if status != 0 {
			t.Fatalf("nvidia-smi %v: status %d: %s", args, status, out)
		}
		return out
	}
	if out := smi("-L"); strings.Count(out, "Tesla T4") != 4 {
		t.Errorf("got\n%s", out)
	}
	smi("-i", "2", "-c", "EXCLUSIVE_PROCESS")
	if out := smi("-i", "1,2", "--query-gpu=compute_mode", "--format=csv,noheader"); out != "Default\nExclusive_Process\n" {
		t.Errorf("compute modes %q", out)
	}
}

// Scripts that reset GPUs read the text and the exit status of the real program, which names
// no process.
func TestAResetOfAGPUInUseIsRefusedInTheWordsOfTheRealOne(t *testing.T) {
	s := newNode(t, "t4")
	must(t, s.AddProcess(0, nvmlsim.Process{PID: os.Getpid(), Name: "dcgm"}))
	program, err := smisim.OnNode(s)
	must(t, err)
	out, status := run(program, "--gpu-reset", "-i", "0")
	if status != 255 || !strings.HasPrefix(out, "The following GPUs could not be reset:\n  GPU 00000000:18:00.0: In use by another client\n\n1 device is currently being used") {
		t.Errorf("status %d, %q", status, out)
	}
	if out, status := run(program, "--gpu-reset", "-i", "1"); status != 0 || out != "GPU 1 was successfully reset.\n" {
		t.Errorf("status %d, %q", status, out)
	}
}

func TestADriverThatWasUpdatedWithoutAReboot(t *testing.T) {
	m, err := nvmlsim.LoadModel("t4")
	must(t, err)
	m.ModuleVersion = "565.57.01"
	s, err := nvmlsim.Create(t.TempDir(), m)
	must(t, err)
	if ret := s.NVML().Init(); ret != nvml.ERROR_LIB_RM_VERSION_MISMATCH {
		t.Errorf("NVML starts with %v", ret)
	}
	out, status := newContainer(t, s, "nvidia0").smi("-L")
	if want := "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 570.124\n"; out != want || status != 18 {
		t.Errorf("status %d, %q; want 18, %q", status, out, want)
	}
	for _, path := range []string{"sys/module/nvidia/version", "proc/driver/nvidia/version"} {
		if data, err := os.ReadFile(filepath.Join(s.Root(), path)); err != nil || !strings.Contains(string(data), m.ModuleVersion) {
			t.Errorf("%s: %q, %v", path, data, err)
		}
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
