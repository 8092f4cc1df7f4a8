package plugin

import (
	"bytes"
	"encoding/json"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

// The version and kind that a [DeviceData] says it is.
const (
	dataVersion = "gpu.nvidia.com/v1alpha1"
	dataKind    = "DeviceData"
)

// DeviceData is the JSON object in status.devices[].data: what a claim has been
// given in a device. A field may be added to a version, and readers pass over
// those they do not know.
type DeviceData struct {
	metav1.TypeMeta `json:",inline"`
	// UUID as NVML prints it: "GPU-" or "MIG-" and 36 characters. Absent, as is
	// PCIBusID, where the device is all GPUs of the node.
	UUID string `json:"uuid,omitempty"`
	// PCIBusID of the physical GPU: "0000:1b:00.0".
	PCIBusID string `json:"pciBusID,omitempty"`
	// Share says how the device is shared, and what this claim's share is held
	// to; absent where the claim has the device to itself.
	Share *ShareData `json:"share,omitempty"`
}

// ShareData is how a device is shared.
type ShareData struct {
	// Strategy is "MPS", "Plain" or "TimeSlicing".
	Strategy claim.Strategy `json:"strategy"`
	// Memory of the share; absent where nobody accounts for it.
	Memory *resource.Quantity `json:"memory,omitempty"`
	// Compute in percent of the multiprocessors, where the claim asked for some.
	Compute int `json:"compute,omitempty"`
	// Processes among which memory and compute are divided, where they are.
	Processes int `json:"processes,omitempty"`
	// ThreadPercentage is what each process can have of the multiprocessors at
	// most; absent where nothing limits it.
	ThreadPercentage int `json:"threadPercentage,omitempty"`
	// MemoryLimit of each process, without its context; absent where nothing
	// limits it.
	MemoryLimit *resource.Quantity `json:"memoryLimit,omitempty"`
	// TimeSlice that the claim asked for: "Default", "Short", "Medium", "Long".
	TimeSlice gpu.TimeSlice `json:"timeSlice,omitempty"`
	// Enforcement says how firmly the limits hold: "cooperative" or "none".
	Enforcement claim.Enforcement `json:"enforcement,omitempty"`
}

func dataOf(d claim.Device) *DeviceData {
	data := &DeviceData{
		TypeMeta: metav1.TypeMeta{APIVersion: dataVersion, Kind: dataKind},
		UUID:     d.UUID,
	}
	if d.Kind != kind.Monitor {
		data.PCIBusID = d.Address.String()
	}
	if known(d.Share) {
		data.Share = &ShareData{
			Strategy:         d.Share.Strategy,
			Memory:           size(d.Share.Memory),
			Compute:          d.Share.Compute,
			Processes:        d.Share.Processes,
			ThreadPercentage: d.Share.ThreadPercentage,
			MemoryLimit:      size(d.Share.MemoryLimit),
			TimeSlice:        d.Share.TimeSlice,
			Enforcement:      d.Share.Enforcement,
		}
	}
	return data
}

// known reports whether it is known how a device is shared. It is not if the
// claim's record is lost and only its CDI spec tells of it.
func known(s *claim.Share) bool { return s != nil && s.Strategy != "" }

func size(bytes uint64) *resource.Quantity {
	if bytes == 0 {
		return nil
	}
	return resource.NewQuantity(int64(bytes), resource.BinarySI)
}

// says reports whether raw says the same as the data. The API server changes
// the order of its fields.
func (d *DeviceData) says(raw []byte) bool {
	var other DeviceData
	if json.Unmarshal(raw, &other) != nil {
		return false
	}
	want, err := json.Marshal(d)
	got, otherErr := json.Marshal(&other)
	return err == nil && otherErr == nil && bytes.Equal(want, got)
}

// attributes adds to what is published of a device how this claim has it: the
// published ones say what the device could be shared by.
func (d *DeviceData) attributes(a map[string]resourceapi.DeviceAttribute) {
	text := func(name, value string) {
		if value != "" {
			a[name] = resourceapi.DeviceAttribute{StringValue: &value}
		}
	}
	number := func(name string, value int) {
		if value != 0 {
			a[name] = resourceapi.DeviceAttribute{IntValue: ptr.To(int64(value))}
		}
	}
	quantity := func(name string, value *resource.Quantity) {
		if value != nil {
			text(name, value.String())
		}
	}
	s := d.Share
	if s == nil {
		return
	}
	switch s.Strategy {
	case claim.StrategyMPS:
		text(v1alpha1.AttributeSharing, v1alpha1.SharedByMPS)
	case claim.StrategyTimeSlicing:
		text(v1alpha1.AttributeSharing, v1alpha1.SharedByTimeSlice)
	default:
		text(v1alpha1.AttributeSharing, v1alpha1.SharedByNone)
	}
	text(v1alpha1.AttributeEnforcement, string(s.Enforcement))
	quantity(v1alpha1.AttributeShareMemory, s.Memory)
	number(v1alpha1.AttributeShareCompute, s.Compute)
	number(v1alpha1.AttributeShareProcesses, s.Processes)
	number(v1alpha1.AttributeProcessThreadPercentage, s.ThreadPercentage)
	quantity(v1alpha1.AttributeProcessMemoryLimit, s.MemoryLimit)
	text(v1alpha1.AttributeTimeSlice, string(s.TimeSlice))
}
