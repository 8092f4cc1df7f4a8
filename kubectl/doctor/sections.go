// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"slices"
	"strings"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/cause"
)

// The documents with a section for each code. The alert GPUUnhealthy of the chart names those of
// the faults and XIDs too.
const (
	documentOfFaults  = "docs/admin/causes-faults.md"
	documentOfXIDs    = "docs/admin/causes-xids.md"
	documentOfUse     = "docs/admin/causes-use.md"
	documentOfCluster = "docs/admin/findings-cluster.md"
	documentOfClaims  = "docs/admin/findings-claims.md"
	documentOfNodes   = "docs/admin/findings-nodes.md"
)

// Section returns the address of the section that explains a code, such as the one of
// docs/admin/findings-nodes.md#swap-on. It returns "" if no finding can have the code.
func Section(code string) string {
	name := section(code)
	if i := slices.IndexFunc(Codes(), func(c Code) bool { return c.Name == name }); i >= 0 {
		return gpu.Page(Codes()[i].Document() + "#" + name)
	}
	return ""
}

// Document returns the document with the section about the code.
func (c Code) Document() string {
	if i := slices.IndexFunc(cause.All(), func(of cause.Cause) bool { return of.Anchor() == c.Name }); c.Check == "health" && i >= 0 {
		return documentOfCause(cause.All()[i])
	}
	switch c.Check {
	case "", "server", "resources", "shares", "classes", "missing-classes", "selectors", "extended-resources", "policies", "agents", "versions", "rollouts", "supervisors":
		return documentOfCluster
	case "claims", "prepared", "consumers", "limits", "containers":
		return documentOfClaims
	default:
		return documentOfNodes
	}
}

// documentOfCause returns the document with the section about a cause.
func documentOfCause(c cause.Cause) string {
	switch {
	case c.Key != v1alpha1.TaintUnhealthy:
		return documentOfUse
	case strings.HasPrefix(c.Value, "xid-"):
		return documentOfXIDs
	default:
		return documentOfFaults
	}
}

// section returns the section of the document that explains a code. Causes that this release
// does not know, such as "xid-1234", are in the section of their group.
func section(code string) string {
	names := func(of func(cause.Cause) bool) bool { return slices.ContainsFunc(cause.All(), of) }
	if group, _, found := strings.Cut(code, "-"); found && names(func(c cause.Cause) bool { return c.Code == group+"-" }) &&
		!names(func(c cause.Cause) bool { return c.Code == code && !strings.HasSuffix(code, "-") }) {
		return group
	}
	return code
}
