// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// module writes a module with one package, whose test detects some mistakes, and returns
// a runner for it.
func module(t *testing.T) runner {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module example.com/m\n\ngo 1.26\n",
		"p/p.go": `package p

func Max(a, b int) int {
	if a > b {
		return a
	}
	return b
}

func Last(items []int) int {
	n := 0
	for n < len(items) {
		n++
	}
	return items[n-1]
}
`,
		"p/p_test.go": `package p

import "testing"

func TestMax(t *testing.T) {
	t.Run("of two", func(t *testing.T) {
		if Max(2, 1) != 2 || Max(1, 2) != 2 {
			t.Error("wrong")
		}
	})
}

func TestLast(t *testing.T) {
	if Last([]int{1, 2}) != 2 {
		t.Error("wrong")
	}
}
`,
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return runner{root: dir, limit: time.Minute}
}

func TestVerdictsOnMutants(t *testing.T) {
	t.Parallel()
	r := module(t)
	for name, tc := range map[string]struct {
		m      mutant
		want   verdict
		reason string
	}{
		"a test fails": {
			mutant{old: "a > b", new: "a < b"}, killed, "TestMax",
		},
		"the process panics": {
			mutant{old: "items[n-1]", new: "items[n]"}, killed, "TestLast",
		},
		"no test fails": {
			mutant{old: "a > b", new: "a >= b", notice: "nothing at all"}, survived, "nothing at all",
		},
		"no test fails, and none can": {
			mutant{old: "a > b", new: "a >= b", excuse: "equal numbers are the same"}, excused, "equal numbers are the same",
		},
		"a test fails although the list excuses the mutant": {
			mutant{old: "a > b", new: "a < b", excuse: "no caller compares"}, stale, "TestMax notices it, and the list says: no caller compares",
		},
		"the named tests do not detect it": {
			mutant{old: "a > b", new: "a < b", run: "TestLast", notice: "wrong"}, survived, "wrong",
		},
		"no test has the name": {
			mutant{old: "a > b", new: "a < b", run: "TestMinimum"}, broken, `no test of p matches "TestMinimum"`,
		},
		"a test hangs": {
			mutant{old: "n++", new: "n += 0"}, hung, "the tests do not end",
		},
		"a test hangs as the list says": {
			mutant{old: "n++", new: "n += 0", hangs: 100 * time.Millisecond}, killed, "a test hangs",
		},
		"the mutant does not compile": {
			mutant{old: "a > b", new: "a > c"}, broken, "undefined: c",
		},
		"the code has changed": {
			mutant{old: "a == b", new: "a > b"}, broken, `"a == b" is in the file 0 times, want once`,
		},
		"the text is in several places": {
			mutant{old: "return", new: "panic(0)"}, broken, `"return" is in the file 3 times, want once`,
		},
		"the file is gone": {
			mutant{file: "p/q.go", old: "a", new: "b"}, broken, "no such file",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if tc.m.file == "" {
				tc.m.file = "p/p.go"
			}
			r := r
			if strings.HasPrefix(name, "a test hangs") {
				r.limit = 100 * time.Millisecond
			}
			res := r.try(t.Context(), tc.m)
			if res.verdict != tc.want || !strings.Contains(res.reason, tc.reason) {
				t.Errorf("%s: %s, want %s: %s", res.verdict, res.reason, tc.want, tc.reason)
			}
			if want := tc.want == killed || tc.want == excused; res.verdict.good() != want {
				t.Errorf("good: %t, want %t", res.verdict.good(), want)
			}
		})
	}
}

func TestAKillByAFlakyTestIsDoubtful(t *testing.T) {
	t.Parallel()
	r := module(t)
	marker := filepath.Join(t.TempDir(), "ran")
	text := `package p

import (
	"os"
	"testing"
)

func TestFirstRunFails(t *testing.T) {
	if _, err := os.Stat("MARKER"); err != nil {
		if err := os.WriteFile("MARKER", nil, 0o600); err != nil {
			t.Fatal(err)
		}
		t.Error("failed once")
	}
}
`
	path := filepath.Join(r.root, "p/flaky_test.go")
	if err := os.WriteFile(path, []byte(strings.ReplaceAll(text, "MARKER", marker)), 0o600); err != nil {
		t.Fatal(err)
	}
	res := r.try(t.Context(), mutant{file: "p/p.go", old: "a > b", new: "a >= b", notice: "nothing"})
	if res.verdict != doubtful || !strings.Contains(res.reason, "TestFirstRunFails failed once") || res.verdict.good() {
		t.Errorf("%s: %s, want it doubted", res.verdict, res.reason)
	}
}

func TestTheSourceTreeIsNotChanged(t *testing.T) {
	t.Parallel()
	r := module(t)
	before, err := os.ReadFile(filepath.Join(r.root, "p/p.go"))
	if err != nil {
		t.Fatal(err)
	}
	r.try(t.Context(), mutant{file: "p/p.go", old: "a > b", new: "a < b"})
	after, err := os.ReadFile(filepath.Join(r.root, "p/p.go"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(before), string(after)); diff != "" {
		t.Errorf("the file (-before +after):\n%s", diff)
	}
}

func TestTheRunFailsIfAMutantSurvives(t *testing.T) {
	t.Parallel()
	r := module(t)
	noticed := mutant{file: "p/p.go", old: "a > b", new: "a < b"}
	unnoticed := mutant{file: "p/p.go", old: "a > b", new: "a >= b", notice: "nothing"}
	var out strings.Builder
	if err := r.tryAll(t.Context(), []mutant{noticed}, 2, &out); err != nil {
		t.Errorf("all mutants are noticed: %v", err)
	}
	if !strings.HasPrefix(out.String(), "killed   p/p.go:4: TestMax (") || !strings.HasSuffix(out.String(), "\n1 mutants: 1 killed\n") {
		t.Errorf("wrote:\n%s", out.String())
	}
	out.Reset()
	err := r.tryAll(t.Context(), []mutant{noticed, unnoticed}, 2, &out)
	if err == nil || !strings.HasPrefix(err.Error(), "1 of 2 mutants are not noticed") {
		t.Errorf("a mutant survives: %v, want an error that counts it", err)
	}
	if !strings.HasSuffix(out.String(), "\n2 mutants: 1 killed, 1 survived\n") {
		t.Errorf("wrote:\n%s", out.String())
	}
}

func TestTheRunFailsIfATestFailsWithoutAMutation(t *testing.T) {
	t.Parallel()
	r := module(t)
	path := filepath.Join(r.root, "p/p_test.go")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(strings.Replace(string(text), "Max(2, 1) != 2", "true", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	m := mutant{file: "p/p.go", old: "a > b", new: "a < b"}
	if err := r.tryAll(t.Context(), []mutant{m}, 1, &out); err == nil || !strings.HasPrefix(err.Error(), "without any mutation: p: ") {
		t.Errorf("error %v, want it to name the tests that fail without any mutation", err)
	}
	m.run = "TestLast"
	m.notice = "nothing"
	if err := r.tryAll(t.Context(), []mutant{m}, 1, &out); err == nil || strings.Contains(err.Error(), "without any mutation") {
		t.Errorf("error %v, want it to be about the mutant: the test that it relies on passes", err)
	}
}
