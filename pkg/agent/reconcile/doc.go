// SPDX-License-Identifier: Apache-2.0

// Package reconcile compares the claims that hold devices with the API server and with the node, in
// rounds. It repairs prepared claims, releases claims that have ended, and removes what no claim owns.
//
// Each round also examines the held devices: who computes on them, which limits are missing, and
// which daemons were lost. The ledger, the metrics and package report get the findings.
//
// Out of scope: the steps that prepare and release a claim (package claim), and the texts for users
// (package report).
package reconcile
