// SPDX-License-Identifier: Apache-2.0

package gpurows

import (
	"strings"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/cause"
)

// Anchor returns the anchor in docs/user/troubleshooting.md of the section about a reason. It returns
// "" for the taint of another party.
func (r Reason) Anchor() string {
	switch {
	case r.Code == CodeNoAgent:
		return "node-without-agent"
	case r.Code == CodeAgentNotReady, r.Code == CodeNodeNotReady:
		return r.Code
	case strings.ContainsAny(r.Code, "/="):
		return ""
	}
	return cause.OfCode(r.Code).Anchor()
}
