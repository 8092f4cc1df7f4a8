package controller

import (
	"fmt"
	"strings"
	"time"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// Phase is how far the node has come.
type Phase string

// The phases of a node.
const (
	// Looking: no look at the hardware has succeeded yet.
	Looking Phase = "Looking"
	// NoDriver: the GPU driver is not loaded (yet).
	NoDriver Phase = "NoDriver"
	// NoGPUs: the driver is loaded and has no GPU that answers.
	NoGPUs Phase = "NoGPUs"
	// Published: GPUs are published, those that have failed with a taint.
	Published Phase = "Published"
)

// Phases are all of them.
func Phases() []Phase { return []Phase{Looking, NoDriver, NoGPUs, Published} }

// State is what the controller has achieved so far.
type State struct {
	Phase Phase
	// Since is when the phase began.
	Since time.Time
	// Devices that are published, and those of them that are healthy.
	Devices, Healthy int
	// Unpublished: what is known now could not be published.
	Unpublished bool
	// Err says what is missing or failing; nil where all is well.
	Err error
}

// String gives a line for people, such as "Published: 7 of 8 devices healthy;
// GPU at 0000:1b:00.0: GPU lost".
func (s State) String() string {
	line := string(s.Phase)
	if s.Phase == Published {
		line += fmt.Sprintf(": %d of %d devices healthy", s.Healthy, s.Devices)
	}
	if s.Err != nil {
		line += "; " + strings.ReplaceAll(s.Err.Error(), "\n", "; ")
	}
	return line
}

// DeviceStatus is the health of one published device.
type DeviceStatus struct {
	// Name under which it is published.
	Name string
	// Address and UUID of its GPU; unused where it is all of them.
	Address gpu.PCIAddress
	UUID    string
	Healthy bool
	// Reason is the word in the taint of an unhealthy device, such as "xid-79"
	// or "lost"; empty if healthy.
	Reason string
	// Message says the same in a sentence.
	Message string
}
