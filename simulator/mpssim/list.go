// SPDX-License-Identifier: Apache-2.0

package mpssim

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/gpu-dra/gpu-dra-driver/simulator/nvmlsim"
	"github.com/gpu-dra/gpu-dra-driver/simulator/simerr"
)

// Listed is a daemon that has run on a node.
type Listed struct {
	Registration
	Running bool `json:"running"`
	// Record is nil if the log directory does not exist any more.
	Record *Record `json:"record,omitempty"`
}

// List returns the daemons of a node, also the ones that have ended, ordered by pipe
// directory.
func List(sim *nvmlsim.Sim) ([]Listed, error) {
	registrations, err := sim.MPSDaemons()
	if err != nil {
		return nil, err
	}
	daemons := []Listed{}
	for _, r := range registrations {
		d := Listed{Running: r.Running}
		if err := json.Unmarshal(r.Data, &d.Registration); err != nil {
			return nil, fmt.Errorf("MPS daemon %s: %w: %w", r.Name, simerr.ErrCorrupt, err)
		}
		if d.Record, err = ReadRecord(d.LogDirectory); err != nil && !errors.Is(err, simerr.ErrNotFound) {
			return nil, err
		}
		daemons = append(daemons, d)
	}
	slices.SortFunc(daemons, func(a, b Listed) int { return strings.Compare(a.PipeDirectory, b.PipeDirectory) })
	return daemons, nil
}
