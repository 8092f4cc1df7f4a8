// SPDX-License-Identifier: Apache-2.0

package claim_test

import (
	"k8s.io/apimachinery/pkg/api/resource"
	"pgregory.net/rapid"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

// somePiece draws a piece of one of two GPUs.
func somePiece(t *rapid.T) piece {
	on := rapid.SampledFrom([]string{h100, h100Other}).Draw(t, "GPU")
	switch rapid.SampledFrom([]string{"share", "share", "share", "plain", "part", "part", "partShare", "partShare", "whole", "together", "timeSlices", "timeSlices", "seats", "seats"}).Draw(t, "use") {
	case "share":
		return piece{device: on, memory: rapid.SampledFrom([]string{"10Gi", "30Gi", "50Gi"}).Draw(t, "memory")}
	case "plain":
		return piece{device: on, memory: "20Gi", config: config("ShareConfig", plain)}
	case "part":
		return piece{device: on + rapid.SampledFrom([]string{"-mig-1g-10gb-0", "-mig-1g-10gb-3", "-mig-3g-40gb-0"}).Draw(t, "part")}
	case "partShare":
		return piece{device: on + rapid.SampledFrom([]string{"-mig-1g-10gb-0", "-mig-3g-40gb-4"}).Draw(t, "part"), memory: rapid.SampledFrom([]string{"2Gi", "6Gi"}).Draw(t, "memory")}
	case "seats":
		return piece{device: on + "-seat", seats: rapid.IntRange(1, 3).Draw(t, "seats")}
	case "together":
		return piece{device: on, config: config("GpuConfig", together)}
	case "timeSlices":
		p := piece{device: on + "-ts", memory: rapid.SampledFrom([]string{"", "", "20Gi", "50Gi"}).Draw(t, "memory")}
		if slice := rapid.SampledFrom([]gpu.TimeSlice{"", gpu.TimeSliceShort, gpu.TimeSliceLong}).Draw(t, "interval"); slice != "" {
			p.config = interval(slice)
		}
		return p
	default:
		return piece{device: on}
	}
}

func (p piece) name() kind.Name {
	name, _ := kind.Parse(p.device)
	return name
}

func (p piece) bytes() uint64 {
	if p.memory == "" {
		return 0
	}
	memory := resource.MustParse(p.memory)
	return uint64(memory.Value())
}

// canCoexist reports whether two pieces can be held at the same time, if there is
// memory for both.
func (p piece) canCoexist(q piece) bool {
	a, b := p.name(), q.name()
	switch {
	case a.Address != b.Address:
		return true
	case a.Kind == kind.TimeSlice && b.Kind == kind.TimeSlice:
		return p.config == "" || q.config == "" || p.config == q.config
	case a.Kind == kind.Seat && b.Kind == kind.Seat:
		return true
	case a == b:
		return p.memory != "" && q.memory != ""
	default:
		return a.Kind == kind.MIG && b.Kind == kind.MIG && !excludes(p.device, q.device)
	}
}

func (p piece) client() bool {
	return p.seats > 0 || p.memory != "" && p.config == "" && p.name().Kind != kind.TimeSlice || p.config == config("GpuConfig", together)
}

// needsExclusive reports whether the GPU of the piece is exclusive while a claim has
// it, on a node that says so.
func (p piece) needsExclusive() bool {
	return p.seats > 0 || p.name().Kind == kind.GPU && p.memory != "" && p.client()
}

// isPlain reports whether the piece is a plain share of a GPU.
func (p piece) isPlain() bool { return p.name().Kind == kind.GPU && p.memory != "" && !p.client() }
