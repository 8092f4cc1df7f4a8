package v1alpha1

import (
	"errors"
	"fmt"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/json"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

const supported = "supported is " + KindGpuConfig + " of " + GroupVersion

// Decode reads the parameters of an opaque configuration, JSON as the API
// server stores it. It is strict: a field that would have no effect is an
// error, because whoever wrote it counts on it. Every error wraps
// [gpu.ErrInvalid] and names the field and what is supported.
func Decode(parameters []byte) (Config, error) {
	if len(parameters) > resourceapi.OpaqueParametersMaxLength {
		return nil, fmt.Errorf("parameters: %w: %d bytes, at most %d are allowed", gpu.ErrInvalid, len(parameters), resourceapi.OpaqueParametersMaxLength)
	}
	var meta metav1.TypeMeta
	if err := json.UnmarshalCaseSensitivePreserveInts(parameters, &meta); err != nil {
		return nil, fmt.Errorf("parameters: %w: %w; %s", gpu.ErrInvalid, err, supported)
	}
	if meta.APIVersion != GroupVersion {
		return nil, fmt.Errorf("parameters.apiVersion: %w: %q; %s", gpu.ErrInvalid, meta.APIVersion, supported)
	}
	switch meta.Kind {
	case KindGpuConfig:
		config := &GpuConfig{}
		if err := decodeStrict(parameters, config); err != nil {
			return nil, fmt.Errorf("parameters of kind %s: %w", meta.Kind, err)
		}
		return config, nil
	default:
		return nil, fmt.Errorf("parameters.kind: %w: %q; %s", gpu.ErrInvalid, meta.Kind, supported)
	}
}

func decodeStrict(parameters []byte, into Config) error {
	unexpected, err := json.UnmarshalStrict(parameters, into)
	if err = errors.Join(append(unexpected, err)...); err != nil {
		return fmt.Errorf("%w: %w; %s", gpu.ErrInvalid, err, supported)
	}
	return nil
}
