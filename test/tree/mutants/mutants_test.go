// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

const root = "../../.."

func TestEveryMutantApplies(t *testing.T) {
	all, err := readAll(root)
	must(t, err)
	if want := 60; len(all) < want {
		t.Errorf("%d mutants, want at least %d", len(all), want)
	}
	for i, m := range all {
		if slices.Contains(all[:i], m) {
			t.Errorf("%s: is in the table twice", m)
		}
		if _, _, err := m.apply(root); err != nil {
			t.Error(err)
		}
		if !hasTest(t, m) {
			t.Errorf("%s: %s has no test %s", m, m.testFolder, m.test)
		}
	}
}

func hasTest(t *testing.T, m mutant) bool {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(root, m.testFolder, "*_test.go"))
	must(t, err)
	name, _, _ := strings.Cut(m.test, "/") // without the subtest
	return slices.ContainsFunc(paths, func(path string) bool {
		text, err := os.ReadFile(path)
		must(t, err)
		return strings.Contains(string(text), "\nfunc "+name+"(")
	})
}

const source = `package p

var limit = 2

type list[T any] struct{}

func (l *list[T]) add(n int) (int, error) {
	if err := check(n); err != nil {
		return 0, err
	}
	switch {
	case n > limit && !l.full():
		l.open()
		return p.Max, nil
	}
	l.close()
	return n, nil
}
`

func TestOperators(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ mutation, was, want string }{
		{"limit: set 2 3", "limit = 2", "limit = 3"},
		{"list.add: set p.Max p.Min", "p.Max", "p.Min"},
		{"list.add: set n#4 1", "return n", "return 1"},
		{"list.add: return 1, nil", "error) {", "error) { if true { return 1, nil }; "},
		{"list.add: skip open", "l.open()", "if false { l.open() }"},
		{"list.add: skip check", "if err := check(n); err != nil {\n\t\treturn 0, err\n\t}", "if false { if err := check(n); err != nil {\n\t\treturn 0, err\n\t} }"},
		{"list.add: swap l.open", "l.open()\n\t\treturn p.Max, nil", "return p.Max, nil; l.open()"},
		{"list.add: never full", "!l.full()", "(false && (!l.full()))"},
		{"list.add: always limit", "n > limit", "(true || (n > limit))"},
		{"list.add: never nil", "err != nil", "(false && (err != nil))"},
	} {
		m, err := parse("p", tc.mutation+": TestIt: something breaks")
		must(t, err)
		if got, err := m.mutate(source); err != nil || got != strings.Replace(source, tc.was, tc.want, 1) {
			t.Errorf("%s: %v\n%s", tc.mutation, err, got)
		}
	}
}

// TestTheCommand tries mutants of a small module.
func TestTheCommand(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	code := "package p\n\nfunc Max(a, b int) int {\n\tif a > b {\n\t\treturn a\n\t}\n\treturn b\n}\n"
	for path, text := range map[string]string{
		"go.mod": "module example.com/m\n\ngo 1.26\n",
		"p/p.go": code,
		"p/p_test.go": "package p\n\nimport \"testing\"\n\n" +
			"func TestMax(t *testing.T) {\n\tif Max(2, 1) != 2 {\n\t\tt.Error(\"wrong\")\n\t}\n}\n\n" +
			"func TestEqual(t *testing.T) {\n\tif Max(1, 1) != 1 {\n\t\tt.Error(\"wrong\")\n\t}\n}\n\n" +
			"func TestBroken(t *testing.T) { t.Error(\"always\") }\n\n" +
			"func TestRoot(t *testing.T) { t.Skip(\"only root may\") }\n",
	} {
		path = filepath.Join(dir, path)
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must(t, os.WriteFile(path, []byte(text), 0o600))
	}
	for line, want := range map[string]string{
		"Max: never a#2: TestMax: it is wrong":    "",
		"Max: never a#2: TestEqual: it is wrong":  "survived TestEqual, write a test: it is wrong",
		"Max: never a#2: TestMin: it is wrong":    "p has no test TestMin",
		"Max: never a#2: TestBroken: it is wrong": "fails without the mutant as well",
		"Max: never a#2: TestRoot: it is wrong":   "TestRoot was skipped, run as root",
		"Max: set a#2 c: TestMax: it is wrong":    "undefined: c",
		"Min: never a: TestMax: it is wrong":      "the package has no such declaration",
	} {
		m, err := parse("p", line)
		must(t, err)
		var out strings.Builder
		err = tryAll(t.Context(), dir, []mutant{m}, 1, &out)
		if want == "" {
			if err != nil || !strings.HasPrefix(out.String(), "p Max: never a#2: killed (") {
				t.Errorf("%s: %v\n%s", line, err, &out)
			}
		} else if err == nil || !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("%s: %v, want %s", line, err, want)
		}
	}
	if now, err := os.ReadFile(filepath.Join(dir, "p/p.go")); err != nil || string(now) != code {
		t.Errorf("the source tree has changed: %v\n%s", err, now)
	}
}

var must = require.NoError
