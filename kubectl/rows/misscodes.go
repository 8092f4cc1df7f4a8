// SPDX-License-Identifier: Apache-2.0

package rows

import (
	"errors"

	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// The codes of reasons for which claims do not fit. They are of nodes and of devices. Programs
// compare them, so they do not change.
const (
	CodeInUse         = "in-use"
	CodeTainted       = "tainted"
	CodeConstraint    = "constraint"
	CodeSelector      = "selector"
	CodeTooSmall      = "too-small"
	CodeOtherClass    = "other-class"
	CodeTooFewDevices = "too-few-devices"
	// CodeNothingPublished means that the node publishes no devices at all.
	CodeNothingPublished = "nothing-published"
	CodePoolRefused      = "pool-refused"
	CodePoolIncomplete   = "pool-incomplete"
	CodeNotExamined      = "not-examined"
	CodeSearchFailed     = "search-failed"
	CodeExcluded         = "excluded"
	CodeNoNode           = "no-node"
	CodeClaimNotCreated  = "claim-not-created"
)

// codeOf returns the code of a condition that is not met.
func codeOf(c fleet.Condition) string {
	switch c {
	case fleet.ConditionHolders:
		return CodeInUse
	case fleet.ConditionTaints:
		return CodeTainted
	case fleet.ConditionConstraints:
		return CodeConstraint
	case fleet.ConditionSelectors:
		return CodeSelector
	case fleet.ConditionSize:
		return CodeTooSmall
	case fleet.ConditionClass:
		return CodeOtherClass
	case fleet.ConditionPool:
		return CodePoolRefused
	default:
		return string(c)
	}
}

// codesOf returns the codes of conditions, in their order.
func codesOf(conditions []fleet.Condition) []string {
	codes := make([]string, len(conditions))
	for i, c := range conditions {
		codes[i] = codeOf(c)
	}
	return codes
}

// MissingCode returns the code of the reason that [Cluster.MissingText] returns. It returns
// [CodeExcluded] if the pod cannot run on the node for reasons apart from devices.
func (c *Cluster) MissingCode(v fleet.Verdict) string {
	switch {
	case v.Excluded != nil:
		return CodeExcluded
	case errors.Is(v.Problem, fleet.ErrNotExamined):
		return CodeNotExamined
	case errors.Is(v.Problem, fleet.ErrPoolRefused):
		return CodePoolRefused
	case errors.Is(v.Problem, gpu.ErrNotReady):
		return CodePoolIncomplete
	case v.Problem != nil:
		return CodeSearchFailed
	case v.Missing == nil && !c.Publishes(v.Node):
		return CodeNothingPublished
	case v.Missing == nil:
		return CodeTooFewDevices
	default:
		return codeOf(v.Missing[0])
	}
}
