// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/internal/plan"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/share"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind/kindtest"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

// goldenRecords are records of every released version. A file of a released version is never
// changed: nodes have such records on their disks.
func goldenRecords() map[string]*Record {
	id := types.UID("f3f3f3f3-0000-4000-8000-000000000000")
	record := func(devices []plan.Device, steps ...Entry) *Record {
		return &Record{
			Version:  1,
			BootID:   "6a1e2c9e-7d0e-4b0c-9a7e-3f6f0d1c2b3a",
			Plan:     plan.Plan{Claim: plan.Ref{Namespace: "team-a", Name: "pair", UID: "0b9d7ad5-2e53-4b0e-8f7e-2c1d5f0a9b11"}, Devices: devices},
			Progress: Progress{Journal: steps},
		}
	}
	whole, part, found := kindtest.Name("gpu-43-00"), kindtest.Name("gpu-1b-00-mig-2g-20gb-4"), kindtest.Name("gpu-52-00-mig-1g-10gb-me-0")
	slice, together, seats := kindtest.Name("gpu-61-00-ts"), kindtest.Name("gpu-c3-00"), kindtest.Name("gpu-62-00-seat")

	pair := []plan.Device{
		{Request: "big", Class: "gpu.nvidia.com", Pool: "node-1", Name: kindtest.Name("gpu-1b-00"), UUID: "GPU-1"},
		{Request: "any/small", Class: "gpu.nvidia.com", Pool: "node-1", Name: kindtest.Name("gpu-0001-43-00-0"), UUID: "GPU-2"},
	}
	written := Entry{Step: "WriteCDI", State: Done, Result: json.RawMessage(`{"ids":["gpu.nvidia.com/claim=a","gpu.nvidia.com/claim=b"]}`)}
	prepared, unpreparing := record(pair, written), record(pair, written)
	prepared.Pods = []types.UID{"1c6cbd1a-3d0c-4c4b-9c7d-4f3d0a2b1e01"}
	unpreparing.Unpreparing = true

	cut := []plan.Device{
		{Request: "part", Class: "mig.nvidia.com", Pool: "node-1", Name: part, UUID: "GPU-1"},
		{Request: "part", Class: "mig.nvidia.com", Pool: "node-1", Name: found, UUID: "GPU-3"},
	}
	mode := Entry{Step: "EnsureMIGMode", Device: kindtest.Name("gpu-1b-00"), State: Done}

	shared := []plan.Device{
		{Request: "a", Pool: "node-1", Name: part, ShareID: &id, UUID: "GPU-1", Terms: share.Terms{Share: &share.Amount{Memory: 5 << 30, Compute: 20},
			MPS: &share.Client{Daemon: part, Processes: 2, ThreadPercentage: 10, MemoryLimit: 2 << 30}}},
		{Request: "b", Pool: "node-1", Name: whole, ShareID: &id, UUID: "GPU-2", Terms: share.Terms{Share: &share.Amount{Memory: 5 << 30}, Exclusive: true,
			MPS: &share.Client{Daemon: whole, Processes: 1, ThreadPercentage: 6, MemoryLimit: 4 << 30, Namespace: "f3f3f3f3000040008000000000000000"}}},
		{Request: "c", Pool: "node-1", Name: together, UUID: "GPU-5", Terms: share.Terms{MPS: &share.Client{Daemon: together, ThreadPercentage: 50}}},
		{Request: "d", Pool: "node-1", Name: slice, ShareID: &id, UUID: "GPU-4", Terms: share.Terms{TimeSlice: gpu.TimeSliceLong, Slots: 2}},
		{Request: "e", Pool: "node-1", Name: kindtest.Name("gpu-63-00"), ShareID: &id, UUID: "GPU-7", Terms: share.Terms{Share: &share.Amount{Memory: 4 << 30},
			Limit: &share.Limit{Memory: 2 << 30, Containers: 2}, Require: v1alpha1.EnforcementDriver}},
		{Request: "f", Pool: "node-1", Name: seats, ShareID: &id, UUID: "GPU-6", Terms: share.Terms{Share: &share.Amount{Memory: 20 << 30, Compute: 25},
			MPS: &share.Client{Daemon: kindtest.Name("gpu-62-00"), Processes: 1, ThreadPercentage: 25, MemoryLimit: 19 << 30}}},
		{Request: "g", Pool: "node-1", Name: kindtest.Name("node-gpus")},
	}
	daemon := json.RawMessage(`{"pipe":"/run/x/pipe","shm":"/run/x/shm"}`)

	return map[string]*Record{
		"v1-prepared":    prepared,
		"v1-preparing":   record(pair, Entry{Step: "WriteCDI", State: Started}),
		"v1-unpreparing": unpreparing,
		"v1-mig-prepared": record(cut, mode,
			Entry{Step: "CreatePartition", Device: part, State: Done, Result: json.RawMessage(`{"uuid":"MIG-1","gpuInstance":5}`)},
			Entry{Step: "CreatePartition", Device: found, State: Done, Result: json.RawMessage(`{"found":true,"uuid":"MIG-2","gpuInstance":7,"computeInstance":1}`)},
			written),
		// Before the new partition is known.
		"v1-mig-preparing": record(cut[:1], mode, Entry{Step: "CreatePartition", Device: part, State: Started, Result: json.RawMessage(`{}`)}, Entry{Step: "WriteCDI"}),
		"v1-shares-prepared": record(shared, mode,
			Entry{Step: "CreatePartition", Device: part, State: Done, Result: json.RawMessage(`{"uuid":"MIG-1","gpuInstance":5}`)},
			Entry{Step: "SetTimeSlice", Device: kindtest.Name("gpu-61-00"), State: Done},
			Entry{Step: "SetComputeMode", Device: whole, State: Done},
			Entry{Step: "StartMPS", Device: part, State: Done, Result: daemon},
			Entry{Step: "StartMPS", Device: whole, State: Done, Result: daemon},
			Entry{Step: "StartMPS", Device: together, State: Done, Result: daemon},
			Entry{Step: "StartMPS", Device: kindtest.Name("gpu-62-00"), State: Done, Result: daemon},
			Entry{Step: "LimitMemory", State: Done},
			Entry{Step: "WriteCDI", State: Done, Result: json.RawMessage(`{"ids":["a","b","c","d","e","f","g"]}`)}),
		"v1-shares-preparing": record(shared[2:3], Entry{Step: "StartMPS", Device: together, State: Started}, Entry{Step: "WriteCDI"}),
	}
}

func TestRecordsOfEveryReleaseAreRead(t *testing.T) {
	for name, want := range goldenRecords() {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join("testdata", "records", name+".json")
			if _, err := os.Stat(file); os.IsNotExist(err) && os.Getenv("UPDATE_GOLDEN") != "" {
				payload, err := json.Marshal(want)
				must(t, err)
				must(t, os.WriteFile(file, payload, 0o644))
			}
			payload, err := os.ReadFile(file)
			must(t, err)
			got, err := decode(want.Claim.UID, payload)
			must(t, err)
			require.Same(t, "result", want, got)
			if phase := strings.ToLower(string(got.Phase(want.BootID))); phase != name[strings.LastIndex(name, "-")+1:] {
				t.Errorf("phase %s", phase)
			}
			if got := got.Phase("another"); got != Stale {
				t.Errorf("after a reboot: phase %s, want %s", got, Stale)
			}
		})
	}
}

func TestRecordsThatCannotBeTrusted(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Record)
		want   error
	}{
		"of another claim":         {func(r *Record) { r.Claim.UID = "another" }, gpu.ErrCorrupt},
		"without a version":        {func(r *Record) { r.Version = 0 }, gpu.ErrCorrupt},
		"without devices":          {func(r *Record) { r.Devices = nil }, gpu.ErrCorrupt},
		"without steps":            {func(r *Record) { r.Journal = nil }, gpu.ErrCorrupt},
		"with a step of no device": {func(r *Record) { r.Journal = append(r.Journal, Entry{Step: "CreatePartition"}) }, gpu.ErrCorrupt},
		"with a partition that cannot be read": {func(r *Record) {
			r.Journal = append(r.Journal, Entry{Step: "CreatePartition", Device: kindtest.Name("gpu-1b-00-mig-1g-10gb-0"), State: Started, Result: json.RawMessage(`[]`)})
		}, gpu.ErrCorrupt},
		"with a share of nothing":    {func(r *Record) { r.Devices[0].Share = &share.Amount{} }, gpu.ErrCorrupt},
		"with a client of no daemon": {func(r *Record) { r.Devices[0].MPS = &share.Client{} }, gpu.ErrCorrupt},
		"with strange folders": {func(r *Record) {
			r.Journal = append(r.Journal, Entry{Step: "StartMPS", Device: kindtest.Name("gpu-1b-00"), State: Done, Result: json.RawMessage(`"x"`)})
		}, gpu.ErrCorrupt},
		"with a device without a name": {func(r *Record) { r.Devices[0].Name = kind.Name{} }, gpu.ErrCorrupt},
		"with too few IDs":             {func(r *Record) { r.Journal[0].Result = json.RawMessage(`{"ids":["a"]}`) }, gpu.ErrCorrupt},
		"of a newer release":           {func(r *Record) { r.Version = Version + 1 }, gpu.ErrNotSupported},
	} {
		t.Run(name, func(t *testing.T) {
			r := goldenRecords()["v1-prepared"]
			claim := r.Claim.UID
			c.change(r)
			payload, err := json.Marshal(r)
			must(t, err)
			_, err = decode(claim, payload)
			require.Error(t, "decode", err, c.want)
		})
	}
}

func TestARecordWithStrangeNames(t *testing.T) {
	r := goldenRecords()["v1-shares-prepared"]
	whole, err := json.Marshal(r)
	must(t, err)
	for name, entry := range map[string]string{
		"a device": `"device":"gpu-43-00","shareID"`, "a daemon": `"daemon":"gpu-c3-00"`, "a step's device": `"step":"SetTimeSlice","device":"gpu-61-00"`,
	} {
		strange := regexp.MustCompile(`"gpu-[^"]*"`).ReplaceAllString(entry, `"../x"`)
		payload := bytes.Replace(whole, []byte(entry), []byte(strange), 1)
		if _, err := decode(r.Claim.UID, payload); bytes.Equal(payload, whole) || !errors.Is(err, gpu.ErrCorrupt) {
			t.Errorf("%s: got %v, want %v", name, err, gpu.ErrCorrupt)
		}
	}
}

func TestARecordOfANewerShapeIsNotTakenForDamaged(t *testing.T) {
	_, err := decode("a", fmt.Appendf(nil, `{"version":%d,"claim":"team-a/a","devices":{"gpu":1}}`, Version+1))
	require.Error(t, "decode", err, gpu.ErrNotSupported)
}

func FuzzDecodeRecord(f *testing.F) {
	for _, r := range goldenRecords() {
		payload, err := json.Marshal(r)
		must(f, err)
		f.Add(payload)
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		r, err := decode("0b9d7ad5-2e53-4b0e-8f7e-2c1d5f0a9b11", payload)
		if (r == nil) != (err != nil) {
			t.Fatalf("both or neither of %v and %v", r, err)
		}
		if err != nil {
			if !errors.Is(err, gpu.ErrCorrupt) && !errors.Is(err, gpu.ErrNotSupported) {
				t.Errorf("%v is neither corrupt nor newer", err)
			}
			return
		}
		again, err := json.Marshal(r)
		must(t, err)
		if _, err := decode(r.Claim.UID, again); err != nil {
			t.Errorf("a decoded record cannot be encoded and decoded again: %v", err)
		}
	})
}

var must = require.NoError
