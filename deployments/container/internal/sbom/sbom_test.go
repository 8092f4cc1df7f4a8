// SPDX-License-Identifier: Apache-2.0

package sbom

import (
	"encoding/json"
	"slices"
	"testing"
	"time"
)

func example() Image {
	module := Package{Name: "example.com/m", Version: "v1.2.3", Licence: "MIT", URL: "pkg:golang/example.com/m@v1.2.3"}
	libc := Package{Name: "libc6", Version: "2.36-9", Licence: "LGPL-2.1-or-later", URL: "pkg:deb/debian/libc6@2.36-9?arch=arm64"}
	return Image{
		Name: "agent", Version: "v0.1.0", Architecture: "arm64", Digest: "sha256:abc", Licence: "MIT AND LGPL-2.1-or-later",
		Source: "https://example.com/driver", Created: time.Unix(0, 0),
		Files: []File{
			{Path: "usr/lib/libc.so.6", Content: []byte("library"), Licence: libc.Licence, Type: Binary, Origins: []Origin{{Expanded, libc}}},
			{Path: "usr/bin/agent", Content: []byte("program"), Licence: "MIT", Type: Binary, Origins: []Origin{{StaticLink, module}, {DynamicLink, libc}}},
		},
	}
}

func TestADocumentLeadsFromAFileToItsPackages(t *testing.T) {
	text, err := Marshal(example())
	if err != nil {
		t.Fatal(err)
	}
	var d document
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	if d.Version != "SPDX-2.3" || len(d.Packages) != 3 || len(d.Files) != 2 || d.Namespace != "https://example.com/driver/spdx/agent/abc" {
		t.Fatalf("document:\n%s", text)
	}
	agent := d.Files[0]
	// sha256sum of "program".
	want := checksum{"SHA256", "1310ca2c8932dbd118668bd97442558a3e1f546b5e15c69699dfbd6024f548d8"}
	if agent.Name != "./usr/bin/agent" || !slices.Contains(agent.Checksums, want) {
		t.Errorf("file %+v", agent)
	}
	byID := map[string]pkg{}
	for _, p := range d.Packages {
		byID[p.ID] = p
	}
	for _, want := range []struct {
		relation Relation
		name     string
	}{{StaticLink, "example.com/m"}, {DynamicLink, "libc6"}} {
		if !slices.ContainsFunc(d.Relationships, func(r relationship) bool {
			return r.From == agent.ID && r.Type == string(want.relation) && byID[r.To].Name == want.name
		}) {
			t.Errorf("the program has no relation %s to %s:\n%s", want.relation, want.name, text)
		}
	}
}

func TestTheOrderOfFilesDoesNotChangeTheDocument(t *testing.T) {
	i := example()
	one, err := Marshal(i)
	if err != nil {
		t.Fatal(err)
	}
	slices.Reverse(i.Files)
	two, err := Marshal(i)
	if err != nil || string(one) != string(two) {
		t.Errorf("error %v, the documents differ: %v", err, string(one) != string(two))
	}
}

// Two packages can have names that differ only in characters that identifiers cannot have.
func TestPackagesHaveDifferentIdentifiers(t *testing.T) {
	i := example()
	i.Files[0].Origins = append(i.Files[0].Origins, Origin{StaticLink, Package{Name: "a/b", Version: "1"}}, Origin{StaticLink, Package{Name: "a-b", Version: "1"}})
	text, err := Marshal(i)
	if err != nil {
		t.Fatal(err)
	}
	var d document
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, p := range d.Packages {
		if seen[p.ID] {
			t.Errorf("%s stands twice", p.ID)
		}
		seen[p.ID] = true
	}
}
