package nvmlsim

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"k8s.io/utils/cpuset"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// sys makes the part of sysfs that tells where GPUs, CPUs and memory are.
func (t tree) sys() error {
	if err := t.write("sys/module/nvidia/version", t.node.model.DriverVersion+"\n"); err != nil {
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
	bridges := map[string]bool{}
	for _, s := range t.node.gpus {
		if err := t.sysGPU(s, bridges); err != nil {
			return err
		}
	}
	return nil
}

// sysGPU makes the PCI devices from the root complex down to the GPU. Bridges
// that are there already are those of an earlier GPU.
func (t tree) sysGPU(s *spec, bridges map[string]bool) error {
	dir := filepath.Join("sys/devices", s.pcieRoot)
	for _, text := range s.gpu.Bridges {
		address, _ := gpu.ParsePCIAddress(text)
		dir = filepath.Join(dir, address.String())
		if bridges[dir] {
			continue
		}
		bridges[dir] = true
		// Class 0604 is a PCI bridge.
		if err := t.pciDevice(dir, s, "0x8086", "0x0000", "0x060400"); err != nil {
			return err
		}
	}
	dir = filepath.Join(dir, s.address.String())
	vendor, product := fmt.Sprintf("0x%04x", s.pciDevice&0xffff), fmt.Sprintf("0x%04x", s.pciDevice>>16)
	// Class 0302 is a 3D controller.
	if err := t.pciDevice(dir, s, vendor, product, "0x030200"); err != nil {
		return err
	}
	up := strings.Repeat("../", strings.Count(dir, "/"))
	if err := t.link(filepath.Join(dir, "driver"), up+"bus/pci/drivers/nvidia"); err != nil {
		return err
	}
	return t.link(filepath.Join("sys/bus/pci/drivers/nvidia", s.address.String()), "../../../../"+strings.TrimPrefix(dir, "sys/"))
}

func (t tree) pciDevice(dir string, s *spec, vendor, product, class string) error {
	numa, cpus := -1, cpuset.New()
	if s.gpu.NUMANode != nil {
		numa = *s.gpu.NUMANode
		cpus, _ = parseCPUs(t.node.model.NUMANodes[numa].CPUs)
	}
	for name, value := range map[string]string{
		"vendor": vendor, "device": product, "class": class,
		"numa_node": strconv.Itoa(numa), "local_cpulist": cpus.String(),
	} {
		if err := t.write(filepath.Join(dir, name), value+"\n"); err != nil {
			return err
		}
	}
	return t.link(filepath.Join("sys/bus/pci/devices", filepath.Base(dir)), "../../../"+strings.TrimPrefix(dir, "sys/"))
}

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
		for _, cpu := range cpus.List() {
			dir := fmt.Sprintf("sys/devices/system/cpu/cpu%d", cpu)
			if err := t.write(filepath.Join(dir, "topology/physical_package_id"), strconv.Itoa(n.Socket)+"\n"); err != nil {
				return err
			}
			if err := t.link(filepath.Join(dir, fmt.Sprintf("node%d", i)), fmt.Sprintf("../../node/node%d", i)); err != nil {
				return err
			}
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

// distances gives the row of one NUMA node in the firmware's distance table:
// near is the own socket, far another, and farthest the memory of GPUs.
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
