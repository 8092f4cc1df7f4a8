// SPDX-License-Identifier: Apache-2.0

// Package state is what an agent knows of its node: five tables, each with one writer.
//
//	table          writer                 written
//	Hardware       package inventory      after each scan
//	Conditions     package inventory      after events, scans, repairs and reads of other programs
//	Claimed        package ledger         when claims change, around each scan, and before another configuration
//	Configuration  [cluster.NodeConfig]   when its inputs or the hardware change
//	Features       [cluster.Features]     when the API server reports or drops something
//
// A [Snapshot] is an immutable copy of all tables. Whatever the agent publishes, reports or
// allocates is a pure function of a snapshot: the state of the GPUs ([Snapshot.Node],
// [Snapshot.Health]), the catalog of devices ([Snapshot.Catalog]), and the memory that
// claims take ([Claimed.Taken]).
//
// Readers subscribe to one signal, and compare [Revisions] to learn which table has changed.
//
// Out of scope: reading hardware, files and the API server, which the writers do.
//
// [cluster.NodeConfig]: https://pkg.go.dev/github.com/gpu-dra/gpu-dra-driver/pkg/agent/cluster#NodeConfig
// [cluster.Features]: https://pkg.go.dev/github.com/gpu-dra/gpu-dra-driver/pkg/agent/cluster#Features
package state
