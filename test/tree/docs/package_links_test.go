// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// linkInComment is [Name] or [Name.Member], but no link with a target.
var linkInComment = regexp.MustCompile(`\[(\w+(?:\.\w+)?)\](?:[^(:\w]|$)`)

// A door sign that names a part of an earlier house misleads its first readers.
func TestEachNameInAPackageCommentExists(t *testing.T) {
	type comment struct{ pkg, path, text string }
	var comments []comment
	names := map[string]map[string]bool{}
	for _, dir := range packageFolders(t) {
		packages, err := parser.ParseDir(token.NewFileSet(), dir, nil, parser.ParseComments) //nolint:staticcheck // build tags do not matter here
		if err != nil {
			t.Fatal(err)
		}
		for name, p := range packages {
			if names[name] == nil {
				names[name] = map[string]bool{}
			}
			for path, file := range p.Files {
				declared(file, names[name])
				comments = append(comments, comment{name, path, file.Doc.Text()})
			}
		}
	}
	links := 0
	for _, c := range comments {
		for _, match := range linkInComment.FindAllStringSubmatch(c.text, -1) {
			links++
			first, rest, _ := strings.Cut(match[1], ".")
			of, isPackage := names[first]
			switch {
			case names[c.pkg][match[1]], isPackage && of[rest]:
			case !isPackage && rest != "" && strings.ToLower(first) == first:
				// A name of another module.
			default:
				t.Errorf("%s: the comment of the package names [%s], which does not exist", c.path, match[1])
			}
		}
	}
	if links < 20 {
		t.Errorf("%d links were found: does this test still read the comments?", links)
	}
}

// packageFolders lists the folders of the driver's packages.
func packageFolders(t *testing.T) []string {
	t.Helper()
	var dirs []string
	for _, top := range []string{"pkg", "cmd", "api"} {
		err := filepath.WalkDir(filepath.Join("../../..", top), func(path string, entry fs.DirEntry, err error) error {
			if err == nil && entry.IsDir() && entry.Name() != "testdata" {
				dirs = append(dirs, path)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return dirs
}

// declared adds the names that a file declares and imports, methods as Type.Method.
func declared(file *ast.File, names map[string]bool) {
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			name := d.Name.Name
			if d.Recv != nil {
				receiver := d.Recv.List[0].Type
				if star, ok := receiver.(*ast.StarExpr); ok {
					receiver = star.X
				}
				if generic, ok := receiver.(*ast.IndexExpr); ok {
					receiver = generic.X
				}
				if id, ok := receiver.(*ast.Ident); ok {
					name = id.Name + "." + name
				}
			}
			names[name] = true
		case *ast.GenDecl:
			for _, s := range d.Specs {
				switch s := s.(type) {
				case *ast.TypeSpec:
					names[s.Name.Name] = true
					members(s, names)
				case *ast.ValueSpec:
					for _, id := range s.Names {
						names[id.Name] = true
					}
				}
			}
		}
	}
}

// members adds the fields of a struct and the methods of an interface.
func members(s *ast.TypeSpec, names map[string]bool) {
	var fields *ast.FieldList
	switch t := s.Type.(type) {
	case *ast.StructType:
		fields = t.Fields
	case *ast.InterfaceType:
		fields = t.Methods
	default:
		return
	}
	for _, f := range fields.List {
		for _, id := range f.Names {
			names[s.Name.Name+"."+strings.TrimSpace(id.Name)] = true
		}
	}
}
