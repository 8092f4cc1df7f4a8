// SPDX-License-Identifier: Apache-2.0

// Command vocabulary writes the tables and documents that are generated from the
// public vocabulary, api/gpu/v1alpha1. The tables are for the chart's admission
// policies. Its test fails if one of them is stale.
//
// It runs in the root of the repository: go run ./test/tree/vocabulary
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	if err := write("."); err != nil {
		fmt.Fprintln(os.Stderr, "vocabulary:", err)
		os.Exit(1)
	}
}

// write writes every generated file below the root.
func write(root string) error {
	files, err := generate(root)
	if err != nil {
		return err
	}
	for path, text := range files {
		if err := os.WriteFile(filepath.Join(root, path), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// generate returns the text of every generated file by its path below the root.
func generate(root string) (map[string]string, error) {
	v, err := readVocabulary(root)
	if err != nil {
		return nil, err
	}
	files := map[string]string{chartFile: v.chart()}
	documents := v.documents()
	profiles, err := migProfiles()
	if err != nil {
		return nil, err
	}
	documents["docs/admin/mig-profiles.md"] = map[string]string{"profiles": profiles}
	figures, err := readReports(root)
	if err != nil {
		return nil, err
	}
	tables, svg := measured(figures)
	documents[measuredPage], files[measuredFigure] = map[string]string{"measured": tables}, svg
	for path, regions := range documents {
		text, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			return nil, err
		}
		if files[path], err = replaceRegions(string(text), regions); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	return files, nil
}
