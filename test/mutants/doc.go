// SPDX-License-Identifier: Apache-2.0

// Command mutants shows whether the tests can fail. It applies the mutations of
// its list to the code, one at a time and without touching the tree, runs the tests
// of the mutated package, and fails if they pass.
//
// The list is written by hand, one file for each area: mutations that a tool generates
// from tokens take hours for this module, and do not remove a statement, swap two steps
// or drop a lock. Each mutation describes its effect on a user. A mutation that no test
// can detect is excused with the reason.
//
// It is an error if the text of a mutation is not in its file exactly once, or if the
// mutated package does not compile. The tests of this package check the first, the
// command checks both.
package main
