// SPDX-License-Identifier: Apache-2.0

package repository

import (
	"path/filepath"
	"strings"
	"testing"
)

// The go command adds a requirement to the block with others of its kind, and never splits a
// mixed block. So one mistake stays for ever.
func TestRequirementsAreInOneBlockOfDirectAndOneOfIndirectOnes(t *testing.T) {
	for _, module := range append(nestedModules(t), ".") {
		file := filepath.Join(module, "go.mod")
		blocks := requirements(read(t, file))
		if len(blocks) == 0 {
			t.Errorf("%s requires nothing", file)
		}
		kinds := map[bool]int{}
		for _, block := range blocks {
			indirect := strings.HasSuffix(block[0], "// indirect")
			kinds[indirect]++
			for _, line := range block {
				if strings.HasSuffix(line, "// indirect") != indirect {
					t.Errorf("%s: %q is in a block with direct and indirect requirements", file, line)
				}
			}
		}
		if kinds[false] > 1 || kinds[true] > 1 {
			t.Errorf("%s has %d blocks of direct and %d of indirect requirements, want one of each at most", file, kinds[false], kinds[true])
		}
	}
}

// requirements returns the lines of each require block of a go.mod.
func requirements(text string) [][]string {
	var blocks [][]string
	inside := false
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		switch {
		case line == "require (":
			inside = true
			blocks = append(blocks, nil)
		case line == ")":
			inside = false
		case inside && line != "" && !strings.HasPrefix(line, "//"):
			blocks[len(blocks)-1] = append(blocks[len(blocks)-1], line)
		}
	}
	return blocks
}
