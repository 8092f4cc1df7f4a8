// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"encoding/json"
)

// Entry is one step of a plan in the journal.
type Entry struct {
	Step string `json:"step"`
	// Device is a device of the claim or the GPU of one. It is empty for a step
	// about the claim as a whole.
	Device string `json:"device,omitempty"`
	// State is empty while the step is only planned.
	State State `json:"state,omitempty"`
	// Result contains the data that the step needs to be done again or undone, such
	// as the ID of a created object. Each step has its own format.
	Result json.RawMessage `json:"result,omitempty"`
}

// State of a step.
type State string

// The states.
const (
	// Planned is a step that has not begun.
	Planned State = ""
	// Started is a step that may have acted.
	Started State = "started"
	// Done is a step that has acted.
	Done State = "done"
	// Lost is a step that the claim may have done before its record was lost. It is
	// in no file.
	Lost State = "lost"
)

func (e Entry) is(step, device string) bool { return e.Step == step && e.Device == device }
