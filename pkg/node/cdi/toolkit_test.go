// SPDX-License-Identifier: Apache-2.0

package cdi_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/NVIDIA/nvidia-container-toolkit/pkg/nvcdi"
	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/gpu-dra/gpu-dra-driver/simulator/nvmlsim"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

// silent is a logger that logs nothing.
type silent struct{}

func (silent) Debugf(string, ...any)   {}
func (silent) Errorf(string, ...any)   {}
func (silent) Infof(string, ...any)    {}
func (silent) Warningf(string, ...any) {}
func (silent) Tracef(string, ...any)   {}

// onlyDriver is a root with the driver of a simulated node and nothing else: bin,
// lib64 and the firmware, as GKE has it.
func onlyDriver(t *testing.T, s *nvmlsim.Sim, libraries string) string {
	t.Helper()
	root := t.TempDir()
	for to, from := range map[string]string{"bin": "usr/bin", "lib64": libraries, "lib/firmware": "lib/firmware"} {
		must(t, os.CopyFS(filepath.Join(root, to), os.DirFS(filepath.Join(s.Root(), from))))
	}
	return root
}

// The container toolkit's CDI library runs on the simulator as on a real node. It
// finds driver and device nodes.
func TestContainerToolkitFindsTheDriver(t *testing.T) {
	for name, tc := range map[string]struct {
		model string
		// libraries is the folder of the libraries in the system.
		libraries string
		// only is a root with nothing but the driver.
		only bool
	}{
		"dgx-h100":                     {model: "dgx-h100", libraries: "usr/lib/x86_64-linux-gnu"},
		"gb200":                        {model: "gb200", libraries: "usr/lib/aarch64-linux-gnu"},
		"GKE's root has bin and lib64": {model: "t4", libraries: "usr/lib/x86_64-linux-gnu", only: true},
	} {
		t.Run(name, func(t *testing.T) {
			m, err := nvmlsim.LoadModel(tc.model)
			must(t, err)
			s, err := nvmlsim.Create(t.TempDir(), m)
			must(t, err)
			driver, bin, dir := s.Root(), "/usr/bin", "/"+tc.libraries
			if tc.only {
				driver, bin, dir = onlyDriver(t, s, tc.libraries), "/bin", "/lib64"
			}
			cdi, err := nvcdi.New(
				nvcdi.WithLogger(silent{}),
				nvcdi.WithMode(nvcdi.ModeNvml),
				nvcdi.WithNvmlLib(s.NVML()),
				nvcdi.WithDriverRoot(driver),
				nvcdi.WithDevRoot(s.Root()),
				nvcdi.WithNVIDIACDIHookPath("/usr/bin/nvidia-cdi-hook"),
				nvcdi.WithFeatureFlags(nvcdi.FeatureDisableNvsandboxUtils),
			)
			must(t, err)
			common, err := cdi.GetCommonEdits()
			must(t, err)
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
			for _, want := range []string{dir + "/libcuda.so." + version, dir + "/libnvidia-ml.so." + version, bin + "/nvidia-smi", bin + "/nvidia-cuda-mps-control", "/lib/firmware/nvidia/" + version + "/gsp_ga10x.bin"} {
				if !slices.Contains(mounts, want) {
					t.Errorf("no mount of %s in %v", want, mounts)
				}
			}
			if !slices.ContainsFunc(common.Hooks, func(h *specs.Hook) bool { return slices.Contains(h.Args, "libcuda.so.1::"+dir+"/libcuda.so") }) {
				t.Error("no hook links libcuda.so.1")
			}
			device, err := cdi.GetDeviceSpecsByID("0")
			must(t, err)
			for _, n := range device[0].ContainerEdits.DeviceNodes {
				nodes = append(nodes, n.Path)
			}
			// The toolkit finds character devices only.
			var want []string
			if file, err := os.Stat(filepath.Join(s.Root(), "dev/nvidia0")); err != nil || file.Mode()&os.ModeCharDevice != 0 {
				want = []string{"/dev/nvidia-modeset", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia0", "/dev/nvidiactl"}
			}
			slices.Sort(nodes)
			require.Same(t, "device nodes", want, nodes)
		})
	}
}
