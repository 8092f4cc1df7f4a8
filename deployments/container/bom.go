// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/gpu-dra/gpu-dra-driver/deployments/container/internal/debian"
	"github.com/gpu-dra/gpu-dra-driver/deployments/container/internal/layer"
	"github.com/gpu-dra/gpu-dra-driver/deployments/container/internal/notices"
	"github.com/gpu-dra/gpu-dra-driver/deployments/container/internal/sbom"
)

// debianLicences are the licences of the files that images have from packages, by the
// package's source. The copyright files have no form that a program can read.
var debianLicences = map[string]string{
	"base-files": "GPL-2.0-or-later",
	"glibc":      "LGPL-2.1-or-later",
	"gcc-12":     "GPL-3.0-or-later WITH GCC-exception-3.1",
	"gcc-14":     "GPL-3.0-or-later WITH GCC-exception-3.1",
}

// bill returns the bill of materials of an image, from the inputs of its build.
func (b builder) bill(ctx context.Context, i image, img built) ([]byte, error) {
	digest, err := img.Digest()
	if err != nil {
		return nil, err
	}
	out := sbom.Image{
		Name: i.name, Version: b.tagged(), Architecture: img.programs[0].elf.GOARCH, Digest: digest.String(),
		Licence: i.licenses, Source: source, Created: b.created,
	}
	origins := map[string]sbom.File{}
	for _, p := range img.programs {
		f, err := b.program(ctx, p)
		if err != nil {
			return nil, err
		}
		origins["usr/bin/"+p.name] = f
		if err := b.documents(origins, p); err != nil {
			return nil, err
		}
	}
	for name, file := range img.libraries {
		p, err := b.debianPackage(ctx, file)
		if err != nil {
			return nil, err
		}
		origins[name] = sbom.File{Type: sbom.Binary, Licence: p.Licence, Origins: []sbom.Origin{{Relation: sbom.Expanded, Package: p}}}
	}
	files := layer.Files{}
	for _, part := range img.parts {
		maps.Copy(files, part.files)
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if files[name].Dir || files[name].Target != "" {
			continue
		}
		f, ok := origins[name]
		if !ok {
			if f, err = b.document(ctx, name, out.Architecture); err != nil {
				return nil, err
			}
		}
		f.Path, f.Content = name, files[name].Content
		out.Files = append(out.Files, f)
	}
	return sbom.Marshal(out)
}

// own is our own module.
func (b builder) own() sbom.Package {
	return sbom.Package{
		Name: ownModule, Version: b.version, Licence: "Apache-2.0", URL: "pkg:golang/" + ownModule + "@" + b.version,
		Download: "git+" + source + "@" + b.revision,
	}
}

// program returns the packages that are linked into a program.
func (b builder) program(ctx context.Context, p located) (sbom.File, error) {
	modules, err := b.sources.Linked(p.file, ownModule)
	if err != nil {
		return sbom.File{}, err
	}
	f := sbom.File{Type: sbom.Binary, Origins: []sbom.Origin{{Relation: sbom.GeneratedFrom, Package: b.own()}}}
	licences := []string{"Apache-2.0"}
	for _, m := range modules {
		module, err := modulePackage(m)
		if err != nil {
			return sbom.File{}, err
		}
		f.Origins = append(f.Origins, sbom.Origin{Relation: sbom.StaticLink, Package: module})
		licences = append(licences, strings.Split(module.Licence, " AND ")...)
	}
	archive, err := b.linkedCLibrary(p)
	if err != nil {
		return sbom.File{}, err
	}
	library := sbom.Origin{Relation: sbom.StaticLink}
	switch {
	case archive != "":
	case !p.elf.IsStatic():
		// For a library alone, such as libnvidia-ml.so.1, its users bring the C library.
		library.Relation = sbom.DynamicLink
		found, err := p.elf.Libraries(b.directories(p.elf), "libc.so.6")
		if err != nil {
			return sbom.File{}, err
		}
		archive = found["libc.so.6"]
	}
	if archive != "" {
		if library.Package, err = b.debianPackage(ctx, archive); err != nil {
			return sbom.File{}, err
		}
		f.Origins = append(f.Origins, library)
		if library.Relation == sbom.StaticLink {
			licences = append(licences, library.Package.Licence)
		}
	}
	slices.Sort(licences)
	f.Licence = strings.Join(slices.Compact(licences), " AND ")
	return f, nil
}

// documents adds the terms of the program's modules.
func (b builder) documents(to map[string]sbom.File, p located) error {
	modules, err := b.sources.Linked(p.file, ownModule)
	if err != nil {
		return err
	}
	for _, m := range modules {
		module, err := modulePackage(m)
		if err != nil {
			return err
		}
		files, err := m.Files(modulesDir)
		if err != nil {
			return err
		}
		for name := range files {
			to[name] = sbom.File{Type: sbom.Text, Licence: module.Licence, Origins: []sbom.Origin{{Relation: sbom.DocumentationOf, Package: module}}}
		}
	}
	return nil
}

// document returns the origin of a file that is neither a program nor a library.
func (b builder) document(ctx context.Context, name, architecture string) (sbom.File, error) {
	f := sbom.File{Type: sbom.Text, Licence: "Apache-2.0", Origins: []sbom.Origin{{Relation: sbom.GeneratedFrom, Package: b.own()}}}
	relation, from := sbom.DocumentationOf, ""
	if plain, ok := strings.CutPrefix(name, "var/lib/dpkg/status.d/"); ok {
		from = plain
	} else if plain, ok := strings.CutPrefix(name, "usr/share/doc/"); ok && path.Base(name) == "copyright" {
		from = path.Dir(plain)
	} else if name == "etc/os-release" {
		relation, from = sbom.Expanded, "base-files"
	}
	if from == "" {
		return f, nil
	}
	found, err := b.system.Named(ctx, from+":"+architecture)
	if err != nil {
		return sbom.File{}, err
	}
	p, err := b.fromDebian(found)
	if err != nil {
		return sbom.File{}, err
	}
	return sbom.File{Type: sbom.Text, Licence: p.Licence, Origins: []sbom.Origin{{Relation: relation, Package: p}}}, nil
}

func (b builder) debianPackage(ctx context.Context, file string) (sbom.Package, error) {
	p, err := b.system.Package(ctx, file)
	if err != nil {
		return sbom.Package{}, err
	}
	return b.fromDebian(p)
}

func (b builder) fromDebian(p debian.Package) (sbom.Package, error) {
	licence := debianLicences[p.Source]
	if licence == "" {
		return sbom.Package{}, fmt.Errorf("bom.go has no licence for Debian's source package %s", p.Source)
	}
	return sbom.Package{Name: p.Name, Version: p.Version, Licence: licence, URL: p.URL(), Source: "built from Debian's source package " + p.Source}, nil
}

func modulePackage(m notices.Module) (sbom.Package, error) {
	licence, err := m.Licence()
	if err != nil {
		return sbom.Package{}, err
	}
	p := sbom.Package{Name: m.Path, Version: m.Version, Licence: licence, URL: "pkg:golang/" + m.Path + "@" + strings.ReplaceAll(m.Version, "+", "%2B")}
	if m.Sum != "" {
		p.Source = "Go module with the checksum " + m.Sum + " in go.sum"
	}
	if m.Path == notices.GoPath {
		// Scanners know Go's versions without the prefix.
		p.URL = "pkg:golang/stdlib@" + strings.TrimPrefix(m.Version, "go")
		p.Source = "Go's standard library and runtime"
	}
	return p, nil
}
