// SPDX-License-Identifier: Apache-2.0

// Package v1 is the HTTP API of a node's agent for programs of users: its paths, the JSON
// that it returns, and the token that it requires.
//
//   - [PathNode] returns a [Node]: the settings of the node that GPU programs depend on.
//   - [PathClaims] returns a [Report]: the use of the node's GPUs by claims.
//   - [PathDevices] returns [Devices]: the attributes of the node's devices. It requires no
//     token.
//
// The agent serves only GET, on its HTTP port (flag --http-listen). Later releases add fields
// and do not rename or remove any, so ignore fields that you do not know.
//
// The package imports nothing else of this module. It does not read the values, which package
// nodefacts and the agent do.
package v1
