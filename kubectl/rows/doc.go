// SPDX-License-Identifier: Apache-2.0

// Package rows makes the rows, tables and explanations that the commands of kubectl gpu print and
// its pages show. They are pure functions of a cluster's objects; the JSON and YAML of the commands are
// these types.
package rows
