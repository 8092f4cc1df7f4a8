// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io/fs"
	"maps"
	"path"
	"runtime"
	"slices"
	"strings"
)

type fields = map[string]any

// pack returns the archive of an image with one layer under all of the names. The same files give the
// same bytes: they have no owner but root, no time, and the order of their paths.
func pack(files map[string]file, entrypoint, user string, names []string) ([]byte, error) {
	layer, err := tarOf(files)
	if err != nil {
		return nil, err
	}
	var compressed bytes.Buffer
	w := gzip.NewWriter(&compressed)
	if _, err := w.Write(layer); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	blobs := map[string]file{}
	// add stores a blob and returns its descriptor and its path.
	add := func(mediaType string, content []byte) (descriptor fields, name string) {
		name = "blobs/sha256/" + digest(content)
		blobs[name] = file{mode: 0o644, content: content}
		return fields{"mediaType": mediaType, "digest": "sha256:" + digest(content), "size": len(content)}, name
	}
	layerAt, layerName := add("application/vnd.oci.image.layer.v1.tar+gzip", compressed.Bytes())
	configAt, configName := add("application/vnd.oci.image.config.v1+json", encode(fields{
		"os": "linux", "architecture": runtime.GOARCH,
		"config": fields{"Entrypoint": []string{"/usr/bin/" + entrypoint}, "Env": []string{"PATH=/usr/bin"}, "User": user, "WorkingDir": "/"},
		"rootfs": fields{"type": "layers", "diff_ids": []string{"sha256:" + digest(layer)}},
	}))
	const manifestType = "application/vnd.oci.image.manifest.v1+json"
	manifest := encode(fields{"schemaVersion": 2, "mediaType": manifestType, "config": configAt, "layers": []any{layerAt}})
	var manifests []any
	for _, name := range names {
		at, _ := add(manifestType, manifest)
		// OCI's annotation has the tag only, so containerd has another for the whole name.
		at["annotations"] = fields{"org.opencontainers.image.ref.name": name[strings.LastIndex(name, ":")+1:], "io.containerd.image.name": name}
		manifests = append(manifests, at)
	}
	for name, content := range map[string][]byte{
		"oci-layout":    encode(fields{"imageLayoutVersion": "1.0.0"}),
		"index.json":    encode(fields{"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": manifests}),
		"manifest.json": encode([]any{fields{"Config": configName, "RepoTags": names, "Layers": []string{layerName}}}),
	} {
		blobs[name] = file{mode: 0o644, content: content}
	}
	return tarOf(blobs)
}

func digest(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

// encode is for values that JSON always has a form for.
func encode(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return text
}

// tarOf returns a tar of the files, with the folders above them.
func tarOf(files map[string]file) ([]byte, error) {
	all := maps.Clone(files)
	for name := range files {
		for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
			if _, ok := all[dir]; !ok {
				all[dir] = file{mode: fs.ModeDir | 0o755}
			}
		}
	}
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		f := all[name]
		header := tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: int64(f.mode.Perm()), Size: int64(len(f.content)), Format: tar.FormatUSTAR}
		switch {
		case f.target != "":
			header.Typeflag, header.Linkname, header.Mode = tar.TypeSymlink, f.target, 0o777
		case f.mode.IsDir():
			header.Typeflag, header.Name = tar.TypeDir, name+"/"
			if f.mode&fs.ModeSticky != 0 {
				header.Mode |= 0o1000
			}
		}
		if err := w.WriteHeader(&header); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.content); err != nil {
			return nil, err
		}
	}
	err := w.Close() // before the bytes are taken: it writes the end
	return out.Bytes(), err
}
