// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const protocol = "../../pkg/mps/mpsv1"

func TestTheCodeOfTheProtocolIsUpToDate(t *testing.T) {
	folder := t.TempDir()
	if err := generate(t.Context(), filepath.Join(protocol, "supervisor.proto"), folder); err != nil {
		t.Fatal(err)
	}
	files, err := os.ReadDir(folder)
	if err != nil || len(files) != 2 {
		t.Fatalf("generated %v: %v, want the messages and the service", files, err)
	}
	for _, file := range files {
		want, err := os.ReadFile(filepath.Join(folder, file.Name()))
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(filepath.Join(protocol, file.Name()))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), string(got)); diff != "" {
			t.Errorf("%s is stale, run make generate (-want +got):\n%s", file.Name(), diff)
		}
	}
}
