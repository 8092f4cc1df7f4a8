// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"encoding/json"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

// Entry is one step of a plan in the journal.
type Entry struct {
	Step string `json:"step"`
	// Device is a device of the claim or the GPU of one. It is unset for a step
	// about the claim as a whole.
	Device kind.Name `json:"device,omitzero"`
	// State is empty while the step is only planned.
	State State `json:"state,omitempty"`
	// Result contains the data for doing the step again or undoing it, such as an
	// object's ID. Each step has its own format.
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

func (e Entry) isFor(step string, device kind.Name) bool { return e.Step == step && e.Device == device }
