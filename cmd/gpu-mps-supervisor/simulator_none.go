// SPDX-License-Identifier: Apache-2.0

//go:build !sim

package main

// linkedSimulator returns nil: the program is built without the tag sim.
func linkedSimulator() simulator { return nil }
