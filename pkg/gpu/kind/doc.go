// SPDX-License-Identifier: Apache-2.0

// Package kind holds the kinds of devices that a node publishes: one table,
// one file for each kind. A kind says how its devices are named, what of a node
// they stand for, what claims take of them and which configuration they accept.
//
// The other packages ask the table and do not name kinds. To add a kind, add a
// file with its rules and a line in [All].
//
// Package kind is pure: it reads values of package gpu and does no I/O.
package kind
