// SPDX-License-Identifier: Apache-2.0

// Package cluster reads what the cluster tells the agent: which features the API
// server supports ([Features]), what the node's object says ([WatchNode]), and what
// the node offers because of it ([Offer]).
package cluster
