package claim

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
	"github.com/gpu-dra/gpu-dra-driver/pkg/store"
)

// recordVersion rises whenever an older release would misread or wrongly undo a
// record of this one: with every new step and every new meaning, not with a
// field that it can ignore.
//
//	1  WriteCDI
//	2  EnsureMIGMode, CreatePartition, and steps that name a device
//	3  SetTimeSlice, StartMPS, and devices of which claims have parts
//	4  a device that is on no GPU and excludes nobody
const recordVersion = 4

// record is all that is remembered of a claim: facts only.
type record struct {
	Version int    `json:"version"`
	BootID  string `json:"bootID"`
	Claim   Ref    `json:"claim"`
	// Devices in the order of the allocation.
	Devices []allocated `json:"devices"`
	// Journal holds the steps of the plan in their order.
	Journal []entry `json:"journal"`
	// Unpreparing says that undoing has begun and must be finished.
	Unpreparing bool `json:"unpreparing,omitempty"`
	// Adopted says that the claim had all of its devices, and a CDI spec, when
	// the record before this one was lost.
	Adopted bool `json:"adopted,omitempty"`
	// Pods are the UIDs of the pods that the claim was reserved for whenever it was
	// prepared, in ascending order. More pods may use it.
	Pods []types.UID `json:"pods,omitempty"`
}

// addPods reports whether any of the pods is new to the record.
func (r *record) addPods(pods []types.UID) bool {
	before := len(r.Pods)
	r.Pods = append(slices.Clone(r.Pods), pods...)
	slices.Sort(r.Pods)
	r.Pods = slices.Compact(r.Pods)
	return len(r.Pods) > before
}

// allocated is one allocation result of ours.
type allocated struct {
	Request string     `json:"request"`
	Pool    string     `json:"pool"`
	Device  string     `json:"device"`
	ShareID *types.UID `json:"shareID,omitempty"`
	// UUID of the GPU that the device is on; empty where it is all of them.
	UUID string `json:"uuid"`
	// Share is nil where the claim has all of the device's memory, and on a
	// device that has none of its own.
	Share *share `json:"share,omitempty"`
	// MPS is set where those who use the device are clients of an MPS daemon.
	MPS *client `json:"mps,omitempty"`
	// TimeSlice that the claim wants of the GPU; empty where it takes what is
	// there.
	TimeSlice gpu.TimeSlice `json:"timeSlice,omitempty"`
}

// share is what a claim takes of a device. A claim without a readable record,
// of which only the CDI spec tells, has shares of unknown size: 0.
type share struct {
	Memory uint64 `json:"memory"` // bytes
	// Compute in percent of the multiprocessors, 0 where the claim named none.
	Compute int `json:"compute,omitempty"`
}

// client says which daemon the processes on a device are clients of, and what
// it and their environment hold each of them to. It is decided once: a change of
// flags must not change what runs.
type client struct {
	// Daemon is named after its first device.
	Daemon string `json:"daemon"`
	// Processes at a time among which the limits were divided; 0 where they are
	// not counted.
	Processes int `json:"processes,omitempty"`
	// ThreadPercentage is 0 for no limit.
	ThreadPercentage int `json:"threadPercentage,omitempty"`
	// MemoryLimit in bytes, 0 for no limit.
	MemoryLimit uint64 `json:"memoryLimit,omitempty"`
}

// same reports whether both are the same allocation result.
func (a allocated) same(b allocated) bool {
	return a.Request == b.Request && a.Pool == b.Pool && a.Device == b.Device && sameShare(a.ShareID, b.ShareID)
}

// sameShare reports whether both name the same share, or neither names one.
func sameShare(a, b *types.UID) bool {
	return a == b || a != nil && b != nil && *a == *b
}

func (r *record) sameAllocation(other *record) bool {
	return slices.EqualFunc(r.Devices, other.Devices, allocated.same)
}

// deviceNames in the order of the allocation.
func (r *record) deviceNames() []string {
	var names []string
	for _, d := range r.Devices {
		names = append(names, d.Device)
	}
	return names
}

// decodeRecord reads the payload of the record of a claim. The error wraps
// [gpu.ErrCorrupt] or, for a record of a newer release, [gpu.ErrNotSupported].
func decodeRecord(claim types.UID, payload []byte) (*record, error) {
	r := &record{}
	err := json.Unmarshal(payload, r)
	if err != nil {
		// A newer release's record need not have our types, but has a version.
		var newer struct{ Version int }
		if json.Unmarshal(payload, &newer) == nil {
			r.Version = newer.Version
		}
	}
	if r.Version > recordVersion {
		return nil, fmt.Errorf("%w: record version %d, this release knows %d: it was written by a newer release, which is needed to go on", gpu.ErrNotSupported, r.Version, recordVersion)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", gpu.ErrCorrupt, err)
	}
	if r.Version < 1 || r.Claim.UID != claim || len(r.Devices) == 0 || len(r.Journal) == 0 {
		return nil, fmt.Errorf("%w: not a complete record of this claim", gpu.ErrCorrupt)
	}
	if _, err := r.held(); err != nil {
		return nil, fmt.Errorf("%w: %w", gpu.ErrCorrupt, err)
	}
	for _, d := range r.Devices {
		if err := d.check(); err != nil {
			return nil, fmt.Errorf("%w: device %s: %w", gpu.ErrCorrupt, d.Device, err)
		}
	}
	for _, e := range r.Journal {
		if err := e.check(); err != nil {
			return nil, fmt.Errorf("%w: %w", gpu.ErrCorrupt, err)
		}
	}
	return r, nil
}

// check reports what would keep a step from being undone.
func (e entry) check() error {
	if e.Step == stepWriteCDI {
		return nil
	}
	if _, err := kind.Parse(e.Device); err != nil {
		return fmt.Errorf("step %s: %w", e.Step, err)
	}
	switch {
	case e.State == "":
	case e.Step == stepCreatePartition:
		_, err := e.partition()
		return err
	case e.Step == stepStartMPS && len(e.Result) > 0:
		_, err := e.dirs()
		return err
	}
	return nil
}

// check reports what other claims could not be compared with.
func (a allocated) check() error {
	switch {
	case a.Share != nil && a.Share.Memory == 0:
		return errors.New("a share of nothing")
	case a.MPS == nil:
		return nil
	}
	_, err := kind.Parse(a.MPS.Daemon)
	return err
}

// read returns the record of a claim from the disk, nil where there is none.
func (m *Manager) read(claim types.UID) (*record, error) {
	payload, err := m.Records.Read(string(claim))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case errors.Is(err, store.ErrCorrupt):
		return nil, fmt.Errorf("%w: %w", gpu.ErrCorrupt, err)
	case errors.Is(err, store.ErrNewer):
		return nil, fmt.Errorf("%w: %w: it was written by a newer release, which is needed to go on", gpu.ErrNotSupported, err)
	case err != nil:
		return nil, err
	}
	r, err := decodeRecord(claim, payload)
	if err != nil {
		return nil, fmt.Errorf("record of claim %s: %w", claim, err)
	}
	return r, nil
}

func (m *Manager) save(r *record) error {
	payload, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode the record of claim %s: %w", r.Claim, err)
	}
	return m.Records.Write(string(r.Claim.UID), payload)
}
