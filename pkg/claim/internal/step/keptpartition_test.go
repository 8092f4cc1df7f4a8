// SPDX-License-Identifier: Apache-2.0

package step

import (
	"testing"

	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/internal/journal"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// A partition can have the UUID that another one had before a reboot.
func TestAKeptPartitionOfAnotherBootIsNotThisDrivers(t *testing.T) {
	const device = "gpu-1b-00-mig-1g-10gb-0"
	n := newNode(t)
	s, ok := n.list[1].(createPartition)
	if !ok {
		t.Fatalf("the step is a %T", n.list[1])
	}
	for boot, want := range map[string]int{"boot-0": 0, s.BootID: 1} {
		of := s
		of.BootID = boot
		if err := of.keep(device, journal.Partition{UUID: "MIG-1"}); err != nil {
			t.Fatal(err)
		}
		uuids, err := KeptPartitions(t.Context(), s.Options)
		if err != nil || len(uuids) != want {
			t.Errorf("recorded in boot %s: %v, %v; want %d", boot, uuids, err, want)
		}
		names, err := s.keptOn(t.Context(), gpu.PCIAddress{Bus: 0x1b})
		if err != nil || len(names) != want {
			t.Errorf("recorded in boot %s: %v, %v; want %d", boot, names, err, want)
		}
	}
}
