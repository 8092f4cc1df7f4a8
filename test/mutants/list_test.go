// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// deciding lists the packages whose mistakes a user would notice.
var deciding = []string{
	"api/gpu/v1alpha1", "cmd/gpu-kubelet-plugin",
	"pkg/agent", "pkg/catalog", "pkg/cdi", "pkg/claim", "pkg/cluster", "pkg/controller", "pkg/folder", "pkg/gpu", "pkg/home",
	"pkg/inventory", "pkg/mps/supervisor", "pkg/nvml", "pkg/plugin", "pkg/podresources", "pkg/store", "pkg/sysfs", "pkg/telemetry",
}

const root = "../.."

func TestEveryMutationStillApplies(t *testing.T) {
	code := checker{set: token.NewFileSet(), headers: map[string]map[string]*ast.File{}}
	known := map[string][]string{}
	for _, m := range all() {
		text, err := os.ReadFile(filepath.Join(root, m.file))
		if err != nil {
			t.Error(err)
			continue
		}
		mutated, err := m.apply(string(text))
		if err != nil {
			t.Error(err)
			continue
		}
		if known[m.file] == nil {
			known[m.file] = code.check(t, m.file, string(text))
		}
		for _, message := range code.check(t, m.file, mutated) {
			if !slices.Contains(known[m.file], message) {
				t.Errorf("%s with %q does not compile: %s", m.name(string(text)), m.new, message)
			}
		}
	}
}

// checker finds names for which a file does not compile, without a build.
type checker struct {
	set     *token.FileSet
	headers map[string]map[string]*ast.File // by folder and file; without the bodies of functions
}

// check returns the names that are undefined or not used in a file with a text. It knows
// no other packages, so the names of some imports are among them.
func (c checker) check(t *testing.T, name, text string) []string {
	t.Helper()
	file, err := parser.ParseFile(c.set, name, text, parser.SkipObjectResolution)
	if err != nil {
		return []string{err.Error()}
	}
	folder := path.Dir(name)
	if c.headers[folder] == nil {
		c.headers[folder] = c.read(t, folder)
	}
	files := maps.Clone(c.headers[folder])
	files[path.Base(name)] = file
	var found []string
	config := types.Config{Importer: nothing{}, Error: func(err error) {
		if e, ok := errors.AsType[types.Error](err); ok && aboutNames.MatchString(e.Msg) {
			found = append(found, e.Msg)
		}
	}}
	_, _ = config.Check("", c.set, slices.Collect(maps.Values(files)), nil)
	return found
}

var aboutNames = regexp.MustCompile(`^undefined: \w+$|^declared and not used: |^".*" imported .*and not used`)

// read parses the files of a folder.
func (c checker) read(t *testing.T, folder string) map[string]*ast.File {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(root, folder, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]*ast.File{}
	for _, name := range paths {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(c.set, name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			if function, ok := d.(*ast.FuncDecl); ok {
				function.Body = nil
			}
		}
		files[filepath.Base(name)] = file
	}
	return files
}

// nothing imports no package, which is much faster than to load them all.
type nothing struct{}

func (nothing) Import(string) (*types.Package, error) { return nil, errors.ErrUnsupported }

func TestEveryPatternMatchesATest(t *testing.T) {
	tests := map[string][]string{}
	for _, m := range all() {
		folder := m.folder()
		if tests[folder] == nil {
			tests[folder] = testsOf(t, folder)
		}
		for pattern := range strings.SplitSeq(m.run, "|") {
			if !slices.ContainsFunc(tests[folder], regexp.MustCompile(pattern).MatchString) {
				t.Errorf("%s, %q: no test of %s matches %q", m.file, m.old, folder, pattern)
			}
		}
	}
}

// testsOf returns the names of the tests in a folder.
func testsOf(t *testing.T, folder string) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(root, folder, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, name := range paths {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range testFunction.FindAllStringSubmatch(string(text), -1) {
			names = append(names, match[1])
		}
	}
	return names
}

var testFunction = regexp.MustCompile(`(?m)^func (Test\w+)\(`)

func TestEveryMutantDescribesItsEffect(t *testing.T) {
	seen := map[mutant]bool{}
	for _, m := range all() {
		if m.notice == "" {
			t.Errorf("%s, %q: the list does not say what a user would notice", m.file, m.old)
		}
		if seen[m] {
			t.Errorf("%s, %q: is in the list twice", m.file, m.old)
		}
		seen[m] = true
	}
	if want := 60; len(seen) < want {
		t.Errorf("the list has %d mutants, want at least %d", len(seen), want)
	}
}

func TestEveryDecidingPackageHasMutants(t *testing.T) {
	for _, folder := range deciding {
		has := false
		for _, m := range all() {
			has = has || strings.HasPrefix(m.file, folder+"/")
		}
		if !has {
			t.Errorf("no mutant is of %s", folder)
		}
	}
}
