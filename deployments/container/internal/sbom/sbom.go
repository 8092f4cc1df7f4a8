// SPDX-License-Identifier: Apache-2.0

// Package sbom writes bills of materials as SPDX 2.3 documents in JSON. The same
// input makes the same bytes.
//
// Out of scope: finding out what a file is made of; internal/notices and internal/debian do.
package sbom

import (
	"crypto/sha1" //nolint:gosec // SPDX requires it for files
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"
)

// Package is software that an image is made of.
type Package struct {
	Name, Version string
	// Licence is an SPDX expression.
	Licence string
	// URL is a package URL (purl), by which scanners find advisories.
	URL string
	// Source says what the package is built from. Empty if the URL says it.
	Source string
	// Download is the location of the sources. Empty if it is not known.
	Download string
}

// Relation of a file to a package, in the words of SPDX.
type Relation string

// Relations that files of images have.
const (
	GeneratedFrom   Relation = "GENERATED_FROM"
	StaticLink      Relation = "STATIC_LINK"
	DynamicLink     Relation = "DYNAMIC_LINK"
	Expanded        Relation = "EXPANDED_FROM_ARCHIVE"
	DocumentationOf Relation = "DOCUMENTATION_OF"
)

// File is a regular file of an image.
type File struct {
	// Path is absolute without the leading slash.
	Path    string
	Content []byte
	// Licence of the file with all that is linked into it.
	Licence string
	Type    string
	Origins []Origin
}

// Types of files in SPDX.
const (
	Binary = "BINARY"
	Text   = "TEXT"
	Other  = "OTHER"
)

// Origin is a package that a file is made of.
type Origin struct {
	Relation Relation
	Package  Package
}

// Image is the subject of a document.
type Image struct {
	Name, Version, Architecture string
	// Digest of the image of that architecture, such as sha256:….
	Digest  string
	Licence string
	// Source is where the sources of the image are.
	Source  string
	Created time.Time
	Files   []File
}

// Marshal returns the document of the image.
func Marshal(i Image) ([]byte, error) {
	_, hash, ok := strings.Cut(i.Digest, ":")
	if !ok {
		return nil, fmt.Errorf("bill of materials of %s: digest %q", i.Name, i.Digest)
	}
	d := document{
		Version: "SPDX-2.3", DataLicence: "CC0-1.0", ID: "SPDXRef-DOCUMENT",
		Name: i.Name + "-" + i.Version + "-" + i.Architecture, Namespace: i.Source + "/spdx/" + i.Name + "/" + hash,
		Creation:      creation{Created: i.Created.UTC().Format(time.RFC3339), Creators: []string{"Tool: gpu-dra-driver-images-" + i.Version}},
		Relationships: []relationship{{"SPDXRef-DOCUMENT", "DESCRIBES", "SPDXRef-Image"}},
	}
	ids := map[Package]string{}
	used := map[string]bool{}
	var sums []string
	files := slices.Clone(i.Files)
	slices.SortFunc(files, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	var packages []pkg
	for n, f := range files {
		id := fmt.Sprintf("SPDXRef-File-%d", n)
		one, two := sha1.Sum(f.Content), sha256.Sum256(f.Content) //nolint:gosec // SPDX requires it
		sums = append(sums, hex.EncodeToString(one[:]))
		d.Files = append(d.Files, file{
			ID: id, Name: "./" + f.Path, Types: []string{f.Type}, Licence: f.Licence, Found: []string{"NOASSERTION"}, Copyright: "NOASSERTION",
			Checksums: []checksum{{"SHA1", hex.EncodeToString(one[:])}, {"SHA256", hex.EncodeToString(two[:])}},
		})
		d.Relationships = append(d.Relationships, relationship{"SPDXRef-Image", "CONTAINS", id})
		for _, origin := range f.Origins {
			if ids[origin.Package] == "" {
				p := origin.Package.record(used)
				ids[origin.Package] = p.ID
				packages = append(packages, p)
			}
			d.Relationships = append(d.Relationships, relationship{id, string(origin.Relation), ids[origin.Package]})
		}
	}
	slices.SortFunc(packages, func(a, b pkg) int { return strings.Compare(a.ID, b.ID) })
	slices.Sort(sums)
	all := sha1.Sum([]byte(strings.Join(sums, ""))) //nolint:gosec // SPDX requires it
	d.Packages = append([]pkg{{
		ID: "SPDXRef-Image", Name: i.Name, Version: i.Version, Purpose: "CONTAINER", Analyzed: true, Verification: &verification{hex.EncodeToString(all[:])},
		Download: "NOASSERTION", Declared: i.Licence, Licence: i.Licence, Found: []string{"NOASSERTION"}, Copyright: "NOASSERTION",
		References: []reference{{"PACKAGE-MANAGER", "purl", "pkg:oci/" + i.Name + "@" + strings.ReplaceAll(i.Digest, ":", "%3A") + "?arch=" + i.Architecture}},
	}}, packages...)
	text, err := json.MarshalIndent(d, "", "  ")
	return append(text, '\n'), err
}

// record returns the package with an identifier that is not used yet.
func (p Package) record(used map[string]bool) pkg {
	plain := func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' {
			return r
		}
		return '-'
	}
	name := "SPDXRef-Package-" + strings.Map(plain, path.Join(p.Name, p.Version))
	id := name
	for n := 2; used[id]; n++ {
		id = fmt.Sprintf("%s-%d", name, n)
	}
	used[id] = true
	download := p.Download
	if download == "" {
		download = "NOASSERTION"
	}
	return pkg{
		ID: id, Name: p.Name, Version: p.Version, Download: download, SourceInfo: p.Source,
		Declared: p.Licence, Licence: p.Licence, Copyright: "NOASSERTION",
		References: []reference{{"PACKAGE-MANAGER", "purl", p.URL}},
	}
}

type document struct {
	Version       string         `json:"spdxVersion"`
	DataLicence   string         `json:"dataLicense"`
	ID            string         `json:"SPDXID"`
	Name          string         `json:"name"`
	Namespace     string         `json:"documentNamespace"`
	Creation      creation       `json:"creationInfo"`
	Packages      []pkg          `json:"packages"`
	Files         []file         `json:"files"`
	Relationships []relationship `json:"relationships"`
}

type creation struct {
	Created  string   `json:"created"`
	Creators []string `json:"creators"`
}

type pkg struct {
	ID           string        `json:"SPDXID"`
	Name         string        `json:"name"`
	Version      string        `json:"versionInfo"`
	Purpose      string        `json:"primaryPackagePurpose,omitempty"`
	Download     string        `json:"downloadLocation"`
	Analyzed     bool          `json:"filesAnalyzed"`
	Verification *verification `json:"packageVerificationCode,omitempty"`
	SourceInfo   string        `json:"sourceInfo,omitempty"`
	Licence      string        `json:"licenseConcluded"`
	Declared     string        `json:"licenseDeclared"`
	Found        []string      `json:"licenseInfoFromFiles,omitempty"`
	Copyright    string        `json:"copyrightText"`
	References   []reference   `json:"externalRefs"`
}

type verification struct {
	Value string `json:"packageVerificationCodeValue"`
}

type reference struct {
	Category string `json:"referenceCategory"`
	Type     string `json:"referenceType"`
	Locator  string `json:"referenceLocator"`
}

type file struct {
	ID        string     `json:"SPDXID"`
	Name      string     `json:"fileName"`
	Types     []string   `json:"fileTypes"`
	Checksums []checksum `json:"checksums"`
	Licence   string     `json:"licenseConcluded"`
	Found     []string   `json:"licenseInfoInFiles"`
	Copyright string     `json:"copyrightText"`
}

type checksum struct {
	Algorithm string `json:"algorithm"`
	Value     string `json:"checksumValue"`
}

type relationship struct {
	From string `json:"spdxElementId"`
	Type string `json:"relationshipType"`
	To   string `json:"relatedSpdxElement"`
}
