// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pmezard/go-difflib/difflib"
	"sigs.k8s.io/yaml"
)

// staticManifest is the rendering for users without helm.
const staticManifest = "../../deployments/static/install.yaml"

// staticValues are the values of the static manifest.
const staticValues = "namespace: {create: true}"

const staticHead = `# gpu-dra-driver without helm: kubectl apply -f install.yaml
# It is deployments/helm/gpu-dra-driver with its default values and images without
# a registry. Made by ` + "`make generate`" + `; do not edit.
`

// The static manifest is in full. testdata/golden shows how the rendering with the
// default values differs from it, and how each other rendering differs from that.
func TestRenderingsAreWhatTheGoldenFilesShow(t *testing.T) {
	files, err := filepath.Glob("testdata/values/*.yaml")
	must(t, err)
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		t.Run(name, func(t *testing.T) {
			base := withNotes(mustRender(t, cluster{}, valuesFile(t, "default.yaml")))
			if name == "default" {
				base = mustRender(t, cluster{}, staticValues).manifests
			}
			golden(t, filepath.Join("testdata/golden", name+".txt"), difference(t, base, withNotes(mustRender(t, cluster{}, valuesFile(t, name+".yaml")))))
		})
	}
}

// withNotes returns all documents of a rendering: manifests, hooks and the notes.
func withNotes(r rendered) []string {
	return slices.Concat(r.manifests, r.hooks, []string{"kind: NOTES.txt\n" + r.notes})
}

func TestTheManifestForThoseWithoutHelmIsCurrent(t *testing.T) {
	r := mustRender(t, cluster{}, staticValues)
	golden(t, staticManifest, staticHead+document(r.manifests))
}

// difference returns what turns the documents of a base into others: the names of
// those to remove, those to add in full with the name of the one before, and the
// changed lines of those to change.
func difference(t *testing.T, base, documents []string) string {
	t.Helper()
	before, names := namesOf(t, base), namesOf(t, documents)
	var b strings.Builder
	for _, op := range difflib.NewMatcher(before, names).GetOpCodes() {
		if op.Tag != 'e' {
			for _, name := range before[op.I1:op.I2] {
				fmt.Fprintf(&b, "==== remove %s\n", name)
			}
			for j := op.J1; j < op.J2; j++ {
				fmt.Fprintf(&b, "==== add %s after %s\n%s\n", names[j], names[max(j, 1)-1], documents[j])
			}
			continue
		}
		for i := range op.I2 - op.I1 {
			if was, is := base[op.I1+i], documents[op.J1+i]; was != is {
				diff, err := difflib.GetUnifiedDiffString(difflib.UnifiedDiff{A: strings.SplitAfter(was, "\n"), B: strings.SplitAfter(is, "\n")})
				must(t, err)
				fmt.Fprintf(&b, "==== change %s\n%s", names[op.J1+i], diff)
			}
		}
	}
	return b.String()
}

// namesOf returns the kind, namespace and name of each document.
func namesOf(t *testing.T, documents []string) []string {
	t.Helper()
	var names []string
	for _, text := range documents {
		object := struct {
			Kind     string
			Metadata struct{ Namespace, Name string }
		}{Kind: "NOTES.txt"}
		if !strings.HasPrefix(text, "kind: NOTES.txt\n") {
			must(t, yaml.Unmarshal([]byte(text), &object))
		}
		name := strings.Join(strings.Fields(object.Kind+" "+object.Metadata.Namespace+" "+object.Metadata.Name), " ")
		if slices.Contains(names, name) {
			t.Fatalf("two documents are %s", name)
		}
		names = append(names, name)
	}
	return names
}

// golden compares with a file, or writes it if UPDATE_GOLDEN is set.
func golden(t *testing.T, path, got string) {
	t.Helper()
	if os.Getenv("UPDATE_GOLDEN") != "" {
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must(t, os.WriteFile(path, []byte(got), 0o644))
		return
	}
	want, err := os.ReadFile(path)
	must(t, err)
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s is not what the chart renders; `make generate` writes it anew (-want +got):\n%s", path, diff)
	}
}
