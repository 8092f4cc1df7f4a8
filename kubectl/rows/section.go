// SPDX-License-Identifier: Apache-2.0

package rows

import (
	"strings"

	"github.com/gpu-dra/gpu-dra-driver/kubectl/doctor"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/cause"
)

// Section returns the address of the section about a reason, such as the one of
// docs/admin/causes.md#xid-79. It returns "" for the taint of another party.
func (r Reason) Section() string {
	switch {
	case r.Code == CodeNoAgent:
		return doctor.Section("node-without-agent")
	case r.Code == CodeAgentNotReady, r.Code == CodeNodeNotReady:
		return doctor.Section(r.Code)
	case strings.ContainsAny(r.Code, "/="):
		return ""
	}
	return doctor.Section(cause.OfCode(r.Code).Anchor())
}
