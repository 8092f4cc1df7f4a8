// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"encoding/json"
	"fmt"

	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/internal/plan"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

// The steps whose results others read.
const (
	StepCreatePartition = "CreatePartition"
	StepLimitMemory     = "LimitMemory"
	StepStartMPS        = "StartMPS"
	StepWriteCDI        = "WriteCDI"
)

// Partition is the result of CreatePartition.
type Partition struct {
	// Found is set if the partition existed before and no record shows that this
	// driver created it. The driver uses such a partition and never changes it.
	Found bool `json:"found,omitempty"`
	// UUID of the MIG device. It is empty while it is unknown whether this driver
	// has made the partition, and if the only trace of it is a CDI spec without an
	// annotation.
	UUID            string `json:"uuid,omitempty"`
	GPUInstance     int    `json:"gpuInstance,omitempty"`
	ComputeInstance int    `json:"computeInstance,omitempty"`
}

// Daemon is the result of StartMPS.
type Daemon struct {
	// Pipe and Shm are folders on the host that clients need.
	Pipe string `json:"pipe"`
	Shm  string `json:"shm"`
}

// Spec is the result of WriteCDI.
type Spec struct {
	// IDs are the qualified CDI device IDs, in the order of the devices.
	IDs []string `json:"ids"`
}

// Encode returns the result of a step in the form of the record.
func Encode(result any) (json.RawMessage, error) { return json.Marshal(result) }

// decode reads the result of a step. The error wraps [gpu.ErrCorrupt].
func (e Entry) decode(result any) error {
	if err := json.Unmarshal(e.Result, result); err != nil {
		return fmt.Errorf("result of %s %s: %w: %s", e.Step, e.Device, gpu.ErrCorrupt, e.Result)
	}
	return nil
}

// Partition returns the result of CreatePartition.
func (e Entry) Partition() (p Partition, err error) { return p, e.decode(&p) }

// Partition returns the partition of one of the record's devices. It returns the
// zero value if the journal has no result for the device.
func (r *Record) Partition(device kind.Name) (Partition, error) {
	for _, e := range r.Journal {
		if e.isFor(StepCreatePartition, device) && len(e.Result) > 0 {
			return e.Partition()
		}
	}
	return Partition{}, nil
}

// Daemon returns the folders of the MPS daemon that the record has had started.
func (r *Record) Daemon(name kind.Name) (d Daemon, err error) {
	for _, e := range r.Journal {
		if e.isFor(StepStartMPS, name) {
			return d, e.decode(&d)
		}
	}
	return d, fmt.Errorf("%w: the MPS daemon %s has not been started", gpu.ErrNotFound, name)
}

// CDIDeviceIDs returns the qualified CDI device IDs of the record's devices, nil if
// the spec is not written.
func (r *Record) CDIDeviceIDs() ([]string, error) {
	for _, e := range r.Journal {
		if e.Step != StepWriteCDI || e.State != Done {
			continue
		}
		var spec Spec
		if err := json.Unmarshal(e.Result, &spec); err != nil || len(spec.IDs) != len(r.Devices) {
			return nil, fmt.Errorf("result of %s: %w: %s", e.Step, gpu.ErrCorrupt, e.Result)
		}
		return spec.IDs, nil
	}
	return nil, nil
}

// DeviceUUID returns the UUID of a device: of a MIG device the one that was made, ""
// before that.
func (r *Record) DeviceUUID(d plan.Device) (string, error) {
	if !d.Name.IsPartition() {
		return d.UUID, nil
	}
	made, err := r.Partition(d.Name)
	return made.UUID, err
}

// check returns an error if the step could not be undone from the entry.
func (e Entry) check() error {
	if e.Step == StepWriteCDI || e.Step == StepLimitMemory {
		return nil // they concern the claim as a whole
	}
	if e.Device == (kind.Name{}) {
		return fmt.Errorf("step %s: it names no device", e.Step)
	}
	switch {
	case e.State == Planned:
	case e.Step == StepCreatePartition:
		_, err := e.Partition()
		return err
	case e.Step == StepStartMPS && len(e.Result) > 0:
		return e.decode(&Daemon{})
	}
	return nil
}
