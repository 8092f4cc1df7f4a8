// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

const repairedFormat = "want DEVICE@TIME, such as gpu-1b-00@2026-01-31T12:00:00Z or all@2026-01-31T12:00:00Z; several with commas"

// repair is one entry of the annotation.
type repair struct {
	device string
	until  time.Time
	text   string
}

// parseRepaired returns the entries of the annotation. The error wraps
// [gpu.ErrInvalid].
func parseRepaired(value string) ([]repair, error) {
	var repairs []repair
	if strings.TrimSpace(value) == "" {
		return nil, nil
	}
	for entry := range strings.SplitSeq(value, ",") {
		entry = strings.TrimSpace(entry)
		device, when, _ := strings.Cut(entry, "@")
		until, err := time.Parse(time.RFC3339, when)
		if device == "" || err != nil {
			return nil, fmt.Errorf("the node's annotation %s is not followed: %w entry %q: %s", v1alpha1.AnnotationRepaired, gpu.ErrInvalid, entry, repairedFormat)
		}
		repairs = append(repairs, repair{device, until, entry})
	}
	return repairs, nil
}

// names reports whether the entry is about a GPU.
func (r repair) names(uuid, address string) bool {
	if r.device == "all" || r.device == uuid {
		return true
	}
	parsed, err := gpu.ParsePCIAddress(address)
	return err == nil && r.device == parsed.DeviceName()
}

// end returns the causes that remain and the causes that the entry ends. An entry with the time
// at which the fault began, as published, names that fault: its clock is the agent's own. Any
// other time ends the causes up to then. A cause that was reported later than the entry remains, and
// a recovery action, because the next scan would find it again.
func (r repair) end(causes []cause) (left []cause, over []ended) {
	named := len(causes) > 0 && !causes[0].recovery() && causes[0].First.Truncate(time.Second).Equal(r.until)
	for _, c := range causes {
		if c.recovery() || slices.Contains(c.Declared, r.text) || !named && c.Last.After(r.until) {
			left = append(left, c)
			continue
		}
		over = append(over, ended{c, "an administrator has declared the GPU repaired"})
	}
	return left, over
}

// repair ends the causes that an administrator has declared ended. The error says
// which entries have no effect.
func (k *knowledge) repair(repairs []repair, now time.Time) error {
	var problems []string
	for _, r := range repairs {
		if r.until.After(now) {
			problems = append(problems, r.text+" is in the future")
			continue
		}
		known := r.device == "all"
		for _, address := range k.addresses() {
			known = known || r.names(k.gpus[address].GPU.UUID, address.String())
		}
		for _, uuid := range k.faulty() {
			f := k.faults[uuid]
			if !r.names(uuid, f.Address) {
				continue
			}
			known = true
			left, over := r.end(f.Causes)
			if len(over) > 0 {
				k.setCauses(uuid, left)
				k.end(uuid, over)
			}
		}
		if !known {
			problems = append(problems, fmt.Sprintf("%s names no GPU of this node (%s)", r.text, strings.Join(k.deviceNames(), ", ")))
		}
	}
	if len(problems) == 0 {
		return nil
	}
	return fmt.Errorf("the node's annotation %s: %w: %s", v1alpha1.AnnotationRepaired, gpu.ErrInvalid, strings.Join(slices.Compact(problems), "; "))
}
