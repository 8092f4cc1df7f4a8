// SPDX-License-Identifier: Apache-2.0

package step

import (
	"context"
	"errors"
	"testing"

	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/internal/journal"
	"github.com/gpu-dra/gpu-dra-driver/pkg/disk/store"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
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
		must(t, of.keep(device, journal.Partition{UUID: "MIG-1"}))
		uuids, err := n.list.KeptPartitions(t.Context())
		if err != nil || len(uuids) != want {
			t.Errorf("recorded in boot %s: %v, %v; want %d", boot, uuids, err, want)
		}
		names, err := s.recorded(t.Context(), device.Address)
		if err != nil || len(names) != want {
			t.Errorf("recorded in boot %s: %v, %v; want %d", boot, names, err, want)
		}
	}
}

// A file of another name does not keep claims from GPUs that have nothing to do with it.
func TestAStrangeRecordStopsNoClaimAndIsReportedByASweep(t *testing.T) {
	n := newNode(t)
	for _, records := range []*store.Store{n.keptRecords, n.modeRecords, n.sliceRecords, n.computeRecords} {
		must(t, records.Write("strange", []byte(`{}`)))
	}
	w := Work{Record: needsAll(t, n, "uid-a"), Others: n.journal.Others("uid-a")}
	if err := n.list.Clean(t.Context(), w); err != nil {
		t.Errorf("clean: %v", err)
	}
	for name, list := range map[string]func(context.Context) (map[gpu.PCIAddress]bool, error){"MIG modes": n.list.SwitchedModes, "compute modes": n.list.ExclusiveGPUs} {
		if got, err := list(t.Context()); err != nil || len(got) > 0 {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	if got, err := n.list.KeptPartitions(t.Context()); err != nil || len(got) > 0 {
		t.Errorf("kept partitions: %v, %v", got, err)
	}
	for _, s := range n.list {
		_, changes := s.(interface {
			changedGPUs(context.Context) (map[gpu.PCIAddress]bool, error)
		})
		if !changes {
			continue
		}
		if got, err := s.(Sweeper).Leftovers(t.Context()); !errors.Is(err, gpu.ErrInvalid) || len(got) > 0 {
			t.Errorf("leftovers of %s: %v, %v; want %v", s.Name(), got, err, gpu.ErrInvalid)
		}
	}
}
