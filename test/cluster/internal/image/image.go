// SPDX-License-Identifier: Apache-2.0

// Package image builds the container images of a test cluster from programs.
// It writes them as archives that containerd imports. No registry and no container
// engine takes part.
//
// Out of scope: everything that an image of a real distribution has.
package image

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/gpu-dra/gpu-dra-driver/test/cluster/internal/travel"
)

// entry is a file, directory or symbolic link of an image.
type entry struct {
	path string
	mode int64
	// content of a file, or target of a link; neither makes a directory.
	content []byte
	target  string
}

// directories lists the directories that CDI hooks and mounts of a GPU driver expect in
// an image. The merged layout is Debian's.
var directories = []string{
	"dev", "etc", "etc/ld.so.conf.d", "proc", "root", "run", "sys", "tmp",
	"usr", "usr/bin", "usr/sbin", "usr/lib", "usr/lib64", "usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu",
	"usr/share", "var", "var/run",
}

const includeAll = "include /etc/ld.so.conf.d/*.conf\n"

// Program returns an image with one program, at its top, that runs as a user. A dynamic program
// has its loader and libraries in the image. Processes find it and the programs that a device
// adds by their names.
func Program(program, user string) (v1.Image, error) {
	name := filepath.Base(program)
	loader, libraries, err := travel.Libraries(program)
	if err != nil {
		return nil, fmt.Errorf("image of a program: %w", err)
	}
	paths := map[string]string{name: program}
	if loader != "" {
		paths[strings.TrimPrefix(loader, "/")] = loader
	}
	for _, library := range libraries {
		paths[strings.TrimPrefix(library, "/")] = library
	}
	var entries []entry
	if loader != "" {
		// A hook of NVIDIA's lists the folder of the driver's libraries in a file of its own.
		entries = append(entries, entry{path: "etc/ld.so.conf", mode: 0o644, content: []byte(includeAll)})
	}
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		data, err := os.ReadFile(paths[path])
		if err != nil {
			return nil, fmt.Errorf("image of a program: %w", err)
		}
		entries = append(entries, entry{path: path, mode: 0o755, content: data})
	}
	return build(entries, v1.Config{Entrypoint: []string{"/" + name}, Env: []string{"PATH=/:/usr/bin"}, User: user})
}

// Probe is an image with the static programs probe and busybox. It has busybox
// under the name of each of its applets. It runs "probe hold" by default.
func Probe(probe, busybox string, applets []string) (v1.Image, error) {
	probeData, err := os.ReadFile(probe)
	if err != nil {
		return nil, fmt.Errorf("probe image: %w", err)
	}
	busyboxData, err := os.ReadFile(busybox)
	if err != nil {
		return nil, fmt.Errorf("probe image: %w", err)
	}
	var entries []entry
	for _, dir := range directories {
		mode := int64(0o755)
		if dir == "tmp" {
			mode = 0o1777
		}
		entries = append(entries, entry{path: dir, mode: mode})
	}
	for _, dir := range []string{"bin", "lib", "lib64", "sbin"} {
		entries = append(entries, entry{path: dir, mode: 0o777, target: "usr/" + dir})
	}
	entries = append(entries,
		entry{path: "etc/passwd", mode: 0o644, content: []byte("root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n")},
		entry{path: "etc/group", mode: 0o644, content: []byte("root:x:0:\nnogroup:x:65534:\n")},
		entry{path: "etc/ld.so.conf", mode: 0o644, content: []byte(includeAll)},
		entry{path: "usr/bin/probe", mode: 0o755, content: probeData},
		entry{path: "usr/bin/busybox", mode: 0o755, content: busyboxData},
	)
	for _, applet := range slices.Sorted(slices.Values(applets)) {
		if applet != "busybox" && applet != "probe" {
			entries = append(entries, entry{path: "usr/bin/" + applet, mode: 0o777, target: "busybox"})
		}
	}
	return build(entries, v1.Config{
		Entrypoint: []string{"/usr/bin/probe"},
		Cmd:        []string{"hold"},
		Env:        []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"},
		WorkingDir: "/",
	})
}

// Write writes an image as an archive that carries its reference.
func Write(path, reference string, img v1.Image) error {
	tag, err := name.NewTag(reference)
	if err != nil {
		return fmt.Errorf("image %s: %w", reference, err)
	}
	if err := tarball.WriteToFile(path, tag, img); err != nil {
		return fmt.Errorf("image %s: %w", reference, err)
	}
	return nil
}

func build(entries []entry, config v1.Config) (v1.Image, error) {
	data, err := archive(entries)
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(data)), nil
	})
	if err != nil {
		return nil, fmt.Errorf("image layer: %w", err)
	}
	img, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		return nil, fmt.Errorf("image: %w", err)
	}
	file, err := img.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("image: %w", err)
	}
	file = file.DeepCopy()
	file.OS, file.Architecture, file.Config = "linux", runtime.GOARCH, config
	if img, err = mutate.ConfigFile(img, file); err != nil {
		return nil, fmt.Errorf("image: %w", err)
	}
	return img, nil
}

func archive(entries []entry) ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, e := range entries {
		header := tar.Header{Name: e.path, Mode: e.mode, Format: tar.FormatPAX}
		switch {
		case e.target != "":
			header.Typeflag, header.Linkname = tar.TypeSymlink, e.target
		case e.content != nil:
			header.Typeflag, header.Size = tar.TypeReg, int64(len(e.content))
		default:
			header.Typeflag, header.Name = tar.TypeDir, e.path+"/"
		}
		if err := w.WriteHeader(&header); err != nil {
			return nil, fmt.Errorf("image layer: %s: %w", e.path, err)
		}
		if _, err := w.Write(e.content); err != nil {
			return nil, fmt.Errorf("image layer: %s: %w", e.path, err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("image layer: %w", err)
	}
	return out.Bytes(), nil
}
