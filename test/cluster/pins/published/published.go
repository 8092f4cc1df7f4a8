// SPDX-License-Identifier: Apache-2.0

// Package published makes the ResourceSlices that the driver publishes and reads its manifests, for tests of programs
// that read them.
package published

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// Slices returns the slices of one node, by the name of their golden file in pkg/catalog/testdata. The root is
// the folder of the repository.
func Slices(t testing.TB, root string) map[string][]resourceapi.ResourceSlice {
	t.Helper()
	folder := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "go", "-C", root, "test", "-count=1", "-run=^TestSlicesOfEachModelAndOffer$", "./pkg/catalog")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=1", "WRITE_SLICES="+folder)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatal(fmt.Errorf("%v: %w\n%s", cmd, err, out))
	}
	files, err := filepath.Glob(filepath.Join(folder, "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	slices := map[string][]resourceapi.ResourceSlice{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var list resourceapi.ResourceSliceList
		if err := yaml.Unmarshal(text, &list); err != nil {
			t.Fatal(fmt.Errorf("%s: %w", file, err))
		}
		slices[strings.TrimSuffix(filepath.Base(file), ".json")] = list.Items
	}
	return slices
}

// Documents returns the documents of a kind in a manifest. The file is relative to the root.
func Documents(t testing.TB, root, file, kind string) (documents [][]byte) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		t.Fatal(err)
	}
	for document := range bytes.SplitSeq(text, []byte("\n---\n")) {
		var head metav1.TypeMeta
		if err := yaml.Unmarshal(document, &head); err != nil {
			t.Fatal(fmt.Errorf("%s: %w", file, err))
		}
		if head.Kind == kind {
			documents = append(documents, document)
		}
	}
	return documents
}
