// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"strings"
	"time"
)

// Phase is how far the agent has come in publishing the node's GPUs.
type Phase string

// The phases of a node.
const (
	// Looking: no scan of the hardware has succeeded yet.
	Looking Phase = "Looking"
	// NoDriver: the GPU driver is not loaded (yet).
	NoDriver Phase = "NoDriver"
	// NoGPUs: the driver is loaded and has no GPU that answers.
	NoGPUs Phase = "NoGPUs"
	// Published: GPUs are published, failed ones with a taint.
	Published Phase = "Published"
)

// Phases returns all phases.
func Phases() []Phase { return []Phase{Looking, NoDriver, NoGPUs, Published} }

// State summarises the published devices and the problems of the node.
type State struct {
	Phase Phase
	// Since is when the phase began.
	Since time.Time
	// Devices counts the published devices, Healthy the healthy ones among them.
	Devices, Healthy int
	// Unpublished is set if the last attempt to publish failed.
	Unpublished bool
	// Err describes missing and failed GPUs; nil if there are none.
	Err error
}

// String returns a line such as "Published: 7 of 8 devices healthy;
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
