// SPDX-License-Identifier: Apache-2.0

// Package imexsim is nvidia-imex and nvidia-imex-ctl of a simulated node in a rack.
//
// The daemon reads its configuration and its list of nodes, and answers queries of its
// state. It connects to no other node, and exports no memory.
package imexsim
