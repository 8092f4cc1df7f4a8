// SPDX-License-Identifier: Apache-2.0

package step

import (
	"testing"

	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/internal/journal"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind/kindtest"
)

// A partition can have the UUID that another one had before a reboot.
func TestAKeptPartitionOfAnotherBootIsNotThisDrivers(t *testing.T) {
	device := kindtest.Name("gpu-1b-00-mig-1g-10gb-0")
	n := newNode(t)
	s, ok := find[createPartition](n.list)
	if !ok {
		t.Fatal("the node makes no partitions")
	}
	for boot, want := range map[string]int{"boot-0": 0, s.records.boot: 1} {
		of := s
		of.records.boot = boot
		if err := of.keep(device, journal.Partition{UUID: "MIG-1"}); err != nil {
			t.Fatal(err)
		}
		uuids, err := n.list.KeptPartitions(t.Context())
		if err != nil || len(uuids) != want {
			t.Errorf("recorded in boot %s: %v, %v; want %d", boot, uuids, err, want)
		}
		names, err := s.on(t.Context(), device.Address)
		if err != nil || len(names) != want {
			t.Errorf("recorded in boot %s: %v, %v; want %d", boot, names, err, want)
		}
	}
}
