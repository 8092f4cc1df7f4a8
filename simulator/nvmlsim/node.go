// SPDX-License-Identifier: Apache-2.0

package nvmlsim

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// node is a valid model with everything parsed and derived once.
type node struct {
	model *Model
	cuda  Version
	gpus  []*spec
	// missing are the functions of NVML that the driver does not have.
	missing map[string]bool
}

// spec is what never changes about one GPU.
type spec struct {
	index, minor int
	address      pciAddress
	uuid         string
	kind         *Kind
	gpu          *GPU
	capability   Version
	pciDevice    uint32
	pciSubsystem uint32
	pcieRoot     string
	links        []linkSpec
	// profiles by NVML's profile number.
	profiles map[int]*profileSpec
	// refusals are the codes of the calls that the GPU refuses.
	refusals map[string]nvml.Return
}

type linkSpec struct {
	remote  linkRemote
	address *pciAddress
	down    bool
}

type profileSpec struct {
	*MIGProfile
	slices int
}

// newNode resolves a model whose fields are each valid.
func newNode(m *Model) *node {
	n := &node{model: m, missing: m.missingFunctions()}
	n.cuda, _ = parseVersion(m.CUDAVersion)
	kinds := map[string]*Kind{}
	for name, kind := range m.Kinds {
		kinds[name] = &kind
	}
	for i := range m.GPUs {
		g := &m.GPUs[i]
		s := &spec{index: i, minor: i, gpu: g, kind: kinds[g.Kind], uuid: g.UUID, pcieRoot: g.PCIeRoot}
		s.address, _ = parsePCIAddress(g.Address)
		s.capability, _ = parseVersion(s.kind.ComputeCapability)
		s.pciDevice = parsePCIID(s.kind.PCIDevice)
		s.pciSubsystem = parsePCIID(s.kind.PCISubsystem)
		if g.Minor != nil {
			s.minor = *g.Minor
		}
		if s.uuid == "" {
			s.uuid = "GPU-" + derivedUUID(m.Name, s.address.String())
		}
		if s.pcieRoot == "" {
			s.pcieRoot = ownRoot(s.address)
		}
		s.refusals = s.kind.refusals()
		s.links = expandLinks(s.kind.Links)
		if g.Links != nil {
			s.links = expandLinks(g.Links)
		}
		s.profiles = map[int]*profileSpec{}
		if s.kind.MIG != nil {
			for j := range s.kind.MIG.Profiles {
				p := &s.kind.MIG.Profiles[j]
				s.profiles[p.Profile] = &profileSpec{MIGProfile: p, slices: profileSlices[p.Profile]}
			}
		}
		n.gpus = append(n.gpus, s)
	}
	return n
}

// ownRoot returns the root complex of a device that has one to itself.
func ownRoot(address pciAddress) string {
	return fmt.Sprintf("pci%04x:%02x", address.Domain, address.Bus)
}

func parsePCIID(s string) uint32 {
	id, _ := strconv.ParseUint(s, 0, 32)
	return uint32(id)
}

func expandLinks(runs []Links) []linkSpec {
	var links []linkSpec
	for _, run := range runs {
		first, last, _ := parseLinkNumbers(run.Numbers)
		for len(links) <= last {
			links = append(links, linkSpec{})
		}
		for n := first; n <= last; n++ {
			links[n] = linkSpec{remote: linkRemote(run.Remote), down: run.Down}
			if run.Address != "" {
				address, _ := parsePCIAddress(run.Address)
				links[n].address = &address
			}
		}
	}
	return links
}

// linksTo lists the numbers of the links that lead to the given address.
func (s *spec) linksTo(address pciAddress) []int {
	var numbers []int
	for n, l := range s.links {
		if l.remote == remoteGPU && l.address != nil && *l.address == address {
			numbers = append(numbers, n)
		}
	}
	return numbers
}

// profileByID finds a profile by the number that instances refer to it by.
func (s *spec) profileByID(id uint32) *profileSpec {
	for _, p := range s.profiles {
		if uint32(p.ID) == id {
			return p
		}
	}
	return nil
}

// engines returns the media engines that a profile takes. Copy engines do not count:
// instances share them.
func (p *profileSpec) engines() [4]int { return [4]int{p.Decoders, p.Encoders, p.JPEGs, p.OFAs} }

// engineTotals returns the media engines of the GPU, which its largest user takes all. An
// engine of which the instances of one profile take more is shared, and its total is
// negative.
func (s *spec) engineTotals() [4]int {
	var totals [4]int
	for i := range totals {
		for _, p := range s.profiles {
			totals[i] = max(totals[i], p.engines()[i])
		}
		for _, p := range s.profiles {
			if p.engines()[i]*p.Max > totals[i] {
				totals[i] = -1
				break
			}
		}
	}
	return totals
}

// smallest is the number of multiprocessors of one compute slice.
func (s *spec) smallest() int {
	if p := s.profiles[nvml.GPU_INSTANCE_PROFILE_1_SLICE]; p != nil {
		return p.Multiprocessors
	}
	return s.kind.Multiprocessors / s.kind.MIG.ComputeSlices
}

// derivedUUID returns the same UUID for the same parts.
func derivedUUID(parts ...string) string {
	sum := sha256.Sum256([]byte(fmt.Sprintf("%q", parts)))
	return formatUUID([16]byte(sum[:16]), 5)
}

func formatUUID(b [16]byte, version byte) string {
	b[6] = b[6]&0x0f | version<<4
	b[8] = b[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[0:4], b[4:6], b[6:8], b[8:10], b[10:16])
}

// parseUUID reads the 16 bytes of a UUID that Validate has accepted.
func parseUUID(s string) (b [16]byte) {
	_, _ = hex.Decode(b[:], []byte(strings.ReplaceAll(s, "-", "")))
	return b
}
