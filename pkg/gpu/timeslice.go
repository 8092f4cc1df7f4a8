// SPDX-License-Identifier: Apache-2.0

package gpu

// TimeSlice is the time for which a process computes before the GPU switches to the
// next one.
type TimeSlice string

// The time slices of nvidia-smi's compute policy, in the order of its numbers 0
// to 3.
const (
	TimeSliceDefault TimeSlice = "Default"
	TimeSliceShort   TimeSlice = "Short"
	TimeSliceMedium  TimeSlice = "Medium"
	TimeSliceLong    TimeSlice = "Long"
)

// TimeSlices returns all time slices in the order of their numbers.
func TimeSlices() []TimeSlice {
	return []TimeSlice{TimeSliceDefault, TimeSliceShort, TimeSliceMedium, TimeSliceLong}
}
