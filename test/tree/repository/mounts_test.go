// SPDX-License-Identifier: Apache-2.0

package repository

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Where mounts are shared, as with systemd, an unmount of a copy in a test reaches the machine's original.
func TestTestsMountInANamespaceOfTheirOwn(t *testing.T) {
	exceptions := map[string]string{
		"test/judges/foreign": "the node of the cluster must see the mounts, which are in a group of their own",
		"test/gpu":            "only its clients mount, which it starts in a namespace of their own",
	}
	mounts := regexp.MustCompile(`\b(unix|syscall)\.(Mount|Unmount)\(`)
	found := map[string]bool{}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() && entry.Name() == ".build" {
			return fs.SkipDir
		}
		if !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		text, err := os.ReadFile(path)
		if err == nil && mounts.Match(text) {
			folder, err := filepath.Rel(root, filepath.Dir(path))
			found[folder] = true
			return err
		}
		return err
	})
	if err != nil || len(found) < len(exceptions)+2 {
		t.Fatalf("only the packages %v found: %v", found, err)
	}
	for folder := range found {
		if exceptions[folder] != "" {
			continue
		}
		files, err := filepath.Glob(filepath.Join(root, folder, "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		enters := false
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			enters = enters || strings.Contains(string(text), "\tmountns.Enter()\n")
		}
		if !enters {
			t.Errorf("the tests of %s mount on the machine: call mountns.Enter in TestMain", folder)
		}
	}
}
