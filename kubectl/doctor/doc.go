// SPDX-License-Identifier: Apache-2.0

// Package doctor judges a cluster: from its API objects, and from the facts that agents
// report about their nodes, it makes findings, each with its meaning and its remedy. It
// calls no server and changes nothing.
//
// All checks are in one list, [checks]. An input that the user may not read makes the
// checks that need it unknown, and no check guesses.
package doctor
