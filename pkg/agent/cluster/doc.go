// SPDX-License-Identifier: Apache-2.0

// Package cluster reads the agent's inputs from the cluster: the features that the
// API server supports ([Features]), the labels and annotations of the node's object
// ([WatchNode]), and the configuration that follows from them ([NodeConfig]). Features and
// NodeConfig each have a Run that writes their table of the state.
package cluster
