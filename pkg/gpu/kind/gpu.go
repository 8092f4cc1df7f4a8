package kind

import "github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"

// GPU is a whole GPU. A claim takes all of it, or a share of its memory.
const GPU Kind = v1alpha1.DeviceTypeGPU

type wholeGPU struct{}

func (wholeGPU) kind() Kind                         { return GPU }
func (wholeGPU) format(n Name) string               { return n.Address.DeviceName() }
func (wholeGPU) parse(s string) (Name, bool, error) { return parseSuffix(GPU, s, "") }
func (wholeGPU) scope() Scope                       { return ScopeGPU }
func (wholeGPU) takes() Taken                       { return TakesMemory }
func (wholeGPU) adminOnly() bool                    { return false }
func (wholeGPU) offer() string                      { return "" }

func (wholeGPU) configuration() Configuration {
	return Configuration{Own: v1alpha1.KindGpuConfig, Noun: "a GPU"}
}
