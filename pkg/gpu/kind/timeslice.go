package kind

import "github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"

// TimeSlice is a whole GPU whose claims take time slices. A claim takes slots.
const TimeSlice Kind = v1alpha1.DeviceTypeTimeSlice

const timeSliceSuffix = "-ts"

type timeSlice struct{}

func (timeSlice) kind() Kind           { return TimeSlice }
func (timeSlice) format(n Name) string { return n.Address.DeviceName() + timeSliceSuffix }
func (timeSlice) parse(s string) (Name, bool, error) {
	return parseSuffix(TimeSlice, s, timeSliceSuffix)
}
func (timeSlice) scope() Scope    { return ScopeGPU }
func (timeSlice) takes() Taken    { return TakesSlots }
func (timeSlice) adminOnly() bool { return false }
func (timeSlice) offer() string   { return "timeslice" }

func (timeSlice) configuration() Configuration {
	return Configuration{Own: v1alpha1.KindGpuConfig, Noun: "time slices", Remedy: " whose sharing.strategy is TimeSlicing"}
}
