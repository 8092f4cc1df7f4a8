// SPDX-License-Identifier: Apache-2.0

package sysfs_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	"k8s.io/utils/cpuset"
	"k8s.io/utils/ptr"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/node/sysfs"
	"github.com/gpu-dra/gpu-dra-driver/simulator/nvmlsim"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

// tree makes a root out of files (path to content) and links (path to target).
func tree(t *testing.T, files, links map[string]string) sysfs.Root {
	t.Helper()
	root := t.TempDir()
	for path, content := range files {
		path = filepath.Join(root, path)
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must(t, os.WriteFile(path, []byte(content), 0o644))
	}
	for path, target := range links {
		path = filepath.Join(root, path)
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must(t, os.Symlink(target, path))
	}
	return sysfs.Root(root)
}

// device puts a PCI device with a NUMA node below a root port.
func device(files, links map[string]string, root, address, numa string) {
	files["sys/devices/"+root+"/0000:15:01.0/"+address+"/numa_node"] = numa + "\n"
	links["sys/bus/pci/devices/"+address] = "../../../devices/" + root + "/0000:15:01.0/" + address
}

func node(addresses ...string) gpu.Node {
	var n gpu.Node
	for _, s := range addresses {
		a, err := gpu.ParsePCIAddress(s)
		if err != nil {
			panic(err)
		}
		n.GPUs = append(n.GPUs, gpu.GPU{Address: a})
	}
	return n
}

func TestLocate(t *testing.T) {
	one := 1
	files, links := map[string]string{}, map[string]string{}
	device(files, links, "pci0000:15", "0000:1b:00.0", "1")
	device(files, links, "pci0000:37", "0000:43:00.0", "-1")
	device(files, links, "pci0009:00", "0009:01:00.0", "2")
	device(files, links, "pci10000:00", "10000:01:00.0", "1")
	device(files, links, "pci0000:50", "0000:52:00.0", "many")
	files["sys/devices/system/node/node1/cpulist"] = "0-55\n"
	files["sys/devices/system/node/node2/cpulist"] = "\n"
	root := tree(t, files, links)

	for _, c := range []struct {
		name, address string
		numa          *int
		near          []int
		cpus          string
		pcieRoot      string
		err           error
	}{
		{name: "a GPU in a socket", address: "0000:1b:00.0", numa: &one, near: []int{1}, cpus: "0-55", pcieRoot: "pci0000:15"},
		{name: "without NUMA affinity the node is absent, without an error", address: "0000:43:00.0", pcieRoot: "pci0000:37"},
		{name: "a NUMA node without CPUs is not its locality", address: "0009:01:00.0", pcieRoot: "pci0009:00"},
		{name: "a domain of five digits has no PCIe root attribute", address: "10000:01:00.0", numa: &one, near: []int{1}, cpus: "0-55", err: gpu.ErrNotSupported},
		{name: "a NUMA node that is not a number", address: "0000:52:00.0", pcieRoot: "pci0000:50", err: gpu.ErrCorrupt},
		{name: "a GPU the kernel does not list", address: "0000:99:00.0", err: gpu.ErrNotFound},
	} {
		t.Run(c.name, func(t *testing.T) {
			given := node(c.address)
			got, err := root.Locate(given)
			require.Error(t, "Locate", err, c.err)
			want := node(c.address)
			want.GPUs[0].NUMANode, want.GPUs[0].PCIeRoot = c.numa, c.pcieRoot
			want.GPUs[0].NearNUMANodes, want.GPUs[0].CPUs = c.near, c.cpus
			require.Same(t, "located node", want, got)
			require.Same(t, "the given node was changed", node(c.address), given)
		})
	}
}

// The kernel of a virtual machine reports no NUMA node of a GPU. If the machine has one, it is
// that one.
func TestTheOnlyNUMANode(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		want  *int
		err   error
	}{
		"one node":            {files: map[string]string{"has_cpu": "0\n"}, want: ptr.To(0)},
		"one node with CPUs":  {files: map[string]string{"has_cpu": "1\n"}, want: ptr.To(1)},
		"two nodes":           {files: map[string]string{"has_cpu": "0-1\n"}},
		"no CPUs":             {files: map[string]string{"has_cpu": "\n"}},
		"a kernel without":    {},
		"not a list of nodes": {files: map[string]string{"has_cpu": "all\n"}, err: gpu.ErrCorrupt},
	} {
		t.Run(name, func(t *testing.T) {
			files, links := map[string]string{}, map[string]string{}
			device(files, links, "pci0000:00", "0000:06:00.0", "-1")
			for file, content := range c.files {
				files["sys/devices/system/node/"+file] = content
			}
			got, err := tree(t, files, links).Locate(node("0000:06:00.0"))
			if diff := cmp.Diff(c.want, got.GPUs[0].NUMANode); diff != "" || !errors.Is(err, c.err) {
				t.Errorf("error %v, NUMA node (-want +got):\n%s", err, diff)
			}
		})
	}
}

func TestLocateKeepsTheOtherGPUsOfABrokenOne(t *testing.T) {
	files, links := map[string]string{}, map[string]string{}
	device(files, links, "pci0000:15", "0000:1b:00.0", "0")
	got, err := tree(t, files, links).Locate(node("0000:07:00.0", "0000:1b:00.0"))
	require.Error(t, "Locate", err, gpu.ErrNotFound)
	zero := 0
	want := node("0000:07:00.0", "0000:1b:00.0")
	want.GPUs[1].NUMANode, want.GPUs[1].NearNUMANodes, want.GPUs[1].PCIeRoot = &zero, []int{0}, "pci0000:15"
	require.Same(t, "located node", want, got)
}

// The nodes 2 and 3 are the memory of GPUs. The firmware of the second machine has them
// at the least distance.
func TestNearNUMANodes(t *testing.T) {
	for name, c := range map[string]struct {
		cpus, sockets, distances []string
		want                     []int
	}{
		"the other nodes of the socket": {[]string{"0-3", "4-7", "8-11"}, []string{"0", "0", "1"}, []string{"12 10 12"}, []int{1, 0}},
		"not the memory of GPUs":        {[]string{"0-3", "4-7", "", ""}, []string{"0", "0"}, []string{"12 10 12 12"}, []int{1, 0}},
		"not even as the only others":   {[]string{"", "4-7", "", ""}, []string{"", "0"}, []string{"80 10 80 80"}, []int{1}},
		"without distances":             {[]string{"0-3", "4-7"}, []string{"0", "0"}, nil, []int{1}},
	} {
		t.Run(name, func(t *testing.T) {
			files, links := map[string]string{}, map[string]string{}
			device(files, links, "pci0000:15", "0000:1b:00.0", "1")
			for node, cpus := range c.cpus {
				files[fmt.Sprintf("sys/devices/system/node/node%d/cpulist", node)] = cpus + "\n"
				list, err := cpuset.Parse(cpus)
				must(t, err)
				for _, cpu := range list.List() {
					files[fmt.Sprintf("sys/devices/system/cpu/cpu%d/topology/physical_package_id", cpu)] = c.sockets[node] + "\n"
				}
			}
			for _, row := range c.distances {
				files["sys/devices/system/node/node1/distance"] = row + "\n"
			}
			got, err := tree(t, files, links).Locate(node("0000:1b:00.0"))
			must(t, err)
			require.Same(t, "near NUMA nodes", c.want, got.GPUs[0].NearNUMANodes)
		})
	}
}

// GPUs with the same value are on one switch. GPUs with the same first address are below
// the same outermost one.
func TestPCIeSwitches(t *testing.T) {
	for name, c := range map[string]struct {
		bridges string
		want    string
	}{
		"on the root bus":                   {"", ""},
		"at a root port":                    {"0000:00:01.0/", ""},
		"behind one bridge":                 {"0000:00:01.0/0000:01:00.0/", ""},
		"behind a switch":                   {"0000:00:01.0/0000:01:00.0/0000:02:04.0/", "0000:01:00.0"},
		"behind two switches":               {"0000:00:01.0/0000:01:00.0/0000:02:04.0/0000:03:00.0/0000:04:00.0/", "0000:01:00.0/0000:03:00.0"},
		"behind three, of which two matter": {"0000:00:01.0/0000:01:00.0/0000:02:04.0/0000:03:00.0/0000:04:00.0/0000:05:00.0/0000:06:00.0/", "0000:01:00.0/0000:05:00.0"},
	} {
		t.Run(name, func(t *testing.T) {
			files, links := map[string]string{}, map[string]string{}
			device(files, links, "pci0000:00", "0000:1b:00.0", "0")
			links["sys/bus/pci/devices/0000:1b:00.0"] = "../../../devices/pci0000:00/" + c.bridges + "0000:1b:00.0"
			got, _ := tree(t, files, links).Locate(node("0000:1b:00.0"))
			require.Same(t, "switch", c.want, got.GPUs[0].PCIeSwitch)
		})
	}
}

// Every model's GPUs have their place from the same files as on hardware.
func TestLocateOnModels(t *testing.T) {
	for _, c := range []struct {
		model, address string
		virtual        bool
		want           gpu.GPU
	}{
		{model: "dgx-h100", address: "0000:43:00.0", want: gpu.GPU{
			NUMANode: ptr.To(0), NearNUMANodes: []int{0}, CPUs: "0-55,112-167", PCIeRoot: "pci0000:3d", PCIeSwitch: "0000:3e:00.0",
			NICs: []gpu.NIC{{Address: gpu.PCIAddress{Bus: 0x40}, RDMADevices: []string{"mlx5_3"}}},
		}},
		{model: "dgx-h100", address: "0000:43:00.0", virtual: true, want: gpu.GPU{
			NUMANode: ptr.To(0), NearNUMANodes: []int{0}, CPUs: "0-55,112-167", PCIeRoot: "pci0000:3d", PCIeSwitch: "0000:3e:00.0",
			NICs: []gpu.NIC{{Address: gpu.PCIAddress{Bus: 0x40}, RDMADevices: []string{"mlx5_3"}}},
		}},
		{model: "dgx-a100", address: "0000:bd:00.0", want: gpu.GPU{
			NUMANode: ptr.To(5), NearNUMANodes: []int{5, 4, 6, 7}, CPUs: "80-95,208-223", PCIeRoot: "pci0000:b0", PCIeSwitch: "0000:b1:00.0",
			NICs: []gpu.NIC{
				{Address: gpu.PCIAddress{Bus: 0xba}, RDMADevices: []string{"mlx5_8"}},
				{Address: gpu.PCIAddress{Bus: 0xcc}, RDMADevices: []string{"mlx5_9"}},
			},
		}},
		// The nodes 2 to 5 are the GPUs' own memory.
		{model: "gb200", address: "0018:01:00.0", want: gpu.GPU{NUMANode: ptr.To(1), NearNUMANodes: []int{1}, CPUs: "72-143", PCIeRoot: "pci0018:00"}},
	} {
		t.Run(c.model, func(t *testing.T) {
			model, err := nvmlsim.LoadModel(c.model)
			must(t, err)
			if c.virtual {
				function := model.NICs[1]
				function.Address, function.VirtualOf, function.RDMA, function.Interface = "0000:40:00.1", function.Address, "mlx5_20", "ibp64s0v0"
				model.NICs = append(model.NICs, function)
			}
			sim, err := nvmlsim.Create(t.TempDir(), model)
			must(t, err)
			got, err := sysfs.Root(sim.Root()).Locate(node(c.address))
			must(t, err)
			c.want.Address = got.GPUs[0].Address
			require.Same(t, "located GPU", c.want, got.GPUs[0])
		})
	}
}

// The adapters on a GPU's PCIe switch are the nearest, or else those below its root port. On the
// root bus, as in a virtual machine, none is near.
func TestNearestNetworkAdapters(t *testing.T) {
	const root = "sys/devices/pci0000:15/"
	files, links := map[string]string{}, map[string]string{}
	for address, path := range map[string]string{
		"0000:1b:00.0": root + "0000:15:01.0/0000:17:01.0/", // a GPU
		"0000:2a:00.0": root + "0000:15:03.0/0000:17:02.0/", // another one
		"0000:2b:00.0": root + "0000:15:02.0/",
		"0000:2c:00.0": root + "0000:15:03.0/", // on the switch of the other GPU
		"0000:3b:00.0": "sys/devices/pci0000:37/",
	} {
		files[path+address+"/class"] = "0x020000\n"
		links["sys/bus/pci/devices/"+address] = "../../../" + strings.TrimPrefix(path, "sys/") + address
	}
	for _, gpu := range []string{"0000:15:01.0/0000:17:01.0/0000:1b:00.0", "0000:15:03.0/0000:17:02.0/0000:2a:00.0"} {
		files[root+gpu+"/class"], files[root+gpu+"/numa_node"] = "0x030200\n", "-1\n"
	}
	files[root+"0000:15:03.0/0000:2c:00.0/infiniband/mlx5_2/fw_ver"] = "28\n"
	got, err := tree(t, files, links).Locate(node("0000:1b:00.0", "0000:2a:00.0"))
	must(t, err)
	onSwitch := gpu.NIC{Address: gpu.PCIAddress{Bus: 0x2c}, RDMADevices: []string{"mlx5_2"}}
	want := [][]gpu.NIC{nil, {onSwitch}}
	require.Same(t, "network adapters of each GPU", want, [][]gpu.NIC{got.GPUs[0].NICs, got.GPUs[1].NICs})
}

// deviceNode returns a device node as ls prints it.
func deviceNode(t *testing.T, path string) string {
	t.Helper()
	var stat unix.Stat_t
	if err := unix.Stat(path, &stat); err != nil {
		return "missing"
	}
	return fmt.Sprintf("%o %d:%d %d:%d", stat.Mode, stat.Uid, stat.Gid, unix.Major(stat.Rdev), unix.Minor(stat.Rdev))
}

func TestDeviceNodesOfLoadedModulesAreCreated(t *testing.T) {
	const (
		devices = "Character devices:\n  1 mem\n195 nvidia\n195 nvidiactl\n510 nvidia-uvm\n\nBlock devices:\n"
		params  = "ResmanDebugLevel: 4294967295\nModifyDeviceFiles: 1\nDeviceFileUID: 0\nDeviceFileGID: 44\nDeviceFileMode: 432\n"
		file    = "100644 0:0 0:0"
	)
	if os.Geteuid() != 0 {
		t.Skip("only root creates device nodes")
	}
	for name, c := range map[string]struct {
		devices, params string
		there           []string
		// want are nvidiactl, nvidia3, nvidia-uvm and nvidia-uvm-tools.
		want []string
		errs []string
	}{
		"none exists":       {devices, params, nil, []string{"20660 0:44 195:255", "20660 0:44 195:3", "20660 0:44 510:0", "20660 0:44 510:1"}, nil},
		"an earlier driver": {strings.ReplaceAll(devices, "195 nvidia\n", "195 nvidia-frontend\n"), params, nil, []string{"20660 0:44 195:255", "20660 0:44 195:3", "20660 0:44 510:0", "20660 0:44 510:1"}, nil},
		"some exist":        {devices, params, []string{"nvidiactl", "nvidia3"}, []string{file, file, "20660 0:44 510:0", "20660 0:44 510:1"}, nil},
		"a module that is not loaded": {
			strings.ReplaceAll(devices, "510 nvidia-uvm\n", ""), params, []string{"nvidiactl", "nvidia3"}, []string{file, file, "missing", "missing"},
			[]string{"/dev/nvidia-uvm: not ready: it does not exist, and the agent cannot create it: the kernel module nvidia-uvm is not loaded"},
		},
		"a driver that forbids it": {
			devices, strings.ReplaceAll(params, "ModifyDeviceFiles: 1", "ModifyDeviceFiles: 0"), []string{"nvidiactl", "nvidia-uvm"}, []string{file, "missing", file, "missing"},
			[]string{"/dev/nvidia3: not ready", "NVreg_ModifyDeviceFiles"},
		},
		"a folder in place of a node": {
			devices, params, []string{"nvidiactl", "nvidia3", "nvidia-uvm/x"}, []string{file, file, "40755 0:0 0:0", "20660 0:44 510:1"}, []string{"/dev/nvidia-uvm: not ready: it is a folder"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			files := map[string]string{"proc/devices": c.devices, "proc/driver/nvidia/params": c.params}
			for _, name := range c.there {
				files["dev/"+name] = ""
			}
			root := tree(t, files, nil)
			err := root.EnsureDeviceNodes(root, gpu.GPU{Minor: 3})
			if (err != nil) != (c.errs != nil) || err != nil && !errors.Is(err, gpu.ErrNotReady) {
				t.Errorf("error %v, want %q", err, c.errs)
			}
			for _, text := range c.errs {
				if err != nil && !strings.Contains(err.Error(), text) {
					t.Errorf("error %v, want %q in it", err, text)
				}
			}
			var got []string
			for _, name := range []string{"nvidiactl", "nvidia3", "nvidia-uvm", "nvidia-uvm-tools"} {
				got = append(got, deviceNode(t, filepath.Join(string(root), "dev", name)))
			}
			require.Same(t, "nodes", c.want, got)
		})
	}
}

func TestCapabilityNodesAreCreated(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root creates device nodes")
	}
	const mig = "proc/driver/nvidia/capabilities/gpu2/mig/gi5/"
	root := tree(t, map[string]string{
		"proc/devices": "235 nvidia-caps\n", "proc/driver/nvidia/params": "ModifyDeviceFiles: 1\n",
		mig + "access": "DeviceFileMinor: 300\nDeviceFileMode: 292\n", mig + "ci0/access": "DeviceFileMinor: 301\nDeviceFileMode: 256\n",
	}, nil)
	nodes, err := root.CapabilityNodes(gpu.GPU{Minor: 2}, 5, 0)
	must(t, err)
	for i, node := range nodes {
		nodes[i] = node + " " + deviceNode(t, string(root)+node)
	}
	require.Same(t, "nodes", []string{"/dev/nvidia-caps/nvidia-cap300 20444 0:0 235:300", "/dev/nvidia-caps/nvidia-cap301 20400 0:0 235:301"}, nodes)
}

func TestBootID(t *testing.T) {
	const path, id = "proc/sys/kernel/random/boot_id", "7c2e4d3a-52a3-4b33-b4a7-0b7c3f6c0f5e"
	got, err := tree(t, map[string]string{path: id + "\n"}, nil).BootID()
	if err != nil || got != id {
		t.Errorf("boot ID %q and error %v, want %q", got, err, id)
	}
	_, err = tree(t, map[string]string{path: "\n"}, nil).BootID()
	require.Error(t, "an empty boot ID", err, gpu.ErrCorrupt)
	_, err = tree(t, nil, nil).BootID()
	require.Error(t, "a missing boot ID", err, os.ErrNotExist)
}

func TestMonitorNodes(t *testing.T) {
	const monitor, table = "proc/driver/nvidia/capabilities/mig/monitor", "proc/driver/nvidia-caps/mig-minors"
	for name, c := range map[string]struct {
		files map[string]string
		want  []string
		err   error
	}{
		"as the driver has it": {
			files: map[string]string{monitor: "DeviceFileMinor: 2\nDeviceFileMode: 292\n", "dev/nvidia-caps/nvidia-cap2": ""},
			want:  []string{"/dev/nvidia-caps/nvidia-cap2"},
		},
		"as the table of all minors has it": {
			files: map[string]string{table: "config 1\nmonitor 2\n", "dev/nvidia-caps/nvidia-cap2": ""},
			want:  []string{"/dev/nvidia-caps/nvidia-cap2"},
		},
		"a driver without MIG":         {},
		"a node that does not exist":   {files: map[string]string{monitor: "DeviceFileMinor: 2\n"}},
		"a minor that is not a number": {files: map[string]string{monitor: "DeviceFileMinor: two\n"}, err: gpu.ErrCorrupt},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := tree(t, c.files, nil).MonitorNodes()
			require.Error(t, "MonitorNodes", err, c.err)
			require.Same(t, "nodes", c.want, got)
		})
	}
}

func TestCapabilityNodes(t *testing.T) {
	access := func(minor string) string {
		return "DeviceFileMinor: " + minor + "\nDeviceFileMode: 292\nDeviceFileModify: 1\n"
	}
	const mig = "proc/driver/nvidia/capabilities/gpu2/mig/"
	for name, c := range map[string]struct {
		files map[string]string
		want  []string
		err   error
	}{
		"as the driver lists the instances": {
			files: map[string]string{mig + "gi5/access": access("300"), mig + "gi5/ci0/access": access("301"), "dev/nvidia-caps/nvidia-cap300": "", "dev/nvidia-caps/nvidia-cap301": ""},
			want:  []string{"/dev/nvidia-caps/nvidia-cap300", "/dev/nvidia-caps/nvidia-cap301"},
		},
		"as the table of all minors has it": {
			files: map[string]string{"proc/driver/nvidia-caps/mig-minors": "config 1\ngpu2/gi5/access 30\ngpu2/gi5/ci0/access 31\ngpu2/gi5/ci1/access 32\n", "dev/nvidia-caps/nvidia-cap30": "", "dev/nvidia-caps/nvidia-cap31": ""},
			want:  []string{"/dev/nvidia-caps/nvidia-cap30", "/dev/nvidia-caps/nvidia-cap31"},
		},
		"an instance that is not there": {err: gpu.ErrNotFound},
		"a minor that is not a number": {
			files: map[string]string{mig + "gi5/access": access("many")}, err: gpu.ErrCorrupt,
		},
		"a node that is missing": {
			files: map[string]string{mig + "gi5/access": access("300"), mig + "gi5/ci0/access": access("301"), "dev/nvidia-caps/nvidia-cap300": ""}, err: gpu.ErrNotFound,
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := tree(t, c.files, nil).CapabilityNodes(gpu.GPU{Minor: 2}, 5, 0)
			require.Error(t, "CapabilityNodes", err, c.err)
			require.Same(t, "nodes", c.want, got)
		})
	}
}

func TestAnotherLoadOfTheDriverHasAnotherID(t *testing.T) {
	root := tree(t, map[string]string{"sys/module/nvidia/version": "570.86.15\n"}, nil)
	first, err := root.DriverLoad()
	if err != nil || first == "" {
		t.Fatalf("load %q, %v", first, err)
	}
	module := filepath.Join(string(root), "sys/module/nvidia")
	must(t, os.WriteFile(filepath.Join(module, "refcnt"), []byte("7\n"), 0o644))
	if again, err := root.DriverLoad(); again != first || err != nil {
		t.Errorf("load %q, %v of the same module, want %q", again, err, first)
	}
	// The old folder stays elsewhere, so that its inode is not given to the new one.
	must(t, os.Rename(module, module+"-unloaded"))
	_, err = root.DriverLoad()
	require.Error(t, "without the module", err, gpu.ErrNotReady)
	must(t, os.Mkdir(module, 0o755))
	if second, err := root.DriverLoad(); second == first || err != nil {
		t.Errorf("load %q, %v of a module that was loaded anew", second, err)
	}
}

var must = require.NoError
