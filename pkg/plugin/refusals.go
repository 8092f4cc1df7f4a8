// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"errors"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// refusal is a value of the label "reason".
type refusal struct {
	reason string
	err    error
}

// reasonOther is the reason of errors that wrap no sentinel.
const reasonOther = "other"

// refusals returns the reasons for which claims are not prepared. If an error wraps
// several, the first one counts: a fault of the GPU before its consequences.
func refusals() []refusal {
	return []refusal{
		{"unhealthy", gpu.ErrUnhealthy},
		{"lost", gpu.ErrLost},
		{"in-use", gpu.ErrInUse},
		{"no-capacity", gpu.ErrNoCapacity},
		{"invalid", gpu.ErrInvalid},
		{"not-supported", gpu.ErrNotSupported},
		{"not-ready", gpu.ErrNotReady},
		{"permission-denied", gpu.ErrPermission},
		{"timeout", gpu.ErrTimeout},
		{"corrupt", gpu.ErrCorrupt},
		{"not-found", gpu.ErrNotFound},
		{reasonOther, nil},
	}
}

// reasonOf returns the reason of an error.
func reasonOf(err error) string {
	for _, r := range refusals() {
		if r.err != nil && errors.Is(err, r.err) {
			return r.reason
		}
	}
	return reasonOther
}
