// SPDX-License-Identifier: Apache-2.0

// Package files has the folders and golden files of tests.
package files

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/util/wait"
)

// Golden compares with a file in the package's testdata, or writes the file with
// UPDATE_GOLDEN=1.
func Golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v; make generate writes it", err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", name, diff)
	}
}

// List returns the names in a folder, in their order.
func List(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// ShortDir returns a folder for sockets, which is removed when the test ends. The path of
// a socket has at most 107 bytes, and that of t.TempDir contains the test's name.
//
// A call that hung and whose caller has given up may still write to the folder when the
// test ends, so it is removed again until it is gone.
func ShortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "t") //nolint:usetesting // see above
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// The test's own context has ended.
		err := wait.PollUntilContextTimeout(context.Background(), 10*time.Millisecond, 30*time.Second, true, func(context.Context) (bool, error) {
			err := os.RemoveAll(dir)
			if errors.Is(err, unix.ENOTEMPTY) {
				return false, nil
			}
			return true, err
		})
		if err != nil {
			t.Errorf("remove %s: %v", dir, err)
		}
	})
	return dir
}
