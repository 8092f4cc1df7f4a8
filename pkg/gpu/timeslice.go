// SPDX-License-Identifier: Apache-2.0

package gpu

// TimeSlice is how long a process computes on a GPU before the next one's turn.
type TimeSlice string

// The time slices of nvidia-smi's compute policy, whose numbers 0 to 3 they are
// in this order.
const (
	TimeSliceDefault TimeSlice = "Default"
	TimeSliceShort   TimeSlice = "Short"
	TimeSliceMedium  TimeSlice = "Medium"
	TimeSliceLong    TimeSlice = "Long"
)

// TimeSlices are all of them, in the order of their numbers.
func TimeSlices() []TimeSlice {
	return []TimeSlice{TimeSliceDefault, TimeSliceShort, TimeSliceMedium, TimeSliceLong}
}
