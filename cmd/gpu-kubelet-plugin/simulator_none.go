// SPDX-License-Identifier: Apache-2.0

//go:build !sim

package main

import "github.com/gpu-dra/gpu-dra-driver/pkg/agent"

// linkedSimulator returns nil: the program is built without the tag sim.
func linkedSimulator() agent.Simulator { return nil }
