// SPDX-License-Identifier: Apache-2.0

package nodefacts

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"

	agentv1 "github.com/gpu-dra/gpu-dra-driver/api/agent/v1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

// tree writes files below a new root.
func tree(t *testing.T, files map[string]string) Root {
	t.Helper()
	root := t.TempDir()
	for path, content := range files {
		path = filepath.Join(root, path)
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must(t, os.WriteFile(path, []byte(content), 0o600))
	}
	return Root(root)
}

func roots(r Root) Roots { return Roots{Kernel: r, GPUs: r, Host: r, Kubelet: "/var/lib/kubelet"} }

// dpkg is a list of packages as dpkg writes it.
const dpkg = `Package: nvidia-fabricmanager-535
Status: deinstall ok config-files
Version: 535.183.01-0ubuntu1

Package: nvidia-fabricmanager-dev-550
Status: install ok installed
Version: 550.1-1

Package: nvidia-fabricmanager-550
Status: install ok installed
Description: Fabric Manager
 Version: 1
Version: 1:550.127.05-1

`

// Fabric Manager of the driver container of the GPU operator comes first.
func TestFabricManagerOfADriverContainer(t *testing.T) {
	r := tree(t, map[string]string{
		"var/lib/dpkg/status":                   dpkg,
		"run/nvidia/driver/var/lib/dpkg/status": "Package: nvidia-fabricmanager\nStatus: install ok installed\nVersion: 580.65.06-0ubuntu1\n",
	})
	if f := r.fabricManagerRelease(); f.Value != "580.65.06" || f.Source != "/run/nvidia/driver/var/lib/dpkg/status" {
		t.Errorf("got %+v", f)
	}
	if f := tree(t, nil).fabricManagerRelease(); f.Value != "" || !f.IsKnown() {
		t.Errorf("without packages: %+v", f)
	}
}

func TestFactsOfANode(t *testing.T) {
	r := tree(t, map[string]string{
		"proc/driver/nvidia/version":                            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06\n",
		"sys/module/nvidia_peermem/refcnt":                      "0\n",
		"proc/17/comm":                                          "nv-fabricmanage\n",
		"proc/18/comm":                                          "nvidia-persiste\n",
		"proc/sys/kernel/osrelease":                             "6.8.0-85-generic\n",
		"sys/fs/cgroup/cgroup.controllers":                      "cpuset cpu io memory hugetlb pids rdma misc dmem\n",
		"sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages": "512\n",
		"sys/kernel/mm/transparent_hugepage/enabled":            "always [madvise] never\n",
		"proc/swaps":                                            "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n/dev/sda2                               partition\t8388604\t\t0\t\t-2\n",
		"sys/devices/system/cpu/cpu0/cpufreq/scaling_governor":  "powersave\n",
		"sys/devices/system/cpu/cpu1/cpufreq/scaling_governor":  "performance\n",
		"sys/devices/system/cpu/cpu2/cpufreq/scaling_governor":  "powersave\n",
		"sys/devices/system/cpu/online":                         "0-2\n",
		"proc/self/limits":                                      "Limit                     Soft Limit           Hard Limit           Units     \nMax locked memory         8388608              8388608              bytes     \n",
		"sys/class/iommu/dmar0/devices":                         "",
		"sys/class/infiniband/mlx5_0/node_guid":                 "",
		"sys/devices/system/node/has_cpu":                       "0-1\n",
		"etc/containerd/config.toml":                            "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\"]\n  enable_cdi = true # since 1.7\n  cdi_spec_dirs = ['/etc/cdi', \"/var/run/cdi\"]\n",
		"etc/crio/crio.conf":                                    "[crio.runtime]\n# cdi_spec_dirs = [\"/wrong\"]\ncdi_spec_dirs = [\n  \"/etc/cdi\", # a\n]\nother = [\"/x\"]\n",
		"etc/crio/crio.conf.d/10-own.conf":                      "[crio.runtime]\ncdi_spec_dirs = [\"/opt/cdi\"]\n",
		"etc/crio/crio.conf.d/99-other.conf":                    "[crio.runtime]\ndefault_runtime = \"crun\"\n",
		"var/lib/dpkg/status":                                   dpkg,
		"var/lib/kubelet/cpu_manager_state":                     `{"policyName":"static","defaultCpuSet":"0-3","checksum":1}`,
	})
	want := agentv1.Node{
		OpenModules:          agentv1.Fact[bool]{Value: true, Source: "/proc/driver/nvidia/version"},
		Peermem:              agentv1.Fact[bool]{Value: true, Source: "/sys/module/nvidia_peermem"},
		FabricManager:        agentv1.Fact[bool]{Value: true, Source: "/proc/*/comm"},
		Persistenced:         agentv1.Fact[bool]{Value: true, Source: "/proc/*/comm"},
		FabricManagerRelease: agentv1.Fact[string]{Value: "550.127.05", Source: "/var/lib/dpkg/status"},
		KernelVersion:        agentv1.Fact[string]{Value: "6.8.0-85-generic", Source: "/proc/sys/kernel/osrelease"},
		Controllers:          agentv1.Fact[[]string]{Value: strings.Fields("cpuset cpu io memory hugetlb pids rdma misc dmem"), Source: "/sys/fs/cgroup/cgroup.controllers"},
		HugePages:            agentv1.Fact[map[string]uint64]{Value: map[string]uint64{"2048kB": 512}, Source: "/sys/kernel/mm/hugepages"},
		TransparentHugePages: agentv1.Fact[string]{Value: "madvise", Source: "/sys/kernel/mm/transparent_hugepage/enabled"},
		SwapBytes:            agentv1.Fact[uint64]{Value: 8388604 << 10, Source: "/proc/swaps"},
		Governors:            agentv1.Fact[[]string]{Value: []string{"performance", "powersave"}, Source: "/sys/devices/system/cpu/cpu*/cpufreq/scaling_governor"},
		Memlock:              agentv1.Fact[string]{Value: "8388608", Source: "/proc/self/limits"},
		IOMMU:                agentv1.Fact[bool]{Value: true, Source: "/sys/class/iommu"},
		RDMADevices:          agentv1.Fact[[]string]{Value: []string{"mlx5_0"}, Source: "/sys/class/infiniband"},
		NUMANodes:            agentv1.Fact[int]{Value: 2, Source: "/sys/devices/system/node/has_cpu"},
		ContainerdCDI:        agentv1.Fact[string]{Value: "true", Source: "/etc/containerd/config.toml"},
		ContainerdSpecDirs:   agentv1.Fact[[]string]{Value: []string{"/etc/cdi", "/var/run/cdi"}, Source: "/etc/containerd/config.toml"},
		CRIOSpecDirs:         agentv1.Fact[[]string]{Value: []string{"/opt/cdi"}, Source: "/etc/crio/crio.conf.d/10-own.conf"},
		CPUManager:           agentv1.Fact[string]{Value: "static", Source: "/var/lib/kubelet/cpu_manager_state"},
	}
	require.Same(t, "facts", want, roots(r).Read(nil))
}

func TestAFileThatIsAbsentDiffersFromOneThatIsBroken(t *testing.T) {
	n := roots(tree(t, nil)).Read(nil)
	if !n.SwapBytes.IsKnown() || !n.Governors.IsKnown() || n.Peermem.Value || n.FabricManager.Value || n.CPUManager.Value != "" || !n.CPUManager.IsKnown() {
		t.Errorf("on a node without the files: %+v", n)
	}
	n = roots(tree(t, map[string]string{
		"proc/swaps": "Filename Type Size\n/dev/sda2 partition many 0 0\n",
		"sys/kernel/mm/transparent_hugepage/enabled":            "always",
		"proc/self/limits":                                      "Max locked memory\n",
		"var/lib/kubelet/cpu_manager_state":                     "{",
		"sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages": "some",
		"sys/devices/system/node/has_cpu":                       "x",
	})).Read(nil)
	for name, known := range map[string]bool{
		"swap": n.SwapBytes.IsKnown(), "THP": n.TransparentHugePages.IsKnown(), "memlock": n.Memlock.IsKnown(),
		"CPU manager": n.CPUManager.IsKnown(), "huge pages": n.HugePages.IsKnown(), "NUMA nodes": n.NUMANodes.IsKnown(),
	} {
		if known {
			t.Errorf("%s is known from a file that is broken", name)
		}
	}
	// The agent does not see the host's root if it is not privileged.
	n = roots(Root(filepath.Join(t.TempDir(), "none"))).Read(nil)
	if n.CPUManager.IsKnown() || n.ContainerdCDI.IsKnown() {
		t.Errorf("facts are known without their root: %+v %+v", n.CPUManager, n.ContainerdCDI)
	}
}

// port returns the configuration space of a port whose ACS control has the bits.
func port(control uint16) string {
	config := make([]byte, 4096)
	binary.LittleEndian.PutUint32(config[0x100:], 0x0001|0x148<<20) // advanced error reporting
	binary.LittleEndian.PutUint32(config[0x148:], 0x000d)
	binary.LittleEndian.PutUint16(config[0x148+6:], control)
	return string(config)
}

// linkDevice links a PCI device into the folder of all devices.
func linkDevice(t *testing.T, r Root, device string) Root {
	t.Helper()
	folder := filepath.Join(string(r), "sys/bus/pci/devices")
	must(t, os.MkdirAll(folder, 0o755))
	must(t, os.Symlink("../../../devices"+strings.TrimPrefix(device, "sys/devices"), filepath.Join(folder, filepath.Base(device))))
	return r
}

func TestFactsOfAGPUBelowASwitch(t *testing.T) {
	const root, up, down = "sys/devices/pci0000:15/0000:15:01.0", "/0000:16:00.0", "/0000:17:02.0"
	device := root + up + down + "/0000:1b:00.0"
	files := map[string]string{
		root + "/config":               port(1<<2 | 1<<3 | 1<<4), // a root port
		root + up + "/config":          string(make([]byte, 4096)),
		root + up + down + "/config":   port(1<<2 | 1<<4),
		device + "/current_link_width": "8\n", device + "/max_link_width": "16\n",
		device + "/current_link_speed": "2.5 GT/s PCIe\n", device + "/max_link_speed": "32.0 GT/s PCIe\n",
		device + "/iommu_group/type": "DMA-FQ\n",
	}
	link := func(r Root) Root { return linkDevice(t, r, device) }
	address, err := gpu.ParsePCIAddress("0000:1b:00.0")
	must(t, err)
	folder := "/sys/bus/pci/devices/0000:1b:00.0/"
	got := roots(link(tree(t, files))).Read([]gpu.PCIAddress{address}).GPUs
	want := []agentv1.GPU{{
		Address:      "0000:1b:00.0",
		LinkWidth:    agentv1.Fact[int]{Value: 8, Source: folder + "current_link_width"},
		MaxLinkWidth: agentv1.Fact[int]{Value: 16, Source: folder + "max_link_width"},
		LinkSpeed:    agentv1.Fact[string]{Value: "2.5 GT/s PCIe", Source: folder + "current_link_speed"},
		MaxLinkSpeed: agentv1.Fact[string]{Value: "32.0 GT/s PCIe", Source: folder + "max_link_speed"},
		IOMMUType:    agentv1.Fact[string]{Value: "DMA-FQ", Source: folder + "iommu_group/type"},
		ACSRedirect:  agentv1.Fact[[]string]{Value: []string{"0000:17:02.0"}, Source: folder + "../config"},
	}}
	require.Same(t, "facts", want, got)
	// A process without rights reads the first 64 bytes only.
	files[root+up+down+"/config"] = port(0)[:64]
	if got := roots(link(tree(t, files))).Read([]gpu.PCIAddress{address}).GPUs[0].ACSRedirect; got.IsKnown() {
		t.Errorf("ACS is known without its registers: %+v", got)
	}
}

// In a virtual machine a GPU is on the root bus, which is a folder without a configuration space.
func TestARootBusHasNoACS(t *testing.T) {
	address, err := gpu.ParsePCIAddress("0000:05:00.0")
	must(t, err)
	for _, device := range []string{"sys/devices/pci0000:00/0000:05:00.0", "sys/devices/pci0000:00/0000:00:01.0/0000:05:00.0"} {
		r := linkDevice(t, tree(t, map[string]string{device + "/max_link_width": "16\n"}), device)
		if got := roots(r).Read([]gpu.PCIAddress{address}).GPUs[0].ACSRedirect; !got.IsKnown() || len(got.Value) > 0 {
			t.Errorf("%s: %+v, want none", device, got)
		}
	}
}

var must = require.NoError
