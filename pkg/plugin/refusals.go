// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"errors"
	"strings"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// refusals returns the errors that have a reason of their own. If an error wraps several,
// the first one counts: a fault of the GPU before its consequences.
func refusals() []error {
	return []error{
		gpu.ErrUnhealthy, gpu.ErrLost, gpu.ErrInUse, gpu.ErrNoCapacity, gpu.ErrInvalid, gpu.ErrNotSupported, gpu.ErrNotReady,
		gpu.ErrPermission, gpu.ErrTimeout, gpu.ErrCorrupt, gpu.ErrNotFound,
	}
}

// Reason returns the reason of a failed prepare, for conditions and metrics: the words of
// its sentinel, such as "AlreadyInUse", or [ReasonPrepareFailed] for an error without one.
func Reason(err error) string {
	for _, sentinel := range refusals() {
		if !errors.Is(err, sentinel) {
			continue
		}
		var reason strings.Builder
		for word := range strings.FieldsSeq(sentinel.Error()) {
			reason.WriteString(strings.ToUpper(word[:1]) + word[1:])
		}
		return reason.String()
	}
	return ReasonPrepareFailed
}
