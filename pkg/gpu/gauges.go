// SPDX-License-Identifier: Apache-2.0

package gpu

// Gauges are the use, the temperature and the power of a GPU at one time. A value that the
// driver does not report is nil.
type Gauges struct {
	// Utilization is the part of the time, 0 to 1, for which kernels ran on the GPU. MIG
	// mode has none.
	Utilization *float64
	// MemoryUsedBytes does not include the memory that the driver reserves.
	MemoryUsedBytes *uint64
	MemoryBytes     *uint64
	// Celsius is the temperature of the chip.
	Celsius *float64
	Watts   *float64
}
