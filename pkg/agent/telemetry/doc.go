// SPDX-License-Identifier: Apache-2.0

// Package telemetry shows the agent to monitoring: its metrics, its probes, and an HTTP
// server.
//
// Parts of the agent report events and findings to [Metrics]. The rest of the metrics is
// read from [State] at the time of a scrape. A probe is a list of checks ([Check]); an
// [Activity] is the check of a loop that must not hang.
//
// Out of scope: the contents of pages ([Page]), and the conditions that checks test.
package telemetry
