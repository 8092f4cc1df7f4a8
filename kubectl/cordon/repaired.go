// SPDX-License-Identifier: Apache-2.0

package cordon

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// ends has what ends the faults that end by themselves. A name with a hyphen at its end is of a group of
// faults.
var ends = map[string]string{
	"lost":                "it ends when the GPU answers: reset the GPU or restart the node",
	"timeout":             "it ends when the GPU answers: reset the GPU or restart the node",
	"driver-not-ready":    "it ends when the driver is loaded",
	"permission-denied":   "it ends when the agent may read the GPU",
	"device-node-missing": "it ends when the device node exists: run nvidia-smi and nvidia-modprobe -u -c 0 as root on the node",
	"fabric-":             "it ends when the GPU has joined its fabric: start nvidia-fabricmanager, or nvidia-imex on multi-node NVLink",
	"recovery-":           "it ends when the driver no longer requests the recovery: follow " + gpu.Page("docs/admin/failed-gpus.md#repair-a-gpu"),
}

// CheckRepairable returns an error that wraps [gpu.ErrInvalid] if a declaration cannot end
// the fault: the fault ends by itself when the named condition is met.
func CheckRepairable(fault string) error {
	group, _, _ := strings.Cut(fault, "-")
	if end := cmp.Or(ends[fault], ends[group+"-"]); end != "" {
		return fmt.Errorf("fault %s: %w: a declaration cannot end it; %s", fault, gpu.ErrInvalid, end)
	}
	return nil
}

// Repaired is the change of a node's annotation that declares a GPU repaired.
type Repaired struct {
	// Value is the new value of the annotation.
	Value string
	// Dropped are entries that were not valid. One of them makes the agent ignore the
	// others.
	Dropped []string
}

// NewRepaired returns the annotation of a node with an entry for each fault of the GPU. An entry
// has the time at which the fault began, as the node published it: with the time of another clock
// it would also end later faults. It is now for a fault without a time. NewRepaired replaces
// earlier entries of the GPU, and keeps those of others.
func NewRepaired(old string, t Target, now time.Time) Repaired {
	var r Repaired
	var entries []string
	for entry := range strings.SplitSeq(old, ",") {
		entry = strings.TrimSpace(entry)
		device, when, _ := strings.Cut(entry, "@")
		_, err := time.Parse(time.RFC3339, when)
		switch {
		case entry == "", device == t.Name.GPU, device != "" && device == t.UUID:
		case device == "" || err != nil:
			r.Dropped = append(r.Dropped, entry)
		default:
			entries = append(entries, entry)
		}
	}
	for _, fault := range t.Faults() {
		began := now
		if !fault.TimeAdded.IsZero() {
			began = fault.TimeAdded.Time
		}
		if entry := t.Name.GPU + "@" + began.UTC().Format(time.RFC3339); !slices.Contains(entries, entry) {
			entries = append(entries, entry)
		}
	}
	r.Value = strings.Join(entries, ",")
	return r
}
