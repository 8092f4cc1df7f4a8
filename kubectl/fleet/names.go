// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"slices"

	celgo "github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
)

// Name is an attribute or capacity that a selector or constraint reads.
type Name struct {
	Domain, ID string
	// Capacity is false for an attribute.
	Capacity bool
}

// String returns the name with its domain, such as "attribute gpu.nvidia.com/uuid".
func (n Name) String() string {
	if n.Capacity {
		return "capacity " + n.Domain + "/" + n.ID
	}
	return "attribute " + n.Domain + "/" + n.ID
}

// expression returns the CEL expression that reads the name.
func (n Name) expression() string {
	if n.Capacity {
		return "device.capacity['" + n.Domain + "']." + n.ID
	}
	return "device.attributes['" + n.Domain + "']." + n.ID
}

// NamesIn returns the attributes and capacities that a CEL expression reads, in the order
// of the expression. Each is listed once. It returns nil if the expression is not valid
// CEL.
func NamesIn(expression string) []Name { return readsOf(expression).names }

// reads is what a CEL expression reads of a device.
type reads struct {
	names []Name
	// onlyNames reports that it reads no other attributes, such as all of a domain.
	onlyNames bool
}

func readsOf(expression string) reads {
	env, err := celgo.NewEnv(celgo.OptionalTypes())
	if err != nil {
		return reads{}
	}
	parsed, issues := env.Parse(expression)
	if issues.Err() != nil {
		return reads{}
	}
	var r reads
	// Each part that reads the device has one identifier of it.
	devices, known := 0, 0
	ast.PreOrderVisit(parsed.NativeRep().Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		operand, id := member(e)
		name, ok := nameOf(operand, id)
		if ok && !slices.Contains(r.names, name) {
			r.names = append(r.names, name)
		}
		if isDevice(e) {
			devices++
		}
		if ok && !name.Capacity || operand != nil && isDevice(operand) && id != "attributes" {
			known++
		}
	}))
	r.onlyNames = devices == known
	return r
}

func isDevice(e ast.Expr) bool { return e.Kind() == ast.IdentKind && e.AsIdent() == "device" }

// member returns the map and the key if the expression reads a map: x.key, x.?key, x['key'],
// x[?'key'] or has(x.key); nil if not.
func member(e ast.Expr) (of ast.Expr, key string) {
	switch e.Kind() { //nolint:exhaustive // no other expression reads a map
	case ast.SelectKind:
		return e.AsSelect().Operand(), e.AsSelect().FieldName()
	case ast.CallKind:
		call := e.AsCall()
		read := []string{operators.Index, operators.OptIndex, operators.OptSelect}
		if !slices.Contains(read, call.FunctionName()) || len(call.Args()) != 2 || call.Args()[1].Kind() != ast.LiteralKind {
			return nil, ""
		}
		if text, ok := call.Args()[1].AsLiteral().Value().(string); ok {
			return call.Args()[0], text
		}
	}
	return nil, ""
}

// nameOf returns the name for a key of a map of a domain's attributes or capacities.
func nameOf(domain ast.Expr, id string) (Name, bool) {
	if domain == nil {
		return Name{}, false
	}
	all, name := member(domain)
	if all == nil {
		return Name{}, false
	}
	device, field := member(all)
	if device == nil || !isDevice(device) || field != "attributes" && field != "capacity" {
		return Name{}, false
	}
	return Name{Domain: name, ID: id, Capacity: field == "capacity"}, true
}
