// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"errors"
	"slices"
	"time"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// rescanInterval is the least time between scans that users cause, by failed prepares or by faults
// of programs. A scan reads all GPUs of the node.
const rescanInterval = time.Minute

// PrepareFailed requests a scan if the last scan does not explain the error of a failed
// prepare. It requests none for a mistake in the claim, which a user can repeat without
// end, and none within a minute of the last one.
func (i *Inventory) PrepareFailed(err error) {
	if isAboutHardware(err) {
		i.rescans.Do(i.RequestScan)
	}
}

// isAboutHardware reports whether the error may come from a GPU that has changed since it
// was scanned: another program has changed it, or it has stopped to answer.
func isAboutHardware(err error) bool {
	return slices.ContainsFunc([]error{gpu.ErrLost, gpu.ErrTimeout, gpu.ErrNotReady, gpu.ErrNotFound, gpu.ErrInUse}, func(sentinel error) bool {
		return errors.Is(err, sentinel)
	})
}
