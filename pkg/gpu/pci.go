// SPDX-License-Identifier: Apache-2.0

package gpu

import (
	"cmp"
	"fmt"
	"regexp"
	"strconv"
)

// PCIAddress is the address of a function on the PCI bus. It identifies a GPU
// across reboots and driver reloads; an NVML index and a device minor do not.
type PCIAddress struct {
	Domain   uint32 // 16 bits on most machines, 32 behind VMD and on some ARM servers
	Bus      uint8
	Device   uint8 // 5 bits
	Function uint8 // 3 bits
}

var pciAddress = regexp.MustCompile(`^([0-9a-fA-F]{4,8}):([0-9a-fA-F]{2}):([0-9a-fA-F]{2})\.([0-7])$`)

// ParsePCIAddress reads extended BDF notation: "0000:1b:00.0", or with the
// eight-digit domain that NVML prints, "00000000:1B:00.0".
func ParsePCIAddress(s string) (PCIAddress, error) {
	m := pciAddress.FindStringSubmatch(s)
	if m == nil {
		return PCIAddress{}, fmt.Errorf("PCI address %q: %w: want domain:bus:device.function, such as 0000:1b:00.0", s, ErrInvalid)
	}
	// The expression admits nothing that ParseUint refuses.
	domain, _ := strconv.ParseUint(m[1], 16, 32)
	bus, _ := strconv.ParseUint(m[2], 16, 8)
	device, _ := strconv.ParseUint(m[3], 16, 8)
	function, _ := strconv.ParseUint(m[4], 16, 8)
	if device > 31 {
		return PCIAddress{}, fmt.Errorf("PCI address %q: %w: device %#x is beyond 1f", s, ErrInvalid, device)
	}
	return PCIAddress{Domain: uint32(domain), Bus: uint8(bus), Device: uint8(device), Function: uint8(function)}, nil
}

// String returns the kernel's notation, which is also the value of the attribute
// resource.kubernetes.io/pciBusID: "0000:1b:00.0".
func (a PCIAddress) String() string {
	return fmt.Sprintf("%04x:%02x:%02x.%x", a.Domain, a.Bus, a.Device, a.Function)
}

// ShortName returns the name that is part of every device name: "1a-00", or
// "0001-1a-00-0" if the domain or the function is not zero.
func (a PCIAddress) ShortName() string {
	if a.Domain == 0 && a.Function == 0 {
		return fmt.Sprintf("%02x-%02x", a.Bus, a.Device)
	}
	return fmt.Sprintf("%04x-%02x-%02x-%x", a.Domain, a.Bus, a.Device, a.Function)
}

// DeviceName returns the name under which the whole GPU is published.
func (a PCIAddress) DeviceName() string { return "gpu-" + a.ShortName() }

// Compare orders addresses as lspci does.
func (a PCIAddress) Compare(b PCIAddress) int {
	return cmp.Or(
		cmp.Compare(a.Domain, b.Domain),
		cmp.Compare(a.Bus, b.Bus),
		cmp.Compare(a.Device, b.Device),
		cmp.Compare(a.Function, b.Function),
	)
}
