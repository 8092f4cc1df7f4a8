// SPDX-License-Identifier: Apache-2.0

// Package kernellog finds the XIDs in the kernel's log, with their processes. NVML reports XIDs
// without a process.
//
// Tenants choose the names of processes, which are in the lines: of a line it takes only what the
// driver writes before such a name, and a bounded part of the name. A program cannot forge a line,
// because the kernel marks the lines of programs.
//
// Out of scope: what an XID means (package cause), and to which pod a process belongs (procfs).
package kernellog
