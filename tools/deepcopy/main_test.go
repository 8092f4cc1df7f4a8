// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDeepCopiesAreUpToDate(t *testing.T) {
	t.Chdir(filepath.Join("..", root))
	folder := t.TempDir()
	if err := generate(folder); err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(filepath.Join(folder, outputFile))
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(apiPackage, outputFile))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s is stale, run make generate (-want +got):\n%s", outputFile, diff)
	}
}
