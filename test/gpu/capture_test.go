// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/google/uuid"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/simulator/nvmlsim"
)

// capture returns the machine as a model of the simulator. The sources are the
// snapshot, and facts that only the simulator needs. It omits facts that cannot be
// read, and UUIDs and serial numbers on purpose. The architecture decides whether a
// change of the MIG mode needs a reset.
func (m *machine) capture(name string, node gpu.Node) (*nvmlsim.Model, error) {
	model := &nvmlsim.Model{
		Name:          name,
		DriverVersion: node.DriverVersion,
		CUDAVersion:   version(node.CUDADriverVersion),
		Platform:      m.platform,
		Kinds:         map[string]nvmlsim.Kind{},
	}
	var err error
	if model.NUMANodes, err = captureNUMA(m.root); err != nil {
		return nil, err
	}
	byIndex := slices.SortedFunc(slices.Values(node.GPUs), func(a, b gpu.GPU) int { return cmp.Compare(a.Index, b.Index) })
	for i, g := range byIndex {
		device, ret := m.lib.DeviceGetHandleByUUID(g.UUID)
		if ret != gonvml.SUCCESS {
			return nil, fmt.Errorf("capture %s: get its handle: %w", g.Address, ret)
		}
		raw := rawGPU{lib: m.lib, device: device, gpu: g}
		if fabric := raw.fabric(); fabric != nil {
			model.Fabric = fabric
		}
		kind := raw.kind()
		if kind.Refusals, err = raw.refusals(); err != nil {
			return nil, err
		}
		model.MemoryLimits = raw.memoryLimits(m.root)
		captured := nvmlsim.GPU{
			Kind:           addKind(model.Kinds, kind),
			Address:        g.Address.String(),
			NUMANode:       kernelNUMANode(m.root, g),
			MemoryNUMANode: raw.memoryNUMANode(),
			PCIeRoot:       g.PCIeRoot,
			Bridges:        captureBridges(m.root, g.Address),
			Links:          captureLinks(g.Links),
			MIGMode:        g.MIG.Enabled,
			Recovery:       recovery(g),
		}
		if g.Minor != i {
			captured.Minor = &g.Minor
		}
		model.GPUs = append(model.GPUs, captured)
		model.NICs = addNICs(model.NICs, m.root, g)
	}
	shareLinks(model)
	return model, nil
}

// addNICs adds the nearest network adapters of a GPU, which are below its PCIe root. Of
// several RDMA devices of one adapter it keeps the first.
func addNICs(nics []nvmlsim.NIC, root string, g gpu.GPU) []nvmlsim.NIC {
	for _, near := range g.NICs {
		nic := nvmlsim.NIC{Address: near.Address.String(), NUMANode: g.NUMANode, PCIeRoot: g.PCIeRoot, Bridges: captureBridges(root, near.Address)}
		if len(near.RDMADevices) > 0 {
			nic.RDMA = near.RDMADevices[0]
		}
		if !slices.ContainsFunc(nics, func(other nvmlsim.NIC) bool { return other.Address == nic.Address }) {
			nics = append(nics, nic)
		}
	}
	return nics
}

func version(v gpu.Version) string { return fmt.Sprintf("%d.%d", v.Major, v.Minor) }

// addKind files a kind under a name made from its product's, and returns that name.
// The same kind is filed once.
func addKind(kinds map[string]nvmlsim.Kind, kind nvmlsim.Kind) string {
	base := slug(kind.Name)
	name := base
	for n := 2; ; n++ {
		other, taken := kinds[name]
		if !taken || reflect.DeepEqual(other, kind) {
			kinds[name] = kind
			return name
		}
		name = fmt.Sprintf("%s-%d", base, n)
	}
}

// slug converts the name of a product: "NVIDIA H100 80GB HBM3" becomes
// "h100-80gb-hbm3".
func slug(product string) string {
	s := strings.ToLower(product)
	for _, prefix := range []string{"nvidia ", "tesla "} {
		s = strings.TrimPrefix(s, prefix)
	}
	return strings.Trim(regexp.MustCompile(`[^a-z0-9]+`).ReplaceAllString(s, "-"), "-")
}

// shareLinks moves links that all GPUs of a kind have alike to the kind.
func shareLinks(model *nvmlsim.Model) {
	for name, kind := range model.Kinds {
		var of []*nvmlsim.GPU
		for i := range model.GPUs {
			if model.GPUs[i].Kind == name {
				of = append(of, &model.GPUs[i])
			}
		}
		if slices.ContainsFunc(of, func(g *nvmlsim.GPU) bool { return !reflect.DeepEqual(g.Links, of[0].Links) }) {
			continue
		}
		kind.Links = of[0].Links
		model.Kinds[name] = kind
		for _, g := range of {
			g.Links = nil
		}
	}
}

// captureLinks folds links into runs with the same far end. A model numbers
// links without gaps, so a number that the GPU does not have is a link that is
// down and leads nowhere.
func captureLinks(links []gpu.Link) []nvmlsim.Links {
	var runs []nvmlsim.Links
	var ranges [][2]int
	add := func(number int, l nvmlsim.Links) {
		if n := len(runs); n > 0 && runs[n-1] == l {
			ranges[n-1][1] = number
			return
		}
		runs, ranges = append(runs, l), append(ranges, [2]int{number, number})
	}
	next := 0
	for _, l := range links {
		for ; next < l.Number; next++ {
			add(next, nvmlsim.Links{Down: true})
		}
		run := nvmlsim.Links{Remote: string(l.Remote), Down: !l.Active}
		if l.RemoteAddress != nil {
			run.Address = l.RemoteAddress.String()
		}
		add(l.Number, run)
		next = l.Number + 1
	}
	for i, r := range ranges {
		runs[i].Numbers = strconv.Itoa(r[0])
		if r[1] > r[0] {
			runs[i].Numbers = fmt.Sprintf("%d-%d", r[0], r[1])
		}
	}
	return runs
}

// kernelNUMANode returns the NUMA node of a GPU if the kernel knows it. The adapter concludes it on a
// machine with one node, and a model states facts.
func kernelNUMANode(root string, g gpu.GPU) *int {
	data, err := os.ReadFile(filepath.Join(root, "sys", "bus", "pci", "devices", g.Address.String(), "numa_node"))
	if err != nil || strings.TrimSpace(string(data)) == "-1" {
		return nil
	}
	return g.NUMANode
}

// captureNUMA reads the NUMA nodes of a machine below root. They number from 0 on
// the machines that have GPUs.
func captureNUMA(root string) ([]nvmlsim.NUMANode, error) {
	var nodes []nvmlsim.NUMANode
	for {
		dir := filepath.Join(root, "sys", "devices", "system", "node", fmt.Sprintf("node%d", len(nodes)))
		cpus, err := os.ReadFile(filepath.Join(dir, "cpulist"))
		if os.IsNotExist(err) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("capture the NUMA nodes: %w", err)
		}
		node := nvmlsim.NUMANode{CPUs: strings.TrimSpace(string(cpus))}
		if first, _, _ := strings.Cut(strings.ReplaceAll(node.CPUs, "-", ","), ","); first != "" {
			id, err := os.ReadFile(filepath.Join(root, "sys", "devices", "system", "cpu", "cpu"+first, "topology", "physical_package_id"))
			if err != nil {
				return nil, fmt.Errorf("capture the NUMA nodes: %w", err)
			}
			if node.Socket, err = strconv.Atoi(strings.TrimSpace(string(id))); err != nil {
				return nil, fmt.Errorf("capture the NUMA nodes: %w", err)
			}
		}
		nodes = append(nodes, node)
	}
	if len(nodes) == 0 {
		return nil, fmt.Errorf("capture the NUMA nodes: no node0 in %s", filepath.Join(root, "sys", "devices", "system", "node"))
	}
	return nodes, nil
}

// captureBridges lists the bridges between the root complex and a device, from
// its path in sysfs.
func captureBridges(root string, address gpu.PCIAddress) []string {
	path, err := os.Readlink(filepath.Join(root, "sys", "bus", "pci", "devices", address.String()))
	if err != nil {
		return nil
	}
	var bridges []string
	for _, element := range strings.Split(filepath.Dir(path), "/") {
		if _, err := gpu.ParsePCIAddress(element); err == nil {
			bridges = append(bridges, element)
		}
	}
	return bridges
}

// rawGPU reads what a snapshot leaves out. A fact that the GPU does not tell
// stays at zero, which a model takes for absent.
type rawGPU struct {
	lib    gonvml.Interface
	device gonvml.Device
	gpu    gpu.GPU
}

func (r rawGPU) has(symbol string) bool { return r.lib.Extensions().LookupSymbol(symbol) == nil }

func (r rawGPU) kind() nvmlsim.Kind {
	g := r.gpu
	kind := nvmlsim.Kind{
		Name:              g.ProductName,
		Brand:             g.Brand,
		Architecture:      g.Architecture,
		ComputeCapability: version(g.ComputeCapability),
		MemoryMiB:         g.MemoryBytes >> 20,
		Multiprocessors:   g.Multiprocessors,
		ECC:               g.ECCEnabled,
		Persistence:       g.PersistenceMode,
		AddressingMode:    g.AddressingMode,
		ComputeMode:       string(g.ComputeMode),
		MIG:               r.mig(),
	}
	if r.has("nvmlDeviceGetNumGpuCores") {
		if cores, ret := r.device.GetNumGpuCores(); ret == gonvml.SUCCESS {
			kind.Cores = cores
		}
	}
	if clock, ret := r.device.GetMaxClockInfo(gonvml.CLOCK_SM); ret == gonvml.SUCCESS {
		kind.SMClockMHz = clock
	}
	if r.has("nvmlDeviceGetMemoryInfo_v2") {
		if memory, ret := r.device.GetMemoryInfo_v2(); ret == gonvml.SUCCESS {
			kind.ReservedMiB = memory.Reserved >> 20
		}
	}
	if bar1, ret := r.device.GetBAR1MemoryInfo(); ret == gonvml.SUCCESS {
		kind.BAR1MiB = bar1.Bar1Total >> 20
	}
	if pci, ret := r.device.GetPciInfo(); ret == gonvml.SUCCESS {
		kind.PCIDevice = fmt.Sprintf("0x%08x", pci.PciDeviceId)
		if pci.PciSubSystemId != 0 {
			kind.PCISubsystem = fmt.Sprintf("0x%08x", pci.PciSubSystemId)
		}
	}
	if !g.NVLinkVersion.IsZero() {
		kind.NVLinkVersion = version(g.NVLinkVersion)
	}
	return kind
}

// mig returns the MIG table. It returns nil if NVML reports no placements, as for a
// process that is not root.
func (r rawGPU) mig() *nvmlsim.MIG {
	if !r.gpu.MIG.Capable {
		return nil
	}
	mig := &nvmlsim.MIG{NeedsReset: r.gpu.Architecture == "Ampere"}
	for _, p := range r.gpu.MIG.Profiles {
		info, ret := r.device.GetGpuInstanceProfileInfo(p.ID)
		if ret != gonvml.SUCCESS || len(p.Placements) == 0 {
			continue
		}
		profile := nvmlsim.MIGProfile{
			Name:            p.Profile.String(),
			Profile:         p.ID,
			ID:              int(info.Id),
			MemoryMiB:       info.MemorySizeMB,
			Multiprocessors: p.Multiprocessors,
			CopyEngines:     p.CopyEngines,
			Decoders:        p.Decoders,
			Encoders:        p.Encoders,
			JPEGs:           p.JPEGs,
			OFAs:            p.OFAs,
			P2P:             info.IsP2pSupported != 0,
			Max:             p.MaxInstances,
			Size:            p.Placements[0].Size,
		}
		for _, at := range p.Placements {
			profile.Starts = append(profile.Starts, at.Start)
			mig.MemorySlices = max(mig.MemorySlices, at.Start+at.Size)
		}
		mig.ComputeSlices = max(mig.ComputeSlices, p.ComputeSlices)
		mig.Profiles = append(mig.Profiles, profile)
	}
	if len(mig.Profiles) == 0 {
		return nil
	}
	return mig
}

// fabric returns the GPU's fabric. Unlike a snapshot, it also returns the fabric of a
// single machine, which has no cluster UUID.
func (r rawGPU) fabric() *nvmlsim.Fabric {
	if !r.has("nvmlDeviceGetGpuFabricInfo") {
		return nil
	}
	info, ret := r.device.GetGpuFabricInfo()
	if ret != gonvml.SUCCESS || info.State != gonvml.GPU_FABRIC_STATE_COMPLETED {
		return nil
	}
	return &nvmlsim.Fabric{ClusterUUID: uuid.UUID(info.ClusterUuid).String(), CliqueID: info.CliqueId}
}

func (r rawGPU) memoryNUMANode() *int {
	if !r.has("nvmlDeviceGetNumaNodeId") {
		return nil
	}
	if node, ret := r.device.GetNumaNodeId(); ret == gonvml.SUCCESS {
		return &node
	}
	return nil
}
