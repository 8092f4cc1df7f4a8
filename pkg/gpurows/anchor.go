// SPDX-License-Identifier: Apache-2.0

package gpurows

import (
	"strings"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/cause"
)

// Anchor returns the anchor in docs/troubleshooting.md of the section about a reason. It returns
// "" for the taint of another party.
func (r Reason) Anchor() string {
	switch r.Code {
	case CodeNoAgent:
		return "node-without-agent"
	case CodeAgentNotReady, CodeNodeNotReady:
		return r.Code
	}
	key, value, _ := strings.Cut(r.Code, "=")
	if c, ok := cause.Of(v1alpha1.GroupName+"/"+key, value); ok {
		return c.Anchor()
	}
	switch {
	case strings.Contains(key, "/"):
		return ""
	case v1alpha1.GroupName+"/"+key == v1alpha1.TaintCordoned:
		return "taint-of-rule"
	}
	return cause.Unhealthy(r.Code).Anchor()
}
