// SPDX-License-Identifier: Apache-2.0

package nvmlsim

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/NVIDIA/nvidia-container-toolkit/pkg/nvcdi"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	"k8s.io/dynamic-resource-allocation/deviceattribute"
	"tags.cncf.io/container-device-interface/specs-go"
)

func TestUpstreamHelpersReadTheSysTree(t *testing.T) {
	for _, tc := range []struct {
		model   string
		address string
		root    string
		numa    int64
		near    []int64
	}{
		{"dgx-h100", "0000:1b:00.0", "pci0000:15", 0, []int64{0}},
		{"dgx-a100", "0000:bd:00.0", "pci0000:b0", 5, []int64{5, 4, 6, 7}},
		// The GPUs' own memory is farther than any CPU.
		{"gb200", "0018:01:00.0", "pci0018:00", 1, []int64{1}},
		{"dgx1-v100", "0000:8a:00.0", "pci0000:80", 1, []int64{1}},
	} {
		t.Run(tc.model, func(t *testing.T) {
			m, err := LoadModel(tc.model)
			if err != nil {
				t.Fatal(err)
			}
			s, _ := newFullSim(t, m)
			at := deviceattribute.WithFSFromRoot(filepath.Join(s.Root(), "sys"))
			root, err := deviceattribute.GetPCIeRootAttributeByPCIBusID(tc.address, at)
			if err != nil {
				t.Fatal(err)
			}
			if *root.Value.StringValue != tc.root {
				t.Errorf("PCIe root %s, want %s", *root.Value.StringValue, tc.root)
			}
			numa, err := deviceattribute.GetNUMANodeAttributeByPCIBusID(tc.address, deviceattribute.ScalarAttribute, at)
			if err != nil {
				t.Fatal(err)
			}
			if *numa.Value.IntValue != tc.numa {
				t.Errorf("NUMA node %d, want %d", *numa.Value.IntValue, tc.numa)
			}
			near, err := deviceattribute.GetNUMANodeAttributeByPCIBusID(tc.address, deviceattribute.ListAttribute, at)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.near, near.Value.IntValues); diff != "" {
				t.Errorf("near NUMA nodes (-want +got):\n%s", diff)
			}
		})
	}
}

func TestGPUWithoutNUMANodePublishesNone(t *testing.T) {
	m, err := LoadModel("t4")
	if err != nil {
		t.Fatal(err)
	}
	m.GPUs[0].NUMANode = nil
	s, err := Create(t.TempDir(), m)
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(s.Root(), "sys/bus/pci/devices/0000:18:00.0/numa_node"))
	if err != nil || string(data) != "-1\n" {
		t.Errorf("numa_node %q, %v", data, err)
	}
}

func TestDeviceNodesHaveTheNumbersOfTheDriver(t *testing.T) {
	s, _ := newTestSim(t, "dgx-h100")
	for name, want := range map[string][2]uint32{
		"nvidia0": {195, 0}, "nvidia7": {195, 7}, "nvidiactl": {195, 255}, "nvidia-modeset": {195, 254},
		"nvidia-uvm": {510, 0}, "nvidia-uvm-tools": {510, 1}, "nvidia-caps/nvidia-cap1": {511, 1},
	} {
		var stat unix.Stat_t
		if err := unix.Stat(filepath.Join(s.Root(), "dev", name), &stat); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		// Only who may make device nodes gets them; others get plain files.
		if !s.tree().realDevices() {
			want = [2]uint32{}
		}
		if got := [2]uint32{unix.Major(stat.Rdev), unix.Minor(stat.Rdev)}; got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}

func TestMIGMinorsMatchTheDriver(t *testing.T) {
	s, _ := newTestSim(t, "dgx-h100")
	data, err := os.ReadFile(filepath.Join(s.Root(), "proc/driver/nvidia-caps/mig-minors"))
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Split(string(data), "\n")
	for _, want := range []string{"config 1", "monitor 2", "gpu0/gi0/access 3", "gpu0/gi0/ci0/access 4", "gpu1/gi0/access 138", "gpu31/gi14/ci7/access 4322"} {
		if !slices.Contains(got, want) {
			t.Errorf("no line %q", want)
		}
	}
}

// silent is a logger that logs nothing.
type silent struct{}

func (silent) Debugf(string, ...any)   {}
func (silent) Errorf(string, ...any)   {}
func (silent) Infof(string, ...any)    {}
func (silent) Warningf(string, ...any) {}
func (silent) Tracef(string, ...any)   {}

// onlyDriver is a root with the driver of a simulated node and nothing else: bin,
// lib64 and the firmware, as GKE has it.
func onlyDriver(t *testing.T, s *Sim) string {
	t.Helper()
	root := t.TempDir()
	for to, from := range map[string]string{"bin": "usr/bin", "lib64": libraryDirs[s.Model().Platform], "lib/firmware": "lib/firmware"} {
		if err := os.CopyFS(filepath.Join(root, to), os.DirFS(filepath.Join(s.Root(), from))); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// The container toolkit's CDI library runs on the simulator as on a real node. It
// finds driver and device nodes.
func TestContainerToolkitFindsTheDriver(t *testing.T) {
	for name, tc := range map[string]struct {
		model string
		// bin and lib of a root with nothing but the driver; empty for a whole system.
		bin, lib string
	}{
		"dgx-h100":                     {model: "dgx-h100"},
		"gb200":                        {model: "gb200"},
		"GKE's root has bin and lib64": {model: "t4", bin: "/bin", lib: "/lib64"},
	} {
		t.Run(name, func(t *testing.T) {
			s, lib := newTestSim(t, tc.model)
			driver, bin, dir := s.Root(), "/usr/bin", "/"+libraryDirs[s.Model().Platform]
			if tc.bin != "" {
				driver, bin, dir = onlyDriver(t, s), tc.bin, tc.lib
			}
			cdi, err := nvcdi.New(
				nvcdi.WithLogger(silent{}),
				nvcdi.WithMode(nvcdi.ModeNvml),
				nvcdi.WithNvmlLib(lib),
				nvcdi.WithDriverRoot(driver),
				nvcdi.WithDevRoot(s.Root()),
				nvcdi.WithNVIDIACDIHookPath("/usr/bin/nvidia-cdi-hook"),
				nvcdi.WithFeatureFlags(nvcdi.FeatureDisableNvsandboxUtils),
			)
			if err != nil {
				t.Fatal(err)
			}
			common, err := cdi.GetCommonEdits()
			if err != nil {
				t.Fatal(err)
			}
			var mounts, nodes []string
			for _, m := range common.Mounts {
				mounts = append(mounts, m.ContainerPath)
				if _, err := os.Stat(m.HostPath); err != nil {
					t.Errorf("mount %s: %v", m.HostPath, err)
				}
			}
			for _, n := range common.DeviceNodes {
				nodes = append(nodes, n.Path)
			}
			version := s.Model().DriverVersion
			for _, want := range []string{dir + "/libcuda.so." + version, dir + "/libnvidia-ml.so." + version, bin + "/nvidia-smi", bin + "/nvidia-cuda-mps-control", "/" + firmware(version)} {
				if !slices.Contains(mounts, want) {
					t.Errorf("no mount of %s in %v", want, mounts)
				}
			}
			if !slices.ContainsFunc(common.Hooks, func(h *specs.Hook) bool { return slices.Contains(h.Args, "libcuda.so.1::"+dir+"/libcuda.so") }) {
				t.Error("no hook links libcuda.so.1")
			}
			device, err := cdi.GetDeviceSpecsByID("0")
			if err != nil {
				t.Fatal(err)
			}
			for _, n := range device[0].ContainerEdits.DeviceNodes {
				nodes = append(nodes, n.Path)
			}
			// The toolkit finds character devices only.
			var want []string
			if s.tree().realDevices() {
				want = []string{"/dev/nvidia-modeset", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia0", "/dev/nvidiactl"}
			}
			slices.Sort(nodes)
			if diff := cmp.Diff(want, nodes); diff != "" {
				t.Errorf("device nodes (-want +got):\n%s", diff)
			}
		})
	}
}

func TestNoLinkInTheTreeIsBroken(t *testing.T) {
	for _, model := range ModelNames() {
		s, _ := newTestSim(t, model)
		err := filepath.WalkDir(s.Root(), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.Type()&fs.ModeSymlink == 0 {
				return err
			}
			target, err := filepath.EvalSymlinks(path)
			if err == nil && !strings.HasPrefix(target, s.Root()) {
				err = fmt.Errorf("%s leads out of the tree to %s", path, target)
			}
			return err
		})
		if err != nil {
			t.Errorf("%s: %v", model, err)
		}
	}
}
