// SPDX-License-Identifier: Apache-2.0

// Package kind holds the kinds of devices that a node publishes: one table, and
// one file for each kind. A kind defines how its devices are named, which part of a
// node they represent, what claims consume of them and which configurations they
// accept.
//
// The other packages read the table and do not name kinds. To add a kind, add its names
// to package v1alpha1, a file with its rules and an entry in the table in kind.go, and
// its values to the chart; then run "make generate".
//
// Package kind is pure: it reads values of package gpu and does no I/O.
package kind
