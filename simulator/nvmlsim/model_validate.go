// SPDX-License-Identifier: Apache-2.0

package nvmlsim

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"k8s.io/utils/cpuset"

	"github.com/gpu-dra/gpu-dra-driver/simulator/simerr"
)

// maxGPUs is what the driver's MIG capability minors leave room for.
const maxGPUs = 32

var (
	driverVersion = regexp.MustCompile(`^[0-9]+(\.[0-9]+){1,2}$`)
	rootComplex   = regexp.MustCompile(`^pci[0-9a-f]{4,8}:[0-9a-f]{2}$`)
	gpuUUID       = regexp.MustCompile(`^GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)
	plainUUID     = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)
	pciID         = regexp.MustCompile(`^0x[0-9a-fA-F]{8}$`)
	// NVIDIA's name of a MIG profile. The suffix is about media engines or graphics.
	profileName = regexp.MustCompile(`^([1-9][0-9]?)g\.[1-9][0-9]{0,3}gb(\+me\.all|\+me|\+gfx|-me)?$`)
	fileName    = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)
)

// problems collects the errors in a model, each with its field.
type problems []error

func (p *problems) add(field, format string, args ...any) {
	*p = append(*p, fmt.Errorf("%s: %w: %s", field, simerr.ErrInvalid, fmt.Sprintf(format, args...)))
}

// Validate checks that the model describes a machine that can exist. The
// error joins everything that is wrong, each part with the path of its field
// ("gpus[3].numaNode: ...") and wrapping [simerr.ErrInvalid].
func (m *Model) Validate() error {
	var p problems
	if !fileName.MatchString(m.Name) {
		p.add("name", "%q is not a name of letters, digits, dots and dashes", m.Name)
	}
	if !driverVersion.MatchString(m.DriverVersion) {
		p.add("driverVersion", "%q is not a version such as 570.124.06", m.DriverVersion)
	}
	if m.ModuleVersion != "" && !driverVersion.MatchString(m.ModuleVersion) {
		p.add("moduleVersion", "%q is not a version such as 570.124.06", m.ModuleVersion)
	}
	if _, err := parseVersion(m.CUDAVersion); err != nil {
		p.add("cudaVersion", "%v", err)
	}
	if _, ok := libraryDirs[m.Platform]; !ok {
		p.add("platform", "%q is neither x86_64 nor aarch64", m.Platform)
	}
	m.validateNUMA(&p)
	if m.Fabric != nil && !plainUUID.MatchString(m.Fabric.ClusterUUID) {
		p.add("fabric.clusterUUID", "%q is not a UUID in lower case", m.Fabric.ClusterUUID)
	}
	m.validateMemoryLimits(&p)
	if len(m.Kinds) == 0 {
		p.add("kinds", "a node needs at least one kind of GPU, even one without GPUs")
	}
	for _, name := range slices.Sorted(maps.Keys(m.Kinds)) {
		kind := m.Kinds[name]
		kind.validate("kinds."+name, &p)
	}
	m.validateGPUs(&p)
	return errors.Join(p...)
}

func (m *Model) validateMemoryLimits(p *problems) {
	switch m.MemoryLimits {
	case "":
	case MemoryLimitsDmem, MemoryLimitsMisc, MemoryLimitsOff:
		if release(m.DriverVersion) < memoryLimitsRelease {
			p.add("memoryLimits", "the driver %s is older than release %d, the first with memory limits", m.DriverVersion, memoryLimitsRelease)
		}
	default:
		p.add("memoryLimits", "%q is none of %s, %s, %s", m.MemoryLimits, MemoryLimitsDmem, MemoryLimitsMisc, MemoryLimitsOff)
	}
}

func (m *Model) validateNUMA(p *problems) {
	if len(m.NUMANodes) == 0 {
		p.add("numaNodes", "a machine has at least one NUMA node")
	}
	var seen cpuset.CPUSet
	for i, node := range m.NUMANodes {
		field := fmt.Sprintf("numaNodes[%d]", i)
		cpus, err := parseCPUs(node.CPUs)
		if err != nil {
			p.add(field+".cpus", "%v", err)
			continue
		}
		if both := seen.Intersection(cpus); !both.IsEmpty() {
			p.add(field+".cpus", "CPUs %s belong to an earlier node already", both)
		}
		seen = seen.Union(cpus)
		if node.Socket < 0 {
			p.add(field+".socket", "%d is negative", node.Socket)
		}
	}
}

func (k *Kind) validate(field string, p *problems) {
	if k.Name == "" {
		p.add(field+".name", "a product name is needed")
	}
	if _, ok := brands[k.Brand]; !ok {
		p.add(field+".brand", "%q is none of %s", k.Brand, known(brands))
	}
	if _, ok := architectures[k.Architecture]; !ok {
		p.add(field+".architecture", "%q is none of %s", k.Architecture, known(architectures))
	}
	if _, err := parseVersion(k.ComputeCapability); err != nil {
		p.add(field+".computeCapability", "%v", err)
	}
	if k.MemoryMiB == 0 || k.MemoryMiB > 1<<30 {
		p.add(field+".memoryMiB", "%d is not the memory of a GPU", k.MemoryMiB)
	}
	if k.ReservedMiB > k.MemoryMiB {
		p.add(field+".reservedMiB", "%d is more than the memory, %d", k.ReservedMiB, k.MemoryMiB)
	}
	if k.Multiprocessors <= 0 {
		p.add(field+".multiprocessors", "%d is not positive", k.Multiprocessors)
	}
	if k.Cores < k.Multiprocessors {
		p.add(field+".cores", "%d is less than the number of multiprocessors, %d", k.Cores, k.Multiprocessors)
	}
	if !pciID.MatchString(k.PCIDevice) {
		p.add(field+".pciDevice", "%q is not of the form 0x233010de", k.PCIDevice)
	}
	if k.PCISubsystem != "" && !pciID.MatchString(k.PCISubsystem) {
		p.add(field+".pciSubsystem", "%q is not of the form 0x16c110de", k.PCISubsystem)
	}
	if _, ok := addressingModes[k.AddressingMode]; k.AddressingMode != "" && !ok {
		p.add(field+".addressingMode", "%q is none of %s", k.AddressingMode, known(addressingModes))
	}
	if _, ok := computeModes[k.ComputeMode]; k.ComputeMode != "" && !ok {
		p.add(field+".computeMode", "%q is none of %s", k.ComputeMode, known(computeModes))
	}
	if _, ok := nvlinkVersions[k.NVLinkVersion]; !ok {
		p.add(field+".nvlinkVersion", "%q is none of %s", k.NVLinkVersion, known(nvlinkVersions))
	}
	validateLinks(field+".links", k.Links, p)
	k.validateRefusals(field+".refusals", p)
	if k.MIG != nil {
		k.MIG.validate(field+".mig", k, p)
	}
}

func (m *MIG) validate(field string, k *Kind, p *problems) {
	if m.MemorySlices < 1 || m.MemorySlices > 12 {
		p.add(field+".memorySlices", "%d is not between 1 and 12", m.MemorySlices)
	}
	if m.ComputeSlices < 1 || m.ComputeSlices > 8 {
		p.add(field+".computeSlices", "%d is not between 1 and 8", m.ComputeSlices)
	}
	if len(m.Profiles) == 0 {
		p.add(field+".profiles", "a GPU with MIG has at least one profile")
	}
	names, numbers, ids := map[string]bool{}, map[int]bool{}, map[int]bool{}
	for i, profile := range m.Profiles {
		f := fmt.Sprintf("%s.profiles[%d]", field, i)
		if names[profile.Name] || numbers[profile.Profile] || ids[profile.ID] {
			p.add(f, "name, profile and id must differ from those of the profiles before it")
		}
		names[profile.Name], numbers[profile.Profile], ids[profile.ID] = true, true, true
		profile.validate(f, m, k, p)
	}
}

func (r *MIGProfile) validate(field string, m *MIG, k *Kind, p *problems) {
	var nameSlices int
	if m := profileName.FindStringSubmatch(r.Name); m != nil {
		nameSlices, _ = strconv.Atoi(m[1])
	} else {
		p.add(field+".name", "%q is not a MIG profile such as 1g.10gb or 1g.10gb+me", r.Name)
		return
	}
	switch want, ok := profileSlices[r.Profile]; {
	case !ok:
		p.add(field+".profile", "%d is not a profile number of NVML's", r.Profile)
	case want != nameSlices:
		p.add(field+".profile", "NVML's profile %d has %d slices, and %s has %d", r.Profile, want, r.Name, nameSlices)
	}
	if nameSlices > m.ComputeSlices {
		p.add(field+".name", "%s needs more than the %d compute slices of the GPU", r.Name, m.ComputeSlices)
	}
	if r.ID < 0 {
		p.add(field+".id", "%d is negative", r.ID)
	}
	if r.MemoryMiB == 0 || r.MemoryMiB > k.MemoryMiB {
		p.add(field+".memoryMiB", "%d is not within the memory of the GPU, %d", r.MemoryMiB, k.MemoryMiB)
	}
	if r.Multiprocessors <= 0 || r.Multiprocessors > k.Multiprocessors {
		p.add(field+".multiprocessors", "%d is not within those of the GPU, %d", r.Multiprocessors, k.Multiprocessors)
	}
	for engine, n := range map[string]int{"copyEngines": r.CopyEngines, "decoders": r.Decoders, "encoders": r.Encoders, "jpegs": r.JPEGs, "ofas": r.OFAs} {
		if n < 0 {
			p.add(field+"."+engine, "%d is negative", n)
		}
	}
	if r.Max < 1 || r.Max > m.ComputeSlices {
		p.add(field+".max", "%d is not between 1 and the %d compute slices", r.Max, m.ComputeSlices)
	}
	if r.Size < 1 || r.Size > m.MemorySlices {
		p.add(field+".size", "%d is not between 1 and the %d memory slices", r.Size, m.MemorySlices)
	}
	if len(r.Starts) == 0 {
		p.add(field+".starts", "a profile has at least one placement")
	}
	for i, start := range r.Starts {
		if start < 0 || start+r.Size > m.MemorySlices {
			p.add(fmt.Sprintf("%s.starts[%d]", field, i), "%d does not leave room for %d of %d memory slices", start, r.Size, m.MemorySlices)
		}
		if slices.Contains(r.Starts[:i], start) {
			p.add(fmt.Sprintf("%s.starts[%d]", field, i), "%d is listed twice", start)
		}
	}
}

func (m *Model) validateGPUs(p *problems) {
	if len(m.GPUs) > maxGPUs {
		p.add("gpus", "%d are more than %d, the most a driver manages", len(m.GPUs), maxGPUs)
		return
	}
	seen := map[string]string{}
	once := func(field, what, value string) {
		if other, ok := seen[what+value]; ok {
			p.add(field, "%s %s is already used by %s", what, value, other)
			return
		}
		seen[what+value] = field
	}
	for i := range m.GPUs {
		g := &m.GPUs[i]
		field := fmt.Sprintf("gpus[%d]", i)
		kind, ok := m.Kinds[g.Kind]
		if !ok {
			p.add(field+".kind", "%q is none of %s", g.Kind, known(m.Kinds))
		}
		if g.MIGMode && kind.MIG == nil {
			p.add(field+".migMode", "kind %s has no MIG", g.Kind)
		}
		m.validatePlace(field, pciPlace{address: g.Address, numaNode: g.NUMANode, root: g.PCIeRoot, bridges: g.Bridges}, once, p)
		if g.UUID != "" && !gpuUUID.MatchString(g.UUID) {
			p.add(field+".uuid", "%q is not GPU- and a UUID in lower case", g.UUID)
		}
		if g.UUID != "" {
			once(field+".uuid", "uuid", g.UUID)
		}
		minor := i
		if g.Minor != nil {
			minor = *g.Minor
		}
		if minor < 0 || minor >= maxGPUs {
			p.add(field+".minor", "%d is not between 0 and %d", minor, maxGPUs-1)
		}
		once(field+".minor", "minor", strconv.Itoa(minor))
		m.validateNUMANode(field+".memoryNUMANode", g.MemoryNUMANode, p)
		g.validateRecovery(field+".recovery", kind, p)
		validateLinks(field+".links", g.Links, p)
	}
	for i, n := range m.NICs {
		field := fmt.Sprintf("nics[%d]", i)
		m.validatePlace(field, pciPlace{address: n.Address, numaNode: n.NUMANode, root: n.PCIeRoot, bridges: n.Bridges}, once, p)
		for name, value := range map[string]string{"rdma": n.RDMA, "interface": n.Interface} {
			if value == "" {
				continue
			}
			if !fileName.MatchString(value) {
				p.add(field+"."+name, "%q is not a name of letters, digits, dots and dashes", value)
			}
			once(field+"."+name, name, value)
		}
		if n.VirtualOf != "" && !slices.ContainsFunc(m.NICs, func(o NIC) bool { return o.Address == n.VirtualOf && o.VirtualOf == "" }) {
			p.add(field+".virtualOf", "%q is not a physical adapter in nics", n.VirtualOf)
		}
	}
	if len(*p) == 0 {
		m.validateTopology(p)
	}
}

// pciPlace is the position of a PCI device.
type pciPlace struct {
	address  string
	numaNode *int
	root     string
	bridges  []string
}

// validatePlace checks the position of a PCI device. once checks that a value is unique.
func (m *Model) validatePlace(field string, d pciPlace, once func(field, what, value string), p *problems) {
	address, err := parsePCIAddress(d.address)
	if err != nil {
		p.add(field+".address", "%v", err)
	} else {
		once(field+".address", "address", address.String())
	}
	m.validateNUMANode(field+".numaNode", d.numaNode, p)
	if d.root != "" && !rootComplex.MatchString(d.root) {
		p.add(field+".pcieRoot", "%q is not of the form pci0000:15", d.root)
	}
	for i, bridge := range d.bridges {
		if _, err := parsePCIAddress(bridge); err != nil {
			p.add(fmt.Sprintf("%s.bridges[%d]", field, i), "%v", err)
		}
	}
}

func (m *Model) validateNUMANode(field string, node *int, p *problems) {
	if node != nil && (*node < 0 || *node >= len(m.NUMANodes)) {
		p.add(field, "%d is none of the %d nodes in numaNodes", *node, len(m.NUMANodes))
	}
}

// validateTopology checks what can be said only of a model whose fields are
// each valid: a link between two GPUs has an end on both.
func (m *Model) validateTopology(p *problems) {
	node := newNode(m)
	for i, g := range node.gpus {
		for j, other := range node.gpus {
			if there, back := len(g.linksTo(other.address)), len(other.linksTo(g.address)); i < j && there != back {
				p.add(fmt.Sprintf("gpus[%d].links", i), "%d links lead to %s, and %d from there back", there, other.address, back)
			}
		}
		if own := g.linksTo(g.address); len(own) > 0 {
			p.add(fmt.Sprintf("gpus[%d].links", i), "a link leads to the GPU itself")
		}
	}
}

func validateLinks(field string, links []Links, p *problems) {
	seen := map[int]bool{}
	for i, l := range links {
		f := fmt.Sprintf("%s[%d]", field, i)
		first, last, err := parseLinkNumbers(l.Numbers)
		if err != nil {
			p.add(f+".numbers", "%v", err)
			continue
		}
		for n := first; n <= last; n++ {
			if seen[n] {
				p.add(f+".numbers", "link %d is listed twice", n)
			}
			seen[n] = true
		}
		if _, ok := linkRemotes[linkRemote(l.Remote)]; !ok {
			p.add(f+".remote", "%q is none of GPU, Switch, CPU", l.Remote)
		}
		if l.Address != "" {
			if _, err := parsePCIAddress(l.Address); err != nil {
				p.add(f+".address", "%v", err)
			}
		}
		if l.Address == "" && l.Remote == string(remoteGPU) {
			p.add(f+".address", "a link to a GPU names its address")
		}
	}
	for n := range len(seen) {
		if !seen[n] {
			p.add(field, "link %d is missing: links are numbered from 0 without gaps", n)
			return
		}
	}
}

func parseLinkNumbers(s string) (first, last int, err error) {
	from, to, isRange := strings.Cut(s, "-")
	if !isRange {
		to = from
	}
	first, errFirst := strconv.Atoi(from)
	last, errLast := strconv.Atoi(to)
	if errFirst != nil || errLast != nil || first < 0 || last < first || last >= nvml.NVLINK_MAX_LINKS {
		return 0, 0, fmt.Errorf("%q is not a link or a range of links, such as 3 or 0-5, below %d", s, nvml.NVLINK_MAX_LINKS)
	}
	return first, last, nil
}

func parseVersion(s string) (Version, error) {
	major, minor, ok := strings.Cut(s, ".")
	a, errMajor := strconv.ParseUint(major, 10, 8)
	b, errMinor := strconv.ParseUint(minor, 10, 8)
	if !ok || errMajor != nil || errMinor != nil {
		return Version{}, fmt.Errorf("%q is not a version of two numbers, such as 12.8 (in quotes)", s)
	}
	return Version{Major: int(a), Minor: int(b)}, nil
}

// maxCPUs bounds the trees that a model makes.
const maxCPUs = 4096

func parseCPUs(s string) (cpuset.CPUSet, error) {
	// The bound is checked on the text: the parser expands ranges.
	for _, number := range regexp.MustCompile(`[0-9]+`).FindAllString(s, -1) {
		if n, err := strconv.Atoi(number); err != nil || n >= maxCPUs {
			return cpuset.CPUSet{}, fmt.Errorf("%q names a CPU beyond %d", s, maxCPUs-1)
		}
	}
	cpus, err := cpuset.Parse(s)
	if err != nil {
		return cpuset.CPUSet{}, fmt.Errorf("%q is not a CPU list such as 0-55,112-167", s)
	}
	return cpus, nil
}

func known[V any](m map[string]V) string {
	return strings.Join(slices.Sorted(maps.Keys(m)), ", ")
}
