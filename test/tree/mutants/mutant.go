// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// mutant is one change of the code that a test must detect.
type mutant struct {
	folder      string // of the code, below the root of the module
	declaration string
	operator    string
	arguments   string
	testFolder  string
	test        string // that must fail
	effect      string // for a user, an administrator or the hardware
}

// String returns the start of the mutant's line with its folder.
func (m mutant) String() string {
	return fmt.Sprintf("%s %s: %s %s", m.folder, m.declaration, m.operator, m.arguments)
}

// table is the path of a package's mutants in its folder.
const table = "testdata/mutants"

// readAll returns the mutants of all packages below root.
func readAll(root string) ([]mutant, error) {
	var all []mutant
	return all, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, "/"+table) {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		folder, err := filepath.Rel(root, strings.TrimSuffix(path, "/"+table))
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(text)) {
			m, err := parse(folder, strings.TrimSpace(line))
			if err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
			all = append(all, m)
		}
		return nil
	})
}

// parse returns the mutant of a line of a folder's table.
func parse(folder, line string) (mutant, error) {
	fields := strings.SplitN(line, ": ", 4)
	if len(fields) < 4 {
		return mutant{}, fmt.Errorf("%q: want DECLARATION: OPERATOR ARGUMENTS: TEST: EFFECT", line)
	}
	m := mutant{folder: folder, declaration: fields[0], testFolder: folder, test: fields[2], effect: fields[3]}
	m.operator, m.arguments, _ = strings.Cut(fields[1], " ")
	if folder, test, ok := strings.Cut(m.test, " "); ok {
		m.testFolder, m.test = folder, test
	}
	return m, nil
}

// apply returns the path of the mutated file and its text with the mutation.
func (m mutant) apply(root string) (path, text string, err error) {
	paths, err := filepath.Glob(filepath.Join(root, m.folder, "*.go"))
	if err != nil {
		return "", "", err
	}
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		source, err := os.ReadFile(path)
		if err != nil {
			return "", "", err
		}
		text, err := m.mutate(string(source))
		if err != nil {
			return "", "", fmt.Errorf("%s: %w", m, err)
		}
		if text != string(source) {
			return path, text, nil
		}
	}
	return "", "", fmt.Errorf("%s: the package has no such declaration", m)
}

// mutate returns a source file with the mutation. It returns the source unchanged if the
// file does not have the declaration.
func (m mutant) mutate(source string) (string, error) {
	file, err := parser.ParseFile(token.NewFileSet(), "", source, parser.SkipObjectResolution)
	if err != nil {
		return "", err
	}
	within := find(file, m.declaration)
	if within == nil {
		return source, nil
	}
	e := editor{source: source, base: int(file.FileStart)}
	if m.operator == "return" {
		function, ok := within.(*ast.FuncDecl)
		if !ok {
			return "", fmt.Errorf("%s is not a function", m.declaration)
		}
		body := function.Body.Lbrace + 1
		return e.replace(body, body, " if true { return "+m.arguments+" }; "), nil
	}
	name, replacement, _ := strings.Cut(m.arguments, " ")
	path := e.use(within, name)
	if path == nil {
		return "", fmt.Errorf("the declaration does not use %s", name)
	}
	switch m.operator {
	case "set":
		return e.replace(path[0].Pos(), path[0].End(), replacement), nil
	case "never", "always":
		prefix := map[string]string{"never": "(false && (", "always": "(true || ("}[m.operator]
		if c := condition(path); c != nil {
			return e.replace(c.Pos(), c.End(), prefix+e.text(c)+"))"), nil
		}
	case "skip", "swap":
		if s, next := statement(path); m.operator == "skip" && s != nil {
			return e.replace(s.Pos(), s.End(), "if false { "+e.text(s)+" }"), nil
		} else if next != nil {
			return e.replace(s.Pos(), next.End(), e.text(next)+"; "+e.text(s)), nil
		}
	default:
		return "", fmt.Errorf("%q is not an operator", m.operator)
	}
	return "", fmt.Errorf("%s is not in such a statement or condition", name)
}

// find returns the declaration of a function, Type.Method, constant or variable, or nil.
func find(file *ast.File, name string) ast.Node {
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if receiver(d)+d.Name.Name == name {
				return d
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				value, ok := spec.(*ast.ValueSpec)
				if ok && slices.ContainsFunc(value.Names, func(i *ast.Ident) bool { return i.Name == name }) {
					return value
				}
			}
		}
	}
	return nil
}

// receiver returns the type of a method with a dot, or "" for a function.
func receiver(d *ast.FuncDecl) string {
	if d.Recv == nil {
		return ""
	}
	name := ""
	ast.Inspect(d.Recv.List[0].Type, func(n ast.Node) bool {
		if i, ok := n.(*ast.Ident); ok && name == "" {
			name = i.Name + "."
		}
		return true
	})
	return name
}

// editor changes the text of nodes.
type editor struct {
	source string
	base   int // position of the first byte of the source
}

func (e editor) text(n ast.Node) string { return e.source[int(n.Pos())-e.base : int(n.End())-e.base] }

func (e editor) replace(from, to token.Pos, text string) string {
	return e.source[:int(from)-e.base] + text + e.source[int(to)-e.base:]
}

// use returns a use of name#n and the nodes that contain it, the innermost first, or nil.
func (e editor) use(within ast.Node, name string) []ast.Node {
	name, number, _ := strings.Cut(name, "#")
	left, err := strconv.Atoi(number)
	if err != nil {
		left = 1
	}
	var path, found []ast.Node
	ast.Inspect(within, func(n ast.Node) bool {
		if n == nil {
			path = path[1:]
			return true
		}
		path = slices.Insert(path, 0, n)
		switch n.(type) {
		case *ast.Ident, *ast.BasicLit, *ast.SelectorExpr:
			if e.text(n) == name {
				if left--; left == 0 {
					found = slices.Clone(path)
				}
			}
		}
		return true
	})
	return found
}

// condition returns the smallest condition on a path, or nil.
func condition(path []ast.Node) ast.Node {
	for i, parent := range path[1:] {
		if _, ok := path[i].(ast.Expr); !ok {
			return nil
		}
		switch p := parent.(type) {
		case *ast.BinaryExpr:
			if p.Op == token.LAND || p.Op == token.LOR {
				return path[i]
			}
		case *ast.IfStmt:
			if p.Cond == path[i] {
				return path[i]
			}
		case *ast.CaseClause, *ast.ReturnStmt:
			return path[i]
		}
	}
	return nil
}

// statement returns the smallest statement on a path that is in a list of statements. It also
// returns the next one.
func statement(path []ast.Node) (s, next ast.Node) {
	for i, parent := range path[1:] {
		var list []ast.Stmt
		switch p := parent.(type) {
		case *ast.BlockStmt:
			list = p.List
		case *ast.CaseClause:
			list = p.Body
		case *ast.CommClause:
			list = p.Body
		}
		at := slices.IndexFunc(list, func(s ast.Stmt) bool { return s == path[i] })
		switch {
		case at >= 0 && at+1 < len(list):
			return list[at], list[at+1]
		case at >= 0:
			return list[at], nil
		}
	}
	return nil, nil
}
