// SPDX-License-Identifier: Apache-2.0

// Package layer makes layers of container images that depend on nothing but
// the files they are given: no time, owner, umask or order of the machine that
// builds gets into them.
//
// Out of scope: where files come from, and owners other than root.
package layer

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Files of a layer by their path, which is absolute without the leading slash.
type Files map[string]File

// File is a regular file, a symbolic link (Target is set), or a directory (Dir is
// set). Its owner is root.
type File struct {
	// Mode is the permission bits as the kernel counts them, with 0o1000 for
	// sticky. Links have none.
	Mode    int64
	Content []byte
	Target  string
	Dir     bool
}

// Add adds files. A path that is there already is an error: which of the two
// wins would be an accident.
func (f Files) Add(others Files) error {
	for _, name := range slices.Sorted(maps.Keys(others)) {
		if _, ok := f[name]; ok {
			return fmt.Errorf("two files of a layer are %s", name)
		}
		f[name] = others[name]
	}
	return nil
}

// Cache has the layers that were made, because images have most in common and
// compressing takes its time.
type Cache map[[sha256.Size]byte]v1.Layer

// Layer returns a layer of the files, in the order of their paths. It adds the
// directories above them (mode 0755) that are not given.
func (c Cache) Layer(files Files) (v1.Layer, error) {
	data, err := archive(files)
	if err != nil {
		return nil, fmt.Errorf("make a layer: %w", err)
	}
	key := sha256.Sum256(data)
	if made, ok := c[key]; ok {
		return made, nil
	}
	c[key], err = compress(data)
	return c[key], err
}

func compress(data []byte) (v1.Layer, error) {
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data)), nil }
	return tarball.LayerFromOpener(open,
		tarball.WithMediaType(types.OCILayer),
		tarball.WithCompressionLevel(gzip.DefaultCompression),
		// The layer is read twice: for its digest, and to write it.
		tarball.WithCompressedCaching)
}

func archive(files Files) ([]byte, error) {
	all := maps.Clone(files)
	for name := range files {
		if path.Clean("/" + name)[1:] != name {
			return nil, fmt.Errorf("path %q: want an absolute one without the leading slash", name)
		}
		for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
			above, ok := all[dir]
			if !ok {
				all[dir] = File{Mode: 0o755, Dir: true}
			} else if !above.Dir {
				return nil, fmt.Errorf("%s is below %s, which is not a directory", name, dir)
			}
		}
	}
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		file := all[name]
		header := tar.Header{Name: name, Mode: file.Mode, ModTime: time.Unix(0, 0), Format: tar.FormatUSTAR}
		switch {
		case file.Dir:
			header.Typeflag, header.Name = tar.TypeDir, name+"/"
		case file.Target != "":
			header.Typeflag, header.Linkname, header.Mode = tar.TypeSymlink, file.Target, 0o777
		default:
			header.Typeflag, header.Size = tar.TypeReg, int64(len(file.Content))
		}
		if err := w.WriteHeader(&header); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if _, err := w.Write(file.Content); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return out.Bytes(), w.Close()
}
