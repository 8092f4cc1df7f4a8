// SPDX-License-Identifier: Apache-2.0

package report

import (
	"errors"
	"strings"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// sentinels returns the errors that have a reason of their own. If an error wraps several,
// the first one counts: a fault of the GPU before its consequences.
func sentinels() []error {
	return []error{
		gpu.ErrUnhealthy, gpu.ErrLost, gpu.ErrInUse, gpu.ErrNoCapacity, gpu.ErrInvalid, gpu.ErrNotSupported, gpu.ErrNotReady,
		gpu.ErrPermission, gpu.ErrTimeout, gpu.ErrCorrupt, gpu.ErrNotFound,
	}
}

// Reasons returns every [Reason] of a failed prepare.
func Reasons() []string {
	reasons := []string{ReasonPrepareFailed}
	for _, err := range sentinels() {
		reasons = append(reasons, Reason(err))
	}
	return reasons
}

// Reason returns the reason of a failed prepare, for conditions and metrics: the words of
// its sentinel, such as "AlreadyInUse", or [ReasonPrepareFailed] for an error without one. It is empty
// without an error.
func Reason(err error) string {
	if err == nil {
		return ""
	}
	for _, sentinel := range sentinels() {
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
