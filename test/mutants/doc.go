// SPDX-License-Identifier: Apache-2.0

// Command mutants shows whether the tests can fail. It applies the mutations of
// its list to the code, one at a time and without touching the tree, runs the tests
// of the mutated package, and fails if they pass.
//
// The list is written by hand, in one file for each package: what a mutation tool
// generates from tokens takes hours for this module, and does not leave out a
// statement, swap two steps or drop a lock. Each mutation says what a user would
// notice of it. A mutation that no test can notice is excused with the reason.
//
// The list stays true to the code: it is an error if the text of a mutation is not
// in its file exactly once, or if the mutated package does not compile. The tests of
// this package check the first, the command checks both.
package main
