// SPDX-License-Identifier: Apache-2.0

package mpssim

import (
	"fmt"
	"slices"
	"syscall"

	"github.com/gpu-dra/gpu-dra-driver/simulator/nvmlsim"
)

// Signal sends a signal to the running daemons of a device, or to all if device is empty.
// It returns their number.
func Signal(s *nvmlsim.Sim, device string, signal syscall.Signal) (n int, err error) {
	daemons, err := List(s)
	if err != nil {
		return 0, err
	}
	for _, d := range daemons {
		ofDevice := d.Record != nil && slices.Contains(d.Record.Devices, device)
		if !d.Running || device != "" && !ofDevice {
			continue
		}
		if err := syscall.Kill(d.PID, signal); err != nil {
			return n, fmt.Errorf("MPS daemon %d in %s: %w", d.PID, d.PipeDirectory, err)
		}
		n++
	}
	return n, nil
}
