// SPDX-License-Identifier: Apache-2.0

// Package harness runs the driver on the real single-machine cluster of
// test/cluster, the way an administrator would: it applies the manifests of
// deployments/, starts the agent with a token bound to its node, applies users'
// pods and reads what became of them.
//
// The end-to-end tests and the demo share it. It decides nothing about pass or
// fail.
package harness
