// SPDX-License-Identifier: Apache-2.0

package rows

import (
	"errors"
	"strings"

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

// reasons are the codes of conditions that are not met, and the sentences about a node.
var reasons = map[fleet.Condition]struct{ code, text string }{
	fleet.ConditionHolders:     {CodeInUse, "other claims hold the devices"},
	fleet.ConditionTaints:      {CodeTainted, "devices have taints"},
	fleet.ConditionConstraints: {CodeConstraint, "no such group of devices meets the constraints of the claim"},
	fleet.ConditionSelectors:   {CodeSelector, "no device meets the selectors"},
	fleet.ConditionSize:        {CodeTooSmall, "no device is large enough"},
	fleet.ConditionClass:       {CodeOtherClass, "it has no device of the class"},
	fleet.ConditionPool:        {CodePoolRefused, "the scheduler refuses the pool of its devices"},
}

// Missing returns the reason why claims do not fit on a node, and its code. The code is
// [CodeExcluded] if the pod cannot run there for reasons apart from devices. Of several conditions,
// the reason is the first.
func (c *Cluster) Missing(v fleet.Verdict) (code, text string) {
	switch {
	case v.Excluded != nil:
		return CodeExcluded, strings.Join(v.Excluded, "; ")
	case errors.Is(v.Problem, fleet.ErrNotExamined):
		return CodeNotExamined, v.Problem.Error()
	case errors.Is(v.Problem, fleet.ErrPoolRefused):
		return CodePoolRefused, v.Problem.Error()
	case errors.Is(v.Problem, gpu.ErrNotReady):
		return CodePoolIncomplete, v.Problem.Error()
	case v.Problem != nil:
		return CodeSearchFailed, v.Problem.Error()
	case v.Missing == nil && !c.Publishes(v.Node):
		return CodeNothingPublished, "it publishes no devices"
	case v.Missing == nil:
		return CodeTooFewDevices, "it has too few devices"
	default:
		r := reasons[v.Missing[0]]
		return r.code, r.text
	}
}
