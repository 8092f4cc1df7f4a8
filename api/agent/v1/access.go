// SPDX-License-Identifier: Apache-2.0

package v1

// Paths of the agent's HTTP port.
const (
	// PathNode returns a [Node]. It requires a token, see [TokenHeader].
	PathNode = "/v1/node"
	// PathClaims returns a [Report]. It requires a token, see [TokenHeader].
	PathClaims = "/v1/claims"
	// PathDevices returns [Devices].
	PathDevices = "/devices"
)

// TokenHeader is the HTTP header with a token of the viewers' service account. The token is
// for the audience that [Audience] returns. The API server's proxy removes the usual header
// Authorization, and passes this one.
const TokenHeader = "X-Gpu-Agent-Token" //nolint:gosec // the name of a header

// Audience returns the audience of the tokens that one agent accepts. driver is the driver's
// name, such as "gpu.nvidia.com", and podUID the UID of the agent's pod. The API server accepts
// no token with it, nor does another agent: an agent that receives a token can read nothing with
// it but its own answers.
func Audience(driver, podUID string) string { return "agent." + driver + "/" + podUID }
