package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// GroupVersion is the apiVersion of every configuration here. The group is
// that of the API, whatever name the driver runs under.
const GroupVersion = "gpu.nvidia.com/v1alpha1"

// KindGpuConfig is the kind of [GpuConfig].
const KindGpuConfig = "GpuConfig"

// Config is one decoded configuration.
type Config interface {
	// Fits reports whether the configuration can be given to a device of the
	// kind.
	Fits(kind gpu.Kind) bool
}

// GpuConfig configures a GPU that is allocated as a whole.
type GpuConfig struct {
	metav1.TypeMeta `json:",inline"`
}

// Fits implements [Config].
func (*GpuConfig) Fits(kind gpu.Kind) bool { return kind == gpu.KindGPU }
