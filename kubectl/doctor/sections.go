// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"slices"
	"strings"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/cause"
)

// The documents with a section for each code. The alert GPUUnhealthy of the chart names the one
// of the causes too.
const (
	documentOfCauses   = "docs/admin/causes.md"
	documentOfFindings = "docs/admin/findings.md"
)

// Section returns the address of the section that explains a code, such as the one of
// docs/admin/findings.md#swap-on. It returns "" if no finding can have the code.
func Section(code string) string {
	name := section(code)
	if i := slices.IndexFunc(Codes(), func(c Code) bool { return c.Name == name }); i >= 0 {
		return gpu.Page(Codes()[i].Document() + "#" + name)
	}
	return ""
}

// Document returns the document with the section about the code.
func (c Code) Document() string {
	if c.Check == "health" && slices.ContainsFunc(cause.All(), func(of cause.Cause) bool { return of.Anchor() == c.Name }) {
		return documentOfCauses
	}
	return documentOfFindings
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
