// SPDX-License-Identifier: Apache-2.0

package nvmlsim

import (
	"fmt"
	"regexp"
	"strconv"

	"github.com/gpu-dra/gpu-dra-driver/simulator/simerr"
)

// pciAddress is the address of a PCI device.
type pciAddress struct {
	Domain                uint32
	Bus, Device, Function uint8
}

var pciNotation = regexp.MustCompile(`^([0-9a-fA-F]{4,8}):([0-9a-fA-F]{2}):([01][0-9a-fA-F])\.([0-7])$`)

// parsePCIAddress reads "0000:1b:00.0", or "00000000:1B:00.0" as NVML prints it. The error
// wraps [simerr.ErrInvalid].
func parsePCIAddress(s string) (pciAddress, error) {
	m := pciNotation.FindStringSubmatch(s)
	if m == nil {
		return pciAddress{}, fmt.Errorf("PCI address %q: %w: want domain:bus:device.function, such as 0000:1b:00.0", s, simerr.ErrInvalid)
	}
	var numbers [4]uint64
	for i := range numbers {
		numbers[i], _ = strconv.ParseUint(m[i+1], 16, 32) // the expression admits nothing else
	}
	return pciAddress{Domain: uint32(numbers[0]), Bus: uint8(numbers[1]), Device: uint8(numbers[2]), Function: uint8(numbers[3])}, nil
}

// String returns the kernel's notation: "0000:1b:00.0".
func (a pciAddress) String() string {
	return fmt.Sprintf("%04x:%02x:%02x.%x", a.Domain, a.Bus, a.Device, a.Function)
}
