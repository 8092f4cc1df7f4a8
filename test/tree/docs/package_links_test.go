// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"go/doc"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A door sign that names a part of an earlier house misleads its first readers.
func TestEachNameInAPackageCommentExists(t *testing.T) {
	packages, paths := map[string]*doc.Package{}, map[string]string{} // by import path; the path by name
	for _, top := range []string{"pkg", "cmd", "api"} {
		err := filepath.WalkDir(filepath.Join(root, top), func(dir string, entry fs.DirEntry, err error) error {
			if err != nil || !entry.IsDir() {
				return err
			}
			files := token.NewFileSet()
			parsed, err := parser.ParseDir(files, dir, nil, parser.ParseComments) //nolint:staticcheck // build tags do not matter here
			for name, p := range parsed {
				if strings.HasSuffix(name, "_test") {
					continue
				}
				packages[dir], err = doc.NewFromFiles(files, slices.Collect(maps.Values(p.Files)), dir, doc.AllDecls|doc.PreserveAST)
				paths[name] = dir
			}
			return err
		})
		must(t, err)
	}
	links := 0
	for path, p := range packages {
		for _, m := range regexp.MustCompile(`\[(\w+)(?:\.(\w+))?\](?:[^(:\w]|$)`).FindAllStringSubmatch(p.Doc, -1) {
			links++
			of, ours := packages[paths[m[1]]]
			ofAnother := m[2] != "" && strings.ToLower(m[1]) == m[1]
			switch {
			case ofAnother && (!ours || of.Parser().LookupSym("", m[2])):
			case m[2] == "" && p.Parser().LookupSym("", m[1]), p.Parser().LookupSym(m[1], m[2]):
			default:
				t.Errorf("%s: the comment of the package names %s, which does not exist", path, m[0])
			}
		}
	}
	if links < 20 {
		t.Errorf("%d links were found: does this test still read the comments?", links)
	}
}
