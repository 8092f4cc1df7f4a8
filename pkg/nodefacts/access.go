// SPDX-License-Identifier: Apache-2.0

package nodefacts

const (
	// Path is the path of the facts on the agent's HTTP port.
	Path = "/v1/node"
	// TokenHeader is the HTTP header with the caller's token. The API server's proxy
	// removes the usual header Authorization, and passes this one.
	TokenHeader = "X-Gpu-Agent-Token" //nolint:gosec // the name of a header
)

// Audience returns the audience of the tokens that one agent of a driver accepts, by the UID
// of its pod. The API server accepts no token with it, nor does another agent: an agent that
// receives a token can read nothing with it but its own answers.
func Audience(driver string, pod string) string { return "agent." + driver + "/" + pod }
