// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// TimeSlice returns the time slice in the compute policy of the GPU at the address.
// It returns [gpu.ErrNotSupported] if nvidia-smi does not list one.
func (s *SMI) TimeSlice(ctx context.Context, address gpu.PCIAddress) (gpu.TimeSlice, error) {
	out, err := s.run(ctx, address, "read the time slice of", "compute-policy", "-i", address.String(), "--list")
	if err != nil {
		return "", err
	}
	slice, ok := parseTimeSlice(out)
	if !ok {
		return "", fmt.Errorf("read the time slice of %s: %w: nvidia-smi lists none: %q", address, gpu.ErrNotSupported, strings.TrimSpace(out))
	}
	return slice, nil
}

// SetTimeSlice sets the time slice in the compute policy of the GPU at the address,
// and is idempotent. It returns [gpu.ErrNotSupported] if the GPU has none, such as a
// GPU in MIG mode, and [gpu.ErrPermission] if the process is not root.
func (s *SMI) SetTimeSlice(ctx context.Context, address gpu.PCIAddress, slice gpu.TimeSlice) error {
	number := slices.Index(gpu.TimeSlices(), slice)
	if number < 0 {
		return fmt.Errorf("time slice %q: %w: want one of %v", slice, gpu.ErrInvalid, gpu.TimeSlices())
	}
	_, err := s.run(ctx, address, "set the time slice of", "compute-policy", "-i", address.String(), "--set-timeslice="+strconv.Itoa(number))
	return err
}

// timeSliceLine matches the line of nvidia-smi's table with the time slice. The
// layout of that table is not documented.
var timeSliceLine = regexp.MustCompile(`(?i)time[ _-]?slice(.*)`)

// parseTimeSlice returns the time slice in a list of compute policies. It accepts
// both a name and a number.
func parseTimeSlice(out string) (gpu.TimeSlice, bool) {
	for line := range strings.Lines(out) {
		match := timeSliceLine.FindStringSubmatch(line)
		if match == nil {
			continue
		}
		for word := range strings.FieldsFuncSeq(match[1], func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }) {
			for number, slice := range gpu.TimeSlices() {
				if strings.EqualFold(word, string(slice)) || word == strconv.Itoa(number) {
					return slice, true
				}
			}
		}
	}
	return "", false
}
