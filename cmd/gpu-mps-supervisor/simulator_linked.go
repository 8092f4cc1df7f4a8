// SPDX-License-Identifier: Apache-2.0

//go:build sim

package main

import "github.com/gpu-dra/gpu-dra-driver/pkg/agent/simulated"

// linkedSimulator returns the simulator: the program is built with the tag sim.
func linkedSimulator() simulator { return simulated.Root }
