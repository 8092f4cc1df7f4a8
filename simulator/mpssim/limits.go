// SPDX-License-Identifier: Apache-2.0

package mpssim

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/gpu-dra/gpu-dra-driver/simulator/simerr"
)

// Limits hold for the clients of a server.
type Limits struct {
	// ActiveThreadPercentage of the multiprocessors.
	ActiveThreadPercentage float64 `json:"activeThreadPercentage"`
	// DeviceMemory in the order in which it was set.
	DeviceMemory []DeviceLimit `json:"deviceMemory,omitempty"`
}

// DeviceLimit is the memory of one device that a client can allocate.
type DeviceLimit struct {
	// Device is a CUDA ordinal or a UUID, in the form in which the command named it.
	Device string `json:"device"`
	Bytes  uint64 `json:"bytes"`
}

func (l Limits) clone() Limits {
	l.DeviceMemory = slices.Clone(l.DeviceMemory)
	return l
}

// setMemory replaces the limit of the same identifier. The device need not
// exist.
func (l *Limits) setMemory(device string, bytes uint64) {
	l.DeviceMemory = slices.DeleteFunc(l.DeviceMemory, func(d DeviceLimit) bool { return d.Device == device })
	l.DeviceMemory = append(l.DeviceMemory, DeviceLimit{Device: device, Bytes: bytes})
}

// memory returns the limit that was set for an identifier. It does not translate
// between ordinals and UUIDs.
func (l Limits) memory(device string) (uint64, bool) {
	i := slices.IndexFunc(l.DeviceMemory, func(d DeviceLimit) bool { return d.Device == device })
	if i < 0 {
		return 0, false
	}
	return l.DeviceMemory[i].Bytes, true
}

// forDevice returns the limit of a device: the one that was set last for its ordinal or its
// UUID, or 0 for none.
func (l Limits) forDevice(ordinal int, uuid string) uint64 {
	var bytes uint64
	for _, d := range l.DeviceMemory {
		if d.Device == strconv.Itoa(ordinal) || d.Device == uuid {
			bytes = d.Bytes
		}
	}
	return bytes
}

// tighter is the smaller of two limits of which 0 is none.
func tighter(a, b uint64) uint64 {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// parseLimits reads the limits of an environment. Empty values limit nothing.
func parseLimits(percentage, memory string) (Limits, error) {
	l := Limits{ActiveThreadPercentage: 100}
	if percentage != "" {
		var err error
		if l.ActiveThreadPercentage, err = parsePercentage(percentage); err != nil {
			return l, fmt.Errorf("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE: %w", err)
		}
	}
	if memory == "" {
		return l, nil
	}
	for entry := range strings.SplitSeq(memory, ",") {
		device, size, ok := strings.Cut(strings.TrimSpace(entry), "=")
		if !ok || device == "" {
			return l, fmt.Errorf("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT: entry %q: %w: want DEVICE=SIZE", entry, simerr.ErrInvalid)
		}
		bytes, err := parseSize(size)
		if err != nil {
			return l, fmt.Errorf("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT: %w", err)
		}
		l.setMemory(device, bytes)
	}
	return l, nil
}

func parsePercentage(s string) (float64, error) {
	p, err := strconv.ParseFloat(s, 64)
	if err != nil || math.IsNaN(p) || p <= 0 || p > 100 {
		return 0, fmt.Errorf("percentage %q: %w: want a number above 0 and up to 100", s, simerr.ErrInvalid)
	}
	return p, nil
}

// parseSize reads an integer with a qualifier, "10G" or "900M", where both are
// powers of two.
func parseSize(s string) (uint64, error) {
	for qualifier, shift := range map[string]int{"G": 30, "M": 20} {
		digits, ok := strings.CutSuffix(s, qualifier)
		if !ok {
			continue
		}
		n, err := strconv.ParseUint(digits, 10, 32)
		if err != nil || n == 0 {
			break
		}
		return n << shift, nil
	}
	return 0, fmt.Errorf("size %q: %w: want an integer with the qualifier G or M, such as 10G", s, simerr.ErrInvalid)
}

// formatSize writes a size as the real daemon does: from 1G on in whole G,
// rounded down.
func formatSize(bytes uint64) string {
	if bytes >= 1<<30 {
		return fmt.Sprintf("%dG", bytes>>30)
	}
	return fmt.Sprintf("%dM", bytes>>20)
}
