// SPDX-License-Identifier: Apache-2.0

// Package harness runs the driver on the real single-machine cluster of
// test/cluster, as an administrator would: it loads the images, installs the Helm
// chart for simulated GPUs, applies users' pods and reads their state.
//
// The end-to-end tests and the demo share it. It decides nothing about pass or
// fail.
package harness
