// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// exportData returns a function that opens what the compiler exports of a package.
func exportData(t *testing.T) func(string) (io.ReadCloser, error) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}", "./").Output()
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for line := range strings.Lines(string(out)) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		files[path] = file
	}
	return func(path string) (io.ReadCloser, error) {
		if files[path] == "" {
			return nil, errors.New("no export data of " + path)
		}
		return os.Open(files[path])
	}
}

// memory returns the types of the memory of C that the library stores or reads. They are the
// parameters of its generic functions, and the targets of its conversions of pointers.
func memory(t *testing.T) []types.Type {
	t.Helper()
	set := token.NewFileSet()
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	var files []*ast.File
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(set, name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	info := &types.Info{Instances: map[*ast.Ident]types.Instance{}, Types: map[ast.Expr]types.TypeAndValue{}}
	config := types.Config{FakeImportC: true, Importer: importer.ForCompiler(set, "gc", exportData(t))}
	if _, err := config.Check("main", set, files, info); err != nil {
		t.Fatal(err)
	}
	var all []types.Type
	for _, instance := range info.Instances {
		for i := range instance.TypeArgs.Len() {
			all = append(all, instance.TypeArgs.At(i))
		}
	}
	for expr, value := range info.Types {
		call, ok := expr.(*ast.CallExpr)
		if !ok || !info.Types[call.Fun].IsType() {
			continue
		}
		if pointer, ok := value.Type.(*types.Pointer); ok {
			all = append(all, pointer.Elem())
		}
	}
	return all
}

// A struct that is not in the list would be stored without a check of its layout.
func TestTheListOfStructsIsComplete(t *testing.T) {
	checked := map[string]bool{}
	for _, value := range structs() {
		checked[reflect.TypeOf(value).Name()] = true
	}
	found := map[string]bool{}
	for _, of := range memory(t) {
		named, ok := of.(*types.Named)
		if !ok {
			continue
		}
		if _, ok := named.Underlying().(*types.Struct); ok {
			found[named.Obj().Name()] = true
		}
	}
	for name := range found {
		// nvml.h has the newest nvmlPciInfo_t only.
		if !checked[name] && name != "olderPCIInfo" {
			t.Errorf("the library uses %s, and structs does not list it", name)
		}
	}
	for name := range checked {
		if !found[name] {
			t.Errorf("structs lists %s, and the library does not use it", name)
		}
	}
}
