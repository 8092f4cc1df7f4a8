// SPDX-License-Identifier: Apache-2.0

package claim_test

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

const part = h100 + "-mig-1g-10gb-2"

func TestSharesOfOneMIGDevice(t *testing.T) {
	w := newMIGWorld(t, t.TempDir(), "dgx-h100").withSharing()
	m, other := w.start(), w.start()
	a, b := pieces("a", piece{device: part, memory: "2Gi"}), pieces("b", piece{device: part, memory: "4Gi"})
	first, err := m.Prepare(once(), a)
	must(t, err)
	second, err := other.Prepare(once(), b)
	must(t, err)
	uuid := w.uuids(0)[0]
	if first[0].UUID != uuid || second[0].UUID != uuid {
		t.Errorf("%s and %s, want both on %s", first[0].UUID, second[0].UUID, uuid)
	}
	require.Same(t, "daemons", part+" of "+uuid+"=4096M, 41%\n", w.supervisor.String())
	_, err = m.Prepare(once(), pieces("c", piece{device: part, memory: "6Gi"}))
	require.Error(t, "more than is left", err, gpu.ErrInUse, "6Gi are held by 2 other claims")
	_, err = m.Prepare(once(), pieces("c", piece{device: part, memory: "3Gi", config: config("ShareConfig", `"processes":5`)}))
	require.Error(t, "more clients than its part of those of a seventh of the GPU", err, gpu.ErrInvalid, "a share of 3Gi has 1 of the 6 processes that MPS admits at a time to the device with 9984Mi")
	// No request policy keeps a MIG device's shares to the smallest.
	_, err = m.Prepare(once(), pieces("c", piece{device: part, memory: "1023Mi"}))
	require.Error(t, "less than the smallest share", err, gpu.ErrInvalid, "1023Mi of memory; the smallest share on this node has 1Gi")
	for _, device := range []string{part, h100, h100 + "-ts"} {
		if _, err := m.Prepare(once(), pieces("d", piece{device: device})); !errors.Is(err, gpu.ErrInUse) {
			t.Errorf("%s: %v, want %v", device, err, gpu.ErrInUse)
		}
	}
	// The last claim destroys the partition, also if another claim created it.
	must(t, other.Unprepare(once(), a.UID))
	require.Same(t, "cuts", "0 on: 1g.10gb@2\n", w.cuts())
	must(t, m.Unprepare(once(), b.UID))
	wantNothing(t, w.left(m))
}

func TestAnAdministratorsPartitionIsSharedAndStays(t *testing.T) {
	w := newMIGWorld(t, t.TempDir(), "dgx-h100").withSharing()
	w.static = true
	w.administrator("makes", 0, "1g.10gb", 2)
	w.scan()
	m := w.start()
	for _, name := range []string{"a", "b"} {
		must(t, errOf(m.Prepare(once(), pieces(name, piece{device: part, memory: "2Gi"}))))
	}
	for _, name := range []string{"a", "b"} {
		must(t, m.Unprepare(once(), pieces(name).UID))
	}
	require.Same(t, "left", "0 on: 1g.10gb@2\n", w.left(m))
}

func TestAWholeMIGDeviceThatProcessesShare(t *testing.T) {
	w := newMIGWorld(t, t.TempDir(), "dgx-h100").withSharing()
	m, c := w.start(), pieces("c", piece{device: part, config: config("MigConfig", `"sharing":{"strategy":"MPS","mps":{"threadPercentage":30,"memoryLimit":"3Gi"}}`)})
	must(t, errOf(m.Prepare(once(), c)))
	require.Same(t, "daemons", part+" of "+w.uuids(0)[0]+"=3072M, 30%\n", w.supervisor.String())
	two := pieces("two", piece{device: h100Other + "-mig-1g-10gb-0", request: "r", config: config("MigConfig", together)}, piece{device: h100Other + "-mig-1g-10gb-1", request: "r"})
	require.Error(t, "two of them", errOf(m.Prepare(once(), two)), gpu.ErrInvalid, "a CUDA process uses one MIG device; make a request of each")
	must(t, m.Unprepare(once(), c.UID))
	wantNothing(t, w.left(m))
}

// A reset removes the partition while claims share it. Recovery creates one partition
// again, and the daemon serves it.
func TestASharedPartitionIsCreatedAgainAfterAReset(t *testing.T) {
	w := newMIGWorld(t, t.TempDir(), "dgx-h100").withSharing()
	m := w.start()
	all := []*resourceapi.ResourceClaim{pieces("a", piece{device: part, memory: "2Gi"}), pieces("b", piece{device: part, memory: "4Gi"})}
	for _, c := range all {
		must(t, errOf(m.Prepare(once(), c)))
	}
	before := w.uuids(0)
	must(t, w.sim.ResetGPU(0))
	m, _ = w.restart(t.Context())
	anew := w.uuids(0)
	if len(anew) != 1 || anew[0] == before[0] || !strings.Contains(w.supervisor.String(), " of "+anew[0]+"=") {
		t.Errorf("before %v, now %v with daemons\n%s", before, anew, w.supervisor)
	}
	for _, c := range slices.Backward(all) {
		devices, err := m.Prepare(once(), c)
		if err != nil || devices[0].UUID != anew[0] {
			t.Errorf("%s: %+v, %v", c.Name, devices, err)
		}
	}
	for _, c := range all {
		must(t, m.Unprepare(once(), c.UID))
	}
	wantNothing(t, w.left(m))
}

// A share whose record is lost is still a share: its device is not assigned to a
// claim as a whole, its partition and daemon stay, and its ceilings are not lowered.
func TestALostShare(t *testing.T) {
	w := newMIGWorld(t, t.TempDir(), "dgx-h100").withSharing()
	m := w.start()
	lost, small := pieces("lost", piece{device: part, memory: "5Gi"}), pieces("small", piece{device: part, memory: "2Gi"})
	other := pieces("other", piece{device: part, memory: "1Gi"})
	for _, c := range []*resourceapi.ResourceClaim{small, lost} {
		must(t, errOf(m.Prepare(once(), c)))
	}
	before := w.supervisor.String()
	must(t, os.WriteFile(w.recordPath(lost), []byte("x"), 0o600))
	m, report := w.restart(t.Context())
	if len(report.Unrecorded) != 1 || len(report.Swept["StartMPS"]) != 0 {
		t.Errorf("report %+v", report)
	}
	if _, err := m.Prepare(once(), pieces("whole", piece{device: part})); !errors.Is(err, gpu.ErrInUse) || !strings.Contains(err.Error(), "another claim holds "+part+" (unrecorded)") {
		t.Errorf("the device as a whole: %v, want %v", err, gpu.ErrInUse)
	}
	if _, err := m.Prepare(once(), other); err != nil {
		t.Errorf("one more share: %v", err)
	}
	for _, c := range []*resourceapi.ResourceClaim{small, other} {
		must(t, m.Unprepare(once(), c.UID))
	}
	w.restart(t.Context())
	require.Same(t, "partitions and daemons", "0 on: 1g.10gb@2\n"+before, w.cuts()+w.supervisor.String())
	all, err := m.Held(t.Context())
	if err != nil || len(all) != 1 || all[0].Devices[0].ShareID == nil || all[0].Devices[0].Terms.Share == nil {
		t.Errorf("held %+v, %v, want the share as one", all, err)
	}
	t.Run("not prepared again", func(t *testing.T) {
		require.Error(t, "error", errOf(m.Prepare(once(), lost)), gpu.ErrNotFound)
		require.Same(t, "daemons", before, w.supervisor.String())
	})
	t.Run("unprepared", func(t *testing.T) {
		must(t, m.Unprepare(once(), lost.UID))
		left := strings.Split(w.left(m), "\n")
		if left = slices.DeleteFunc(left, func(f string) bool { return strings.HasPrefix(f, "records/quarantine/") || f == "" }); len(left) > 0 {
			t.Errorf("left behind: %q", left)
		}
	})
}

func TestAWholeMIGDeviceHasNoMoreClientsThanItAdmits(t *testing.T) {
	w := newMIGWorld(t, t.TempDir(), "dgx-h100").withSharing()
	_, err := w.start().Prepare(once(), pieces("a", piece{device: part, config: config("ShareConfig", `"processes":7`)}))
	if !errors.Is(err, gpu.ErrInvalid) || !strings.Contains(err.Error(), "has 6 of the 6 processes that MPS admits") || !strings.HasSuffix(err.Error(), "; declare 6 in the ShareConfig") {
		t.Errorf("error %v, want ErrInvalid with the reason", err)
	}
}
