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
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/internal/plan"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/share"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind/kindtest"
)

// goldenRecords are records of every released version. A file is never changed:
// nodes have such records on their disks.
func goldenRecords() map[string]*Record {
	id := types.UID("f3f3f3f3-0000-4000-8000-000000000000")
	prepared := func() *Record {
		return &Record{
			Version: 1,
			BootID:  "6a1e2c9e-7d0e-4b0c-9a7e-3f6f0d1c2b3a",
			Plan: plan.Plan{Claim: plan.Ref{Namespace: "team-a", Name: "pair", UID: "0b9d7ad5-2e53-4b0e-8f7e-2c1d5f0a9b11"}, Devices: []plan.Device{
				{Request: "big", Pool: "node-1", Name: kindtest.Name("gpu-1b-00"), ShareID: &id, UUID: "GPU-1"},
				{Request: "any/small", Pool: "node-1", Name: kindtest.Name("gpu-0001-43-00-0"), UUID: "GPU-2"},
			}},
			Progress: Progress{Journal: []Entry{{Step: "WriteCDI", State: Done, Result: json.RawMessage(`{"ids":["gpu.nvidia.com/claim=a","gpu.nvidia.com/claim=b"]}`)}}},
		}
	}
	preparing, unpreparing := prepared(), prepared()
	preparing.Journal = []Entry{{Step: "WriteCDI", State: Started}}
	unpreparing.Unpreparing = true
	records := map[string]*Record{"v1-prepared": prepared(), "v1-preparing": preparing, "v1-unpreparing": unpreparing}

	whole, part, found := kindtest.Name("gpu-43-00"), kindtest.Name("gpu-1b-00-mig-2g-20gb-4"), kindtest.Name("gpu-52-00-mig-1g-10gb-me-0")
	cut := prepared()
	cut.Version = 2
	cut.Devices = []plan.Device{
		{Request: "whole", Pool: "node-1", Name: whole, UUID: "GPU-2"},
		{Request: "part", Pool: "node-1", Name: part, UUID: "GPU-1"},
		{Request: "part", Pool: "node-1", Name: found, UUID: "GPU-3"},
	}
	cut.Journal = []Entry{
		{Step: "EnsureMIGMode", Device: kindtest.Name("gpu-1b-00"), State: Done},
		{Step: "CreatePartition", Device: part, State: Done, Result: json.RawMessage(`{"uuid":"MIG-1","gpuInstance":5}`)},
		{Step: "CreatePartition", Device: found, State: Done, Result: json.RawMessage(`{"found":true,"uuid":"MIG-2","gpuInstance":7,"computeInstance":1}`)},
		{Step: "WriteCDI", State: Done, Result: json.RawMessage(`{"ids":["gpu.nvidia.com/claim=a","gpu.nvidia.com/claim=b","gpu.nvidia.com/claim=c"]}`)},
	}
	records["v2-prepared"] = cut

	// Before it is known the new partition.
	half := prepared()
	half.Version, half.Devices = 2, cut.Devices[1:2]
	half.Journal = []Entry{
		{Step: "EnsureMIGMode", Device: kindtest.Name("gpu-1b-00"), State: Done},
		{Step: "CreatePartition", Device: part, State: Started, Result: json.RawMessage(`{}`)},
		{Step: "WriteCDI"},
	}
	records["v2-preparing"] = half

	shared := prepared()
	shared.Version = 3
	slice := kindtest.Name("gpu-61-00-ts")
	shared.Devices = []plan.Device{
		{Request: "a", Pool: "node-1", Name: part, ShareID: &id, UUID: "GPU-1", Terms: share.Terms{Share: &share.Amount{Memory: 5 << 30, Compute: 20},
			MPS: &share.Client{Daemon: part, Processes: 2, ThreadPercentage: 10, MemoryLimit: 2 << 30}}},
		{Request: "b", Pool: "node-1", Name: whole, ShareID: &id, UUID: "GPU-2", Terms: share.Terms{Share: &share.Amount{Memory: 1 << 30}}},
		{Request: "c", Pool: "node-1", Name: kindtest.Name("gpu-c3-00"), UUID: "GPU-5", Terms: share.Terms{MPS: &share.Client{Daemon: kindtest.Name("gpu-c3-00"), ThreadPercentage: 50}}},
		{Request: "d", Pool: "node-1", Name: slice, ShareID: &id, UUID: "GPU-4", Terms: share.Terms{TimeSlice: gpu.TimeSliceLong}},
	}
	shared.Journal = []Entry{
		{Step: "EnsureMIGMode", Device: kindtest.Name("gpu-1b-00"), State: Done},
		{Step: "CreatePartition", Device: part, State: Done, Result: json.RawMessage(`{"uuid":"MIG-1","gpuInstance":5}`)},
		{Step: "SetTimeSlice", Device: kindtest.Name("gpu-61-00"), State: Done},
		{Step: "StartMPS", Device: part, State: Done, Result: json.RawMessage(`{"pipe":"/run/x/pipe","shm":"/run/x/shm"}`)},
		{Step: "StartMPS", Device: kindtest.Name("gpu-c3-00"), State: Done, Result: json.RawMessage(`{"pipe":"/run/y/pipe","shm":"/run/y/shm"}`)},
		{Step: "WriteCDI", State: Done, Result: json.RawMessage(`{"ids":["gpu.nvidia.com/claim=a","gpu.nvidia.com/claim=b","gpu.nvidia.com/claim=c","gpu.nvidia.com/claim=d"]}`)},
	}
	records["v3-prepared"] = shared
	starting := prepared()
	starting.Version, starting.Devices = 3, shared.Devices[2:3]
	starting.Journal = []Entry{{Step: "StartMPS", Device: kindtest.Name("gpu-c3-00"), State: Started}, {Step: "WriteCDI"}}
	records["v3-preparing"] = starting

	watching := prepared()
	watching.Version = 4
	watching.Devices = []plan.Device{{Request: "gpus", Pool: "node-1", Name: kindtest.Name("node-gpus")}, shared.Devices[1]}
	records["v4-prepared"] = watching

	sliced := prepared()
	sliced.Version = 5
	sliced.Devices = []plan.Device{{Request: "slot", Pool: "node-1", Name: slice, ShareID: &id, UUID: "GPU-4", Terms: share.Terms{Share: &share.Amount{Memory: 10 << 30}}}}
	sliced.Journal = []Entry{{Step: "WriteCDI", State: Done, Result: json.RawMessage(`{"ids":["gpu.nvidia.com/claim=a"]}`)}}
	records["v5-slots"] = sliced

	exclusive := prepared()
	exclusive.Version = 5
	exclusive.Devices = []plan.Device{{Request: "a", Pool: "node-1", Name: whole, ShareID: &id, UUID: "GPU-2", Terms: share.Terms{Share: &share.Amount{Memory: 5 << 30},
		MPS: &share.Client{Daemon: whole, Processes: 1, ThreadPercentage: 6, MemoryLimit: 4 << 30}, Exclusive: true}}}
	exclusive.Journal = []Entry{
		{Step: "SetComputeMode", Device: whole, State: Done},
		{Step: "StartMPS", Device: whole, State: Done, Result: json.RawMessage(`{"pipe":"/run/x/pipe","shm":"/run/x/shm"}`)},
		{Step: "WriteCDI", State: Done, Result: json.RawMessage(`{"ids":["gpu.nvidia.com/claim=a"]}`)},
	}
	records["v5-exclusive"] = exclusive

	limited := prepared()
	limited.Version = 5
	limited.Devices = []plan.Device{
		{Request: "a", Pool: "node-1", Name: whole, ShareID: &id, UUID: "GPU-2", Terms: share.Terms{Share: &share.Amount{Memory: 4 << 30}, Limit: &share.Limit{Memory: 2 << 30, Containers: 2}}},
	}
	limited.Journal = []Entry{
		{Step: "LimitMemory", State: Done},
		{Step: "WriteCDI", State: Done, Result: json.RawMessage(`{"ids":["gpu.nvidia.com/claim=a"]}`)},
	}
	records["v5-limited"] = limited

	named := prepared()
	named.Version = 5
	named.Devices = []plan.Device{{Request: "a", Pool: "node-1", Name: whole, ShareID: &id, UUID: "GPU-2", Terms: share.Terms{Share: &share.Amount{Memory: 5 << 30},
		MPS: &share.Client{Daemon: whole, Processes: 1, ThreadPercentage: 6, MemoryLimit: 4 << 30, Namespace: "f3f3f3f3000040008000000000000000"}}}}
	named.Journal = []Entry{
		{Step: "StartMPS", Device: whole, State: Done, Result: json.RawMessage(`{"pipe":"/run/x/pipe/s","shm":"/run/x/shm"}`)},
		{Step: "WriteCDI", State: Done, Result: json.RawMessage(`{"ids":["gpu.nvidia.com/claim=a"]}`)},
	}
	records["v5-namespace"] = named

	seated := prepared()
	seated.Version = 5
	seated.Devices = []plan.Device{{Request: "seat", Pool: "node-1", Name: kindtest.Name("gpu-61-00-seat"), ShareID: &id, UUID: "GPU-4", Terms: share.Terms{Share: &share.Amount{Memory: 20 << 30, Compute: 25},
		MPS: &share.Client{Daemon: kindtest.Name("gpu-61-00"), Processes: 1, ThreadPercentage: 25, MemoryLimit: 19 << 30}}}}
	seated.Journal = []Entry{
		{Step: "StartMPS", Device: kindtest.Name("gpu-61-00"), State: Done, Result: json.RawMessage(`{"pipe":"/run/x/pipe","shm":"/run/x/shm"}`)},
		{Step: "WriteCDI", State: Done, Result: json.RawMessage(`{"ids":["gpu.nvidia.com/claim=a"]}`)},
	}
	records["v5-seats"] = seated

	charged := prepared()
	charged.Version = 5
	charged.Devices = []plan.Device{{Request: "slot", Class: "timeslice.nvidia.com", Pool: "node-1", Name: slice, ShareID: &id, UUID: "GPU-4", Terms: share.Terms{Slots: 2}}}
	charged.Journal = sliced.Journal
	records["v5-class"] = charged
	return records
}

func TestRecordsOfEveryReleaseAreRead(t *testing.T) {
	phases := map[string]Phase{
		"v1-prepared": Prepared, "v1-preparing": Preparing, "v1-unpreparing": Unpreparing,
		"v2-prepared": Prepared, "v2-preparing": Preparing,
		"v3-prepared": Prepared, "v3-preparing": Preparing,
		"v4-prepared": Prepared, "v5-slots": Prepared, "v5-exclusive": Prepared, "v5-limited": Prepared, "v5-namespace": Prepared, "v5-seats": Prepared, "v5-class": Prepared,
	}
	for name, want := range goldenRecords() {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join("testdata", "records", name+".json")
			if _, err := os.Stat(file); os.IsNotExist(err) && os.Getenv("UPDATE_GOLDEN") != "" {
				payload, err := json.Marshal(want)
				if err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(file, payload, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			payload, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got, err := decode(want.Claim.UID, payload)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if got := got.Phase(want.BootID); got != phases[name] {
				t.Errorf("phase %s, want %s", got, phases[name])
			}
			if got := got.Phase("another"); got != Outlived {
				t.Errorf("after a reboot: phase %s, want %s", got, Outlived)
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
			if err != nil {
				t.Fatal(err)
			}
			if _, err := decode(claim, payload); !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
		})
	}
}

func TestARecordWithStrangeNames(t *testing.T) {
	r := goldenRecords()["v3-prepared"]
	whole, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
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
	if !errors.Is(err, gpu.ErrNotSupported) {
		t.Errorf("got %v, want %v", err, gpu.ErrNotSupported)
	}
}

func FuzzDecodeRecord(f *testing.F) {
	for _, r := range goldenRecords() {
		payload, err := json.Marshal(r)
		if err != nil {
			f.Fatal(err)
		}
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
		if err != nil {
			t.Fatal(err)
		}
		if _, err := decode(r.Claim.UID, again); err != nil {
			t.Errorf("a decoded record cannot be encoded and decoded again: %v", err)
		}
	})
}
