// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"testing"
)

// uuids returns the UUIDs of the MIG devices of the first GPU.
func (n *node) uuids(t *testing.T) []string {
	t.Helper()
	sim := n.sim(t)
	view, err := sim.View()
	if err != nil {
		t.Fatal(err)
	}
	var uuids []string
	for _, in := range view.GPUs[0].Instances {
		uuids = append(uuids, in.UUID)
	}
	return uuids
}
