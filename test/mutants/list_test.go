// SPDX-License-Identifier: Apache-2.0

package main

import (
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// deciding lists the packages whose mistakes a user would notice.
var deciding = []string{
	"api/gpu/v1alpha1", "cmd/gpu-kubelet-plugin",
	"pkg/agent", "pkg/catalog", "pkg/cdi", "pkg/claim", "pkg/cluster", "pkg/controller", "pkg/folder", "pkg/gpu", "pkg/home",
	"pkg/inventory", "pkg/mps/supervisor", "pkg/nvml", "pkg/plugin", "pkg/podresources", "pkg/store", "pkg/sysfs",
}

const root = "../.."

func TestEveryMutationStillApplies(t *testing.T) {
	for _, m := range all() {
		source, err := os.ReadFile(filepath.Join(root, m.file))
		if err != nil {
			t.Error(err)
			continue
		}
		mutated, err := m.apply(string(source))
		if err != nil {
			t.Error(err)
			continue
		}
		if _, err := parser.ParseFile(token.NewFileSet(), m.file, mutated, parser.SkipObjectResolution); err != nil {
			t.Errorf("%s with %q is not valid Go: %v", m.name(string(source)), m.new, err)
		}
	}
}

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
