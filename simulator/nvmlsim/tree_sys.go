// SPDX-License-Identifier: Apache-2.0

package nvmlsim

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"k8s.io/utils/cpuset"
)

// sys creates the part of sysfs with the locality of GPUs, CPUs and memory.
func (t tree) sys() error {
	if err := t.write("sys/module/nvidia/version", t.node.model.moduleVersion()+"\n"); err != nil {
		return err
	}
	for _, dir := range []string{"sys/bus/pci/devices", "sys/bus/pci/drivers/nvidia", "sys/devices/system/node", "sys/devices/system/cpu"} {
		if err := t.mkdir(dir); err != nil {
			return err
		}
	}
	if err := t.sysNUMA(); err != nil {
		return err
	}
	var capacity strings.Builder
	for _, s := range t.node.gpus {
		if err := t.sysGPU(s); err != nil {
			return err
		}
		fmt.Fprintf(&capacity, "%s %d\n", s.address, s.kind.MemoryMiB<<20)
	}
	if t.node.model.MemoryLimits == MemoryLimitsDmem {
		// Its existence says that the kernel has the controller dmem. The names of the driver's
		// regions are not known.
		if err := t.write("sys/fs/cgroup/dmem.capacity", capacity.String()); err != nil {
			return err
		}
	}
	for _, n := range t.node.model.NICs {
		if err := t.sysNIC(n); err != nil {
			return err
		}
	}
	return nil
}

// sysGPU makes the PCI device of a GPU.
func (t tree) sysGPU(s *spec) error {
	dir, err := t.sysPCI(pciDevice{
		address: s.address, root: s.pcieRoot, bridges: s.gpu.Bridges, numa: s.gpu.NUMANode,
		class: "0x030200", // a 3D controller
		id:    s.pciDevice,
	})
	if err != nil {
		return err
	}
	speed := linkSpeeds[s.kind.Architecture]
	// Programs of NVIDIA look for virtual GPUs in the configuration space, and for the
	// addresses of the registers and of the memory in the first two regions.
	regions := fmt.Sprintf("0x%016x 0x%016x 0x%016x\n", 0xd0000000, 0xd0ffffff, 0x40200) +
		fmt.Sprintf("0x%016x 0x%016x 0x%016x\n", 0x380000000000, 0x380000000000+max(s.kind.BAR1MiB, 256)<<20-1, 0x14220c) +
		strings.Repeat(fmt.Sprintf("0x%016x 0x%016x 0x%016x\n", 0, 0, 0), 5)
	return errors.Join(
		t.write(filepath.Join(dir, "config"), string(make([]byte, configSpace))), t.write(filepath.Join(dir, "resource"), regions),
		t.write(filepath.Join(dir, "current_link_width"), "16\n"), t.write(filepath.Join(dir, "max_link_width"), "16\n"),
		t.write(filepath.Join(dir, "current_link_speed"), speed+"\n"), t.write(filepath.Join(dir, "max_link_speed"), speed+"\n"),
		t.link(filepath.Join(dir, "driver"), up(dir)+"bus/pci/drivers/nvidia"),
		t.link(filepath.Join("sys/bus/pci/drivers/nvidia", s.address.String()), "../../../../"+below(dir)),
	)
}

// linkSpeeds are the speeds of a PCIe lane of each architecture.
var linkSpeeds = map[string]string{
	"Volta": "8.0 GT/s PCIe", "Turing": "8.0 GT/s PCIe", "Ampere": "16.0 GT/s PCIe", "Ada Lovelace": "16.0 GT/s PCIe",
	"Hopper": "32.0 GT/s PCIe", "Blackwell": "32.0 GT/s PCIe",
}

// connectX7 is the PCI device of a network adapter, as in NVML's PCI information.
const connectX7 = 0x1021_15b3

// sysNIC makes the PCI device of a network adapter, its RDMA device and its interface.
func (t tree) sysNIC(n NIC) error {
	address, _ := parsePCIAddress(n.Address)
	class := "0x020700" // an InfiniBand controller
	if n.Ethernet {
		class = "0x020000"
	}
	root := n.PCIeRoot
	if root == "" {
		root = ownRoot(address)
	}
	dir, err := t.sysPCI(pciDevice{address: address, root: root, bridges: n.Bridges, numa: n.NUMANode, class: class, id: connectX7})
	errs := []error{err}
	for in, name := range map[string]string{"infiniband": n.RDMA, "net": n.Interface} {
		if name != "" {
			device := filepath.Join(dir, in, name)
			errs = append(errs, t.mkdir(device), t.link(filepath.Join(device, "device"), "../../../"+address.String()),
				t.link(filepath.Join("sys/class", in, name), "../../"+below(device)))
		}
	}
	if n.VirtualOf != "" {
		errs = append(errs, t.link(filepath.Join(dir, "physfn"), "../"+n.VirtualOf))
	}
	return errors.Join(errs...)
}

// configSpace is the size of the configuration space of a PCIe device.
const configSpace = 4096

// pciDevice is a device below its root complex and bridges.
type pciDevice struct {
	address pciAddress
	root    string
	bridges []string
	numa    *int
	class   string
	// id is the device in the upper and the vendor in the lower 16 bits.
	id uint32
}

// sysPCI makes a PCI device and returns its folder. Of the root complex there is no more
// than the path, and of a bridge a configuration space without extended capabilities.
func (t tree) sysPCI(d pciDevice) (string, error) {
	dir := filepath.Join("sys/devices", d.root)
	for _, text := range d.bridges {
		bridge, _ := parsePCIAddress(text)
		dir = filepath.Join(dir, bridge.String())
		if err := t.write(filepath.Join(dir, "config"), string(make([]byte, configSpace))); err != nil {
			return "", err
		}
	}
	dir = filepath.Join(dir, d.address.String())
	numa, cpus := -1, cpuset.New()
	if d.numa != nil {
		numa = *d.numa
		cpus, _ = parseCPUs(t.node.model.NUMANodes[numa].CPUs)
	}
	for name, value := range map[string]string{
		"vendor":        fmt.Sprintf("0x%04x", d.id&0xffff),
		"device":        fmt.Sprintf("0x%04x", d.id>>16),
		"class":         d.class,
		"numa_node":     strconv.Itoa(numa),
		"local_cpulist": cpus.String(),
	} {
		if err := t.write(filepath.Join(dir, name), value+"\n"); err != nil {
			return "", err
		}
	}
	return dir, t.link(filepath.Join("sys/bus/pci/devices", d.address.String()), "../../../"+below(dir))
}

// up returns the way from a folder of sys to sys, and below the way back.
func up(dir string) string    { return strings.Repeat("../", strings.Count(dir, "/")) }
func below(dir string) string { return strings.TrimPrefix(dir, "sys/") }

// sysNUMA makes the NUMA nodes with their CPUs and distances, and the CPUs
// with their sockets.
func (t tree) sysNUMA() error {
	nodes := t.node.model.NUMANodes
	var all, withCPU []int
	online := cpuset.New()
	for i, n := range nodes {
		all = append(all, i)
		cpus, _ := parseCPUs(n.CPUs)
		online = online.Union(cpus)
		if !cpus.IsEmpty() {
			withCPU = append(withCPU, i)
		}
		dir := fmt.Sprintf("sys/devices/system/node/node%d", i)
		if err := t.write(filepath.Join(dir, "cpulist"), cpus.String()+"\n"); err != nil {
			return err
		}
		if err := t.write(filepath.Join(dir, "distance"), distances(nodes, i)); err != nil {
			return err
		}
		if err := t.sysCPUs(i, n.Socket, cpus.List()); err != nil {
			return err
		}
	}
	for path, list := range map[string]string{
		"sys/devices/system/node/online":  cpuset.New(all...).String(),
		"sys/devices/system/node/has_cpu": cpuset.New(withCPU...).String(),
		"sys/devices/system/cpu/online":   online.String(),
	} {
		if err := t.write(path, list+"\n"); err != nil {
			return err
		}
	}
	return nil
}

// sysCPUs creates the CPUs of one NUMA node. Their files are the same, so they are
// links to one directory. The links share an inode: a node has hundreds of CPUs, and
// inodes of their own would take most of the time of making it.
func (t tree) sysCPUs(node, socket int, cpus []int) error {
	const dir = "sys/devices/system/cpu"
	shared := fmt.Sprintf("of-node%d", node)
	if err := t.write(filepath.Join(dir, shared, "topology/physical_package_id"), strconv.Itoa(socket)+"\n"); err != nil {
		return err
	}
	if err := t.link(filepath.Join(dir, shared, fmt.Sprintf("node%d", node)), fmt.Sprintf("../../node/node%d", node)); err != nil {
		return err
	}
	for i, cpu := range cpus {
		link := fmt.Sprintf("%s/cpu%d", dir, cpu)
		var err error
		if i == 0 {
			err = t.link(link, shared)
		} else {
			err = os.Link(t.path(fmt.Sprintf("%s/cpu%d", dir, cpus[0])), t.path(link))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// distances returns the row of one NUMA node in the firmware's distance table: nodes
// of the same socket are near, another socket is far, and GPU memory is farthest.
func distances(nodes []NUMANode, from int) string {
	row := make([]string, len(nodes))
	for to, n := range nodes {
		distance := 32
		switch {
		case to == from:
			distance = 10
		case n.CPUs == "" || nodes[from].CPUs == "":
			distance = 80
		case n.Socket == nodes[from].Socket:
			distance = 12
		}
		row[to] = strconv.Itoa(distance)
	}
	return strings.Join(row, " ") + "\n"
}
