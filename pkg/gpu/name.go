package gpu

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// Kind is the type of a published device and the value of its attribute
// "type".
type Kind string

// The kinds of published devices.
const (
	KindGPU       Kind = "gpu"
	KindMIG       Kind = "mig"
	KindTimeSlice Kind = "timeslice"
	KindMonitor   Kind = "monitor"
)

// monitorName is the one device of a node that belongs to no single GPU.
const monitorName = "node-gpus"

// DeviceName is the parsed name of a published device. [DeviceName.String] is
// the only constructor of such names and [ParseDeviceName] their only parser:
//
//	gpu-1a-00                     the GPU at 0000:1a:00.0
//	gpu-0001-1a-00-0              the same bus in PCI domain 1
//	gpu-1a-00-mig-1g-10gb-0       profile 1g.10gb at memory slice 0
//	gpu-1a-00-mig-1g-10gb-me-3    profile 1g.10gb+me at memory slice 3
//	gpu-1a-00-ts                  its time slices
//	node-gpus                     all GPUs, for monitoring
//
// Every name is a DNS label and survives reboots and driver reloads.
type DeviceName struct {
	Kind Kind
	// Address of the GPU; unused for KindMonitor.
	Address PCIAddress
	// Profile and Start (the first memory slice) are for KindMIG only.
	Profile Profile
	Start   int
}

// ShortName is the GPU's name without its prefix: "1a-00", or
// "0001-1a-00-0" where domain or function are not zero.
func (a PCIAddress) ShortName() string {
	if a.Domain == 0 && a.Function == 0 {
		return fmt.Sprintf("%02x-%02x", a.Bus, a.Device)
	}
	return fmt.Sprintf("%04x-%02x-%02x-%x", a.Domain, a.Bus, a.Device, a.Function)
}

// DeviceName is the name under which the whole GPU is published.
func (a PCIAddress) DeviceName() string {
	return DeviceName{Kind: KindGPU, Address: a}.String()
}

// String gives the published name.
func (n DeviceName) String() string {
	base := "gpu-" + n.Address.ShortName()
	switch n.Kind {
	case KindMIG:
		return fmt.Sprintf("%s-mig-%dg-%dgb%s-%d", base, n.Profile.Slices, n.Profile.MemoryGB, mediaNames[n.Profile.Media], n.Start)
	case KindTimeSlice:
		return base + "-ts"
	case KindMonitor:
		return monitorName
	default:
		return base
	}
}

var deviceName = regexp.MustCompile(`^gpu-(?:([0-9a-f]{2})-([01][0-9a-f])|([0-9a-f]{4,8})-([0-9a-f]{2})-([01][0-9a-f])-([0-7]))(?:-(ts)|-mig-([1-9][0-9]?)g-([1-9][0-9]{0,3})gb(-[a-z]+)?-(0|[1-9][0-9]?))?$`)

// ParseDeviceName reads a published name. It accepts exactly the names that
// [DeviceName.String] writes.
func ParseDeviceName(s string) (DeviceName, error) {
	if s == monitorName {
		return DeviceName{Kind: KindMonitor}, nil
	}
	m := deviceName.FindStringSubmatch(s)
	if m == nil {
		return DeviceName{}, fmt.Errorf("device name %q: %w: not a name of this driver", s, ErrInvalid)
	}
	address := fmt.Sprintf("0000:%s:%s.0", m[1], m[2])
	if m[3] != "" {
		address = fmt.Sprintf("%s:%s:%s.%s", m[3], m[4], m[5], m[6])
	}
	n := DeviceName{Kind: KindGPU}
	var err error
	if n.Address, err = ParsePCIAddress(address); err != nil {
		return DeviceName{}, fmt.Errorf("device name %q: %w", s, err)
	}
	switch {
	case m[7] != "":
		n.Kind = KindTimeSlice
	case m[8] != "":
		n.Kind = KindMIG
		n.Profile.Slices, _ = strconv.Atoi(m[8])
		n.Profile.MemoryGB, _ = strconv.Atoi(m[9])
		n.Start, _ = strconv.Atoi(m[11])
		if n.Profile.Media, err = mediaSuffix(m[10]); err != nil {
			return DeviceName{}, fmt.Errorf("device name %q: %w", s, err)
		}
	}
	// A long form for an address that has a short one names nothing.
	if n.String() != s {
		return DeviceName{}, fmt.Errorf("device name %q: %w: the canonical name is %q", s, ErrInvalid, n)
	}
	return n, nil
}

func mediaSuffix(name string) (string, error) {
	for suffix, spelled := range mediaNames {
		if spelled == name {
			return suffix, nil
		}
	}
	return "", fmt.Errorf("%w: unknown profile suffix %q", ErrInvalid, strings.TrimPrefix(name, "-"))
}
