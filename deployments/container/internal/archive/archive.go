// SPDX-License-Identifier: Apache-2.0

// Package archive writes an image as one file that every tool loads: it is an
// OCI image layout (ctr, podman, skopeo, nerdctl) and also has the
// manifest.json of "docker save", for the same blobs. An index of images for several
// platforms is a layout only.
//
// Out of scope: registries.
package archive

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
)

// Annotations that give an image of a layout its name: OCI's holds the tag only, so
// containerd defines another one for the whole reference.
const (
	tagAnnotation       = "org.opencontainers.image.ref.name"
	referenceAnnotation = "io.containerd.image.name"
)

// Write writes the image under all of the tags as an archive at file, all or
// nothing.
func Write(file string, img v1.Image, tags ...name.Tag) error {
	return replace(file, func(w io.Writer) error { return write(w, filepath.Dir(file), img, tags) })
}

// WriteIndex writes an index under the tag as an archive at file, all or nothing. The
// archive has no manifest.json: tools that read it know one platform only, and would load
// an image that does not run on other machines.
func WriteIndex(file string, index v1.ImageIndex, tag name.Tag) error {
	return replace(file, func(w io.Writer) error {
		return inFolder(filepath.Dir(file), w, func(dir string) error {
			l, err := layout.Write(dir, empty.Index)
			if err != nil {
				return err
			}
			return l.AppendIndex(index, naming(tag))
		})
	})
}

// naming sets the name of an entry of a layout.
func naming(tag name.Tag) layout.Option {
	return layout.WithAnnotations(map[string]string{tagAnnotation: tag.TagStr(), referenceAnnotation: tag.Name()})
}

// Index calls use with the index of an archive, which it unpacks into a folder for that time.
func Index(file string, use func(v1.ImageIndex) error) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("read %s: %w", file, err)
		}
	}()
	dir, err := os.MkdirTemp("", "layout-*")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := extract(file, dir); err != nil {
		return err
	}
	l, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return err
	}
	manifest, err := l.IndexManifest()
	if err != nil {
		return err
	}
	if len(manifest.Manifests) != 1 {
		return fmt.Errorf("it has %d entries, want one index", len(manifest.Manifests))
	}
	index, err := l.ImageIndex(manifest.Manifests[0].Digest)
	if err != nil {
		return err
	}
	return use(index)
}

// extract writes the files of an archive into a folder.
func extract(file, dir string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // only read from
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close() //nolint:errcheck // only a folder
	for r := tar.NewReader(f); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		content, err := io.ReadAll(r)
		if err != nil {
			return err
		}
		if err := errors.Join(root.MkdirAll(path.Dir(header.Name), 0o700), root.WriteFile(header.Name, content, 0o600)); err != nil {
			return err
		}
	}
}

func replace(file string, write func(io.Writer) error) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("write %s: %w", file, err)
		}
	}()
	tmp, err := os.CreateTemp(filepath.Dir(file), filepath.Base(file)+".*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(tmp.Name()))
		}
	}()
	if err := errors.Join(write(tmp), tmp.Chmod(0o644), tmp.Close()); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), file)
}

func write(w io.Writer, scratch string, img v1.Image, tags []name.Tag) error {
	return inFolder(scratch, w, func(dir string) error {
		index, err := layout.Write(dir, empty.Index)
		if err != nil {
			return err
		}
		for _, tag := range tags {
			if err := index.AppendImage(img, naming(tag)); err != nil {
				return err
			}
		}
		manifest, err := dockerManifest(img, tags)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(dir, "manifest.json"), manifest, 0o600)
	})
}

// inFolder packs the files that fill writes into a folder below scratch.
func inFolder(scratch string, w io.Writer, fill func(dir string) error) (err error) {
	dir, err := os.MkdirTemp(scratch, ".layout-*")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := fill(dir); err != nil {
		return err
	}
	return pack(w, os.DirFS(dir))
}

// dockerManifest is what "docker load" reads.
func dockerManifest(img v1.Image, tags []name.Tag) ([]byte, error) {
	manifest, err := img.Manifest()
	if err != nil {
		return nil, err
	}
	blob := func(h v1.Hash) string { return path.Join("blobs", h.Algorithm, h.Hex) }
	entry := struct {
		Config   string
		RepoTags []string
		Layers   []string
	}{Config: blob(manifest.Config.Digest)}
	for _, tag := range tags {
		entry.RepoTags = append(entry.RepoTags, tag.Name())
	}
	for _, layer := range manifest.Layers {
		entry.Layers = append(entry.Layers, blob(layer.Digest))
	}
	return json.Marshal([]any{entry})
}

// pack writes the files of a folder in the order of their paths.
func pack(w io.Writer, folder fs.FS) error {
	var files []string
	err := fs.WalkDir(folder, ".", func(file string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			files = append(files, file)
		}
		return err
	})
	if err != nil {
		return err
	}
	slices.Sort(files)
	out := tar.NewWriter(w)
	for _, file := range files {
		content, err := fs.ReadFile(folder, file)
		if err != nil {
			return err
		}
		if err := out.WriteHeader(&tar.Header{
			Typeflag: tar.TypeReg, Name: file, Mode: 0o644, Size: int64(len(content)), ModTime: time.Unix(0, 0), Format: tar.FormatUSTAR,
		}); err != nil {
			return err
		}
		if _, err := io.Copy(out, bytes.NewReader(content)); err != nil {
			return err
		}
	}
	return out.Close()
}
