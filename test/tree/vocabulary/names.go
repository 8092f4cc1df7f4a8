// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
)

const (
	packageDir = "api/gpu/v1alpha1"
	namesFile  = "names.go"
)

// name is a constant of the public vocabulary, or a field of one of its types.
type name struct {
	// constant is its name in Go, value the name that others read.
	constant, value string
	// meaning is its comment without "<constant> is".
	meaning string
	// detail is the comment behind it in the same line.
	detail string
}

// vocabulary is the public vocabulary with its comments.
type vocabulary struct {
	// names are the constants of names.go, in their order.
	names []name
	// values are the values of the constants of all files, as the documents write
	// them.
	values map[string]string
	// fields are the fields of all types, by "Type.Field".
	fields map[string]name
}

// readVocabulary reads the package below the root.
func readVocabulary(root string) (vocabulary, error) {
	v := vocabulary{values: map[string]string{}, fields: map[string]name{}}
	files, err := filepath.Glob(filepath.Join(root, packageDir, "*.go"))
	if err != nil {
		return v, err
	}
	for _, path := range files {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return v, err
		}
		for _, declaration := range file.Decls {
			group, ok := declaration.(*ast.GenDecl)
			if !ok {
				continue
			}
			for _, spec := range group.Specs {
				switch spec := spec.(type) {
				case *ast.ValueSpec:
					if group.Tok != token.CONST {
						continue
					}
					if err := v.addConstant(group, spec, filepath.Base(path) == namesFile); err != nil {
						return v, fmt.Errorf("%s: %s: %w", path, spec.Names[0].Name, err)
					}
				case *ast.TypeSpec:
					v.addType(spec)
				}
			}
		}
	}
	return v, nil
}

// addConstant adds a constant. One of names.go must be a name.
func (v *vocabulary) addConstant(group *ast.GenDecl, spec *ast.ValueSpec, isName bool) error {
	constant := spec.Names[0].Name
	value, err := valueOf(spec.Values[0])
	if err == nil {
		v.values[constant] = code(value)
	} else if number, ok := spec.Values[0].(*ast.BasicLit); ok && number.Kind == token.INT {
		v.values[constant] = number.Value
	}
	if !isName {
		return nil
	}
	if err != nil {
		return err
	}
	comment := spec.Doc
	if comment == nil {
		comment = group.Doc
	}
	v.names = append(v.names, name{constant: constant, value: value, meaning: meaning(constant, comment.Text()), detail: strings.TrimSpace(spec.Comment.Text())})
	return nil
}

// addType adds the comments of the fields of a type.
func (v *vocabulary) addType(spec *ast.TypeSpec) {
	object, ok := spec.Type.(*ast.StructType)
	if !ok {
		return
	}
	for _, field := range object.Fields.List {
		for _, ident := range field.Names {
			text := strings.TrimPrefix(meaning(ident.Name, field.Doc.Text()), ident.Name+" ")
			v.fields[spec.Name.Name+"."+ident.Name] = name{meaning: text, detail: strings.TrimSpace(field.Comment.Text())}
		}
	}
}

// valueOf evaluates a string, or a sum of [v1alpha1.GroupName] and a string.
func valueOf(expression ast.Expr) (string, error) {
	switch e := expression.(type) {
	case *ast.BasicLit:
		if e.Kind == token.STRING {
			return strconv.Unquote(e.Value)
		}
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

var (
	inCode    = regexp.MustCompile(`"([^"]+)"|(--[a-z-]+)`)
	reference = regexp.MustCompile(`\[([A-Z]\w+)\]`)
)

// markdown returns a comment as Markdown: quoted words, flags and references are
// code, and a reference to a constant is its value.
func (v vocabulary) markdown(text string) string {
	text = inCode.ReplaceAllString(text, "`$1$2`")
	return reference.ReplaceAllStringFunc(text, func(linked string) string {
		target := strings.Trim(linked, "[]")
		if value, ok := v.values[target]; ok {
			return value
		}
		return code(target)
	})
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
