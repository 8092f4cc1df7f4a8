// SPDX-License-Identifier: Apache-2.0

// Package nodefacts describes the settings of a node that programs with GPUs depend on,
// and reads the ones that the kernel and the host's files show. The agent serves them at
// [Path], and "kubectl gpu doctor" judges them.
//
// A fact that cannot be read has the reason in its place, and is never guessed. The
// package changes nothing and calls neither NVML nor the API server.
package nodefacts
