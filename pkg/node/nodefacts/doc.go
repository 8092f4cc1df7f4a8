// SPDX-License-Identifier: Apache-2.0

// Package nodefacts reads the settings of a node that programs with GPUs depend on. It
// reads them from the kernel and the host's files. The agent serves them in the form of
// package api/agent/v1, and "kubectl gpu doctor" judges them.
//
// A fact that cannot be read has the reason in its place, and is never guessed. The
// package changes nothing. The last scan of the GPUs and their clocks are from the agent.
package nodefacts
