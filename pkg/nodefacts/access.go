// SPDX-License-Identifier: Apache-2.0

package nodefacts

const (
	// Path is the path of the facts on the agent's HTTP port.
	Path = "/v1/node"
	// TokenHeader is the HTTP header with the caller's token. The API server's proxy
	// removes the usual header Authorization, and passes this one.
	TokenHeader = "X-Gpu-Agent-Token" //nolint:gosec // the name of a header
)

// Audience returns the audience of the tokens that agents of a driver accept. The API
// server accepts no token with it.
func Audience(driver string) string { return "agent." + driver }
