// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/internal/plan"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

// Version of the records that this release writes. It rises if an older release
// would misread or wrongly undo a record: with every new step and every new meaning,
// not with a field that the older release can ignore. A release reads the records of all
// releases before it: testdata/records has some of each version.
const Version = 1

// Record has the plan of a claim, and how far the plan has been carried out.
type Record struct {
	Version int    `json:"version"`
	BootID  string `json:"bootID"`
	plan.Plan
	Progress
}

// Progress is how far a plan has been carried out. Only the runner of the steps, which has
// the lock of the claim, changes it.
type Progress struct {
	// Journal holds the steps of the plan in their order.
	Journal []Entry `json:"journal"`
	// Unpreparing is set if undoing has begun and must be finished.
	Unpreparing bool `json:"unpreparing,omitempty"`
	// Pods are the UIDs of the pods that were seen with the claim, in ascending order: it
	// was reserved for them, or they had its devices. More pods may use it.
	Pods []types.UID `json:"pods,omitempty"`
}

// New returns the record of a plan of which no step has begun.
func New(bootID string, p plan.Plan, steps []Entry) *Record {
	return &Record{Version: Version, BootID: bootID, Plan: p, Progress: Progress{Journal: steps}}
}

// AddPods adds pods, and reports whether any of them is new to the record.
func (p *Progress) AddPods(pods []types.UID) bool {
	before := len(p.Pods)
	p.Pods = append(slices.Clone(p.Pods), pods...)
	slices.Sort(p.Pods)
	p.Pods = slices.Compact(p.Pods)
	return len(p.Pods) > before
}

// IsDone reports whether all steps are done.
func (p Progress) IsDone() bool {
	return !slices.ContainsFunc(p.Journal, func(e Entry) bool { return e.State != Done })
}

// Has reports whether the journal has the step for the device.
func (p Progress) Has(step string, device kind.Name) bool {
	return slices.ContainsFunc(p.Journal, func(e Entry) bool { return e.Step == step && e.Device == device })
}
