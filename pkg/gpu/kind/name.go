// SPDX-License-Identifier: Apache-2.0

package kind

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// Name is the parsed name of a published device. [Name.String] is the only
// constructor of such names and [Parse] their only parser:
//
//	gpu-1a-00                     the GPU at 0000:1a:00.0
//	gpu-0001-1a-00-0              the same bus in PCI domain 1
//	gpu-1a-00-mig-1g-10gb-0       profile 1g.10gb at memory slice 0
//	gpu-1a-00-mig-1g-10gb-me-3    profile 1g.10gb+me at memory slice 3
//	gpu-1a-00-ts                  its time slices
//	gpu-1a-00-seat                its seats
//	node-gpus                     all GPUs, for monitoring
//
// Every name is a DNS label and survives reboots and driver reloads.
type Name struct {
	Kind Kind
	// Address of the GPU; unset if the scope of the kind is [ScopeNode].
	Address gpu.PCIAddress
	// Profile and Start (the first memory slice) are set if the scope of the kind
	// is [ScopePartition].
	Profile gpu.Profile
	Start   int
}

// String returns the published name; "" for the zero value.
func (n Name) String() string {
	r := n.Kind.rules()
	switch {
	case r.scope == ScopeGPU:
		return n.Address.DeviceName() + r.suffix
	case r.format != nil:
		return r.format(n)
	default:
		return ""
	}
}

// MarshalText writes the published name.
func (n Name) MarshalText() ([]byte, error) { return []byte(n.String()), nil }

// UnmarshalText reads a published name as [Parse] does.
func (n *Name) UnmarshalText(text []byte) (err error) {
	*n, err = Parse(string(text))
	return err
}

// Compare orders devices by their published names.
func Compare(a, b Name) int { return strings.Compare(a.String(), b.String()) }

// OnGPU reports whether the device belongs to one GPU, whole or in part.
func (n Name) OnGPU() bool { return n.IsWholeGPU() || n.IsPartition() }

// IsWholeGPU reports whether the device stands for one GPU that is not
// partitioned.
func (n Name) IsWholeGPU() bool { return n.Kind.Scope() == ScopeGPU }

// IsPartition reports whether the device is a partition of a GPU.
func (n Name) IsPartition() bool { return n.Kind.Scope() == ScopePartition }

// MPSDaemon returns the device after which the MPS daemon of its shares is named: itself,
// and for seats the GPU, with which no other claim shares at the same time. It returns the
// zero value if there are no such shares.
func (n Name) MPSDaemon() Name {
	switch {
	case n.Kind.Takes() == TakesSeats:
		return Whole(n.Address)
	case n.Kind.MPSShares():
		return n
	default:
		return Name{}
	}
}

// FindIn returns the profile and the placement of a partition on a GPU. It returns
// false if the device is not a partition, or the GPU has no such placement.
func (n Name) FindIn(mig gpu.MIG) (gpu.ProfileInfo, gpu.Placement, bool) {
	if !n.IsPartition() {
		return gpu.ProfileInfo{}, gpu.Placement{}, false
	}
	return mig.Find(n.Profile, n.Start)
}

// Parse reads a published name. It accepts exactly the names that [Name.String]
// writes; its errors wrap [gpu.ErrInvalid].
func Parse(s string) (Name, error) {
	address, rest, onGPU := cutAddress(s)
	for _, r := range table {
		n, ok, err := Name{Kind: r.kind, Address: address}, onGPU && rest == r.suffix, error(nil)
		if r.parse != nil {
			n, ok, err = r.parse(s)
		}
		switch {
		case err != nil:
			return Name{}, fmt.Errorf("device name %q: %w", s, err)
		case !ok:
			continue
		// An address with a short form has no other name.
		case n.String() != s:
			return Name{}, fmt.Errorf("device name %q: %w: the canonical name is %q", s, gpu.ErrInvalid, n)
		}
		return n, nil
	}
	return Name{}, fmt.Errorf("device name %q: %w: not a name of this driver", s, gpu.ErrInvalid)
}

var nameOnGPU = regexp.MustCompile(`^gpu-(?:([0-9a-f]{2})-([01][0-9a-f])|([0-9a-f]{4,8})-([0-9a-f]{2})-([01][0-9a-f])-([0-7]))(-.*)?$`)

// cutAddress splits the name of a device of one GPU after the GPU's own name. It
// returns the GPU's address and the rest of the text. It returns false if the name
// does not begin with the name of a GPU.
func cutAddress(s string) (address gpu.PCIAddress, rest string, ok bool) {
	m := nameOnGPU.FindStringSubmatch(s)
	if m == nil {
		return gpu.PCIAddress{}, "", false
	}
	bdf := fmt.Sprintf("0000:%s:%s.0", m[1], m[2])
	if m[3] != "" {
		bdf = fmt.Sprintf("%s:%s:%s.%s", m[3], m[4], m[5], m[6])
	}
	address, err := gpu.ParsePCIAddress(bdf)
	return address, m[7], err == nil
}
