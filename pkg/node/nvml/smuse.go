// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"context"
	"fmt"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// SMUse returns by PID the part of the time, 0 to 1, in which each process used
// multiprocessors. A multiprocessor of the GPU at the address is in use while kernels run
// on it. The value is the newest sample of the driver after since. A process without a
// sample did not compute, or ended.
//
// The error wraps [gpu.ErrNotSupported] if the driver has no samples for the GPU, as in
// MIG mode. Other errors are the same as from [Library.MIG].
func (l *Library) SMUse(ctx context.Context, address gpu.PCIAddress, since time.Time) (map[int]float64, error) {
	return onGPUWithin(ctx, answerLimit, l, address, "read how processes use", func(device nvml.Device) (map[int]float64, error) {
		samples, ret := device.GetProcessUtilization(uint64(since.UnixMicro()))
		switch ret {
		case nvml.ERROR_NOT_FOUND:
			return nil, nil
		case nvml.ERROR_INSUFFICIENT_SIZE:
			// go-nvml returns it if there is no sample, and NVML if there are more
			// samples than a moment before.
			if len(samples) == 0 {
				return nil, nil
			}
			return nil, fmt.Errorf("read the use of processes: %w: new samples arrive", gpu.ErrInUse)
		}
		return newest(samples), check("read the use of processes", ret)
	})
}

// newest returns the newest valid sample of each process. Some drivers write values of
// more than 100 percent for processes that they cannot measure:
// https://github.com/NVIDIA/DCGM/issues/83
func newest(samples []nvml.ProcessUtilizationSample) map[int]float64 {
	const whole = 100
	use, at := make(map[int]float64, len(samples)), make(map[int]uint64, len(samples))
	for _, s := range samples {
		if pid := int(s.Pid); s.SmUtil <= whole && s.TimeStamp >= at[pid] {
			use[pid], at[pid] = float64(s.SmUtil)/whole, s.TimeStamp
		}
	}
	return use
}
