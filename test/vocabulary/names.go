// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"strings"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
)

const namesFile = "api/gpu/v1alpha1/names.go"

// name is a constant of the public vocabulary.
type name struct {
	// constant is its name in Go, value the name that others read.
	constant, value string
	// meaning is its comment without "<constant> is".
	meaning string
	// detail is the comment behind it in the same line.
	detail string
}

// readNames returns the constants of a file in their order.
func readNames(path string) ([]name, error) {
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	var names []name
	for _, declaration := range file.Decls {
		group, ok := declaration.(*ast.GenDecl)
		if !ok || group.Tok != token.CONST {
			continue
		}
		for _, spec := range group.Specs {
			constant := spec.(*ast.ValueSpec)
			value, err := valueOf(constant.Values[0])
			if err != nil {
				return nil, fmt.Errorf("%s: %s: %w", path, constant.Names[0].Name, err)
			}
			n := name{constant: constant.Names[0].Name, value: value, detail: strings.TrimSpace(constant.Comment.Text())}
			comment := constant.Doc
			if comment == nil {
				comment = group.Doc
			}
			n.meaning = meaning(n.constant, comment.Text())
			names = append(names, n)
		}
	}
	return names, nil
}

// valueOf evaluates a string, or a sum of [v1alpha1.GroupName] and a string.
func valueOf(expression ast.Expr) (string, error) {
	switch e := expression.(type) {
	case *ast.BasicLit:
		return strconv.Unquote(e.Value)
	case *ast.Ident:
		if e.Name == "GroupName" {
			return v1alpha1.GroupName, nil
		}
	case *ast.BinaryExpr:
		left, err := valueOf(e.X)
		if err != nil {
			return "", err
		}
		right, err := valueOf(e.Y)
		return left + right, err
	}
	return "", fmt.Errorf("the value must be a string, or GroupName and a string")
}

// meaning returns a comment as the cell of a table: in one line, without its first
// words and the final period.
func meaning(constant, comment string) string {
	text := strings.Join(strings.Fields(comment), " ")
	for _, verb := range []string{"is ", "says ", "marks "} {
		text = strings.TrimPrefix(text, constant+" "+verb)
	}
	return strings.TrimSuffix(text, ".")
}

// withPrefix returns the names whose constant begins with a prefix.
func withPrefix(names []name, prefix string) []name {
	var found []name
	for _, n := range names {
		if strings.HasPrefix(n.constant, prefix) {
			found = append(found, n)
		}
	}
	return found
}
