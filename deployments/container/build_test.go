// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"errors"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"

	"github.com/gpu-dra/gpu-dra-driver/deployments/container/internal/layer"
)

func byName(t *testing.T, name string) image {
	t.Helper()
	for _, i := range images() {
		if i.name == name {
			return i
		}
	}
	t.Fatalf("no image %s", name)
	return image{}
}

// entries are the files of an image by their path.
func entries(t *testing.T, img v1.Image) map[string]tar.Header {
	t.Helper()
	stream := mutate.Extract(img)
	defer stream.Close() //nolint:errcheck // only read from
	out := map[string]tar.Header{}
	for r := tar.NewReader(stream); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		out[strings.TrimSuffix(header.Name, "/")] = *header
	}
}

// resolve follows links as the kernel does.
func resolve(files map[string]tar.Header, name string) (tar.Header, bool) {
	at := ""
	for parts := strings.Split(strings.Trim(path.Clean(name), "/"), "/"); len(parts) > 0; {
		at = path.Join(at, parts[0])
		parts = parts[1:]
		header, ok := files[at]
		if !ok {
			return tar.Header{}, false
		}
		if header.Typeflag == tar.TypeSymlink {
			target := header.Linkname
			if !path.IsAbs(target) {
				target = path.Join("/", path.Dir(at), target)
			}
			parts = append(strings.Split(strings.Trim(target, "/"), "/"), parts...)
			at = ""
		}
	}
	header, ok := files[at]
	return header, ok
}

func TestEveryImageHasWhatItsProgramsNeed(t *testing.T) {
	f := get(t)
	for _, i := range images() {
		t.Run(i.name, func(t *testing.T) {
			img := f.images[i.name]
			files := entries(t, img)
			config, err := img.ConfigFile()
			if err != nil {
				t.Fatal(err)
			}
			programs, err := f.locate(i)
			if err != nil {
				t.Fatal(err)
			}
			var executables []string
			executables = append(executables, config.Config.Entrypoint...)
			for _, p := range programs {
				executables = append(executables, "/usr/bin/"+p.name)
				if p.elf.Interpreter != "" {
					executables = append(executables, p.elf.Interpreter)
				}
			}
			documents := []string{"usr/share/doc/gpu-dra-driver/LICENSE", "etc/passwd", "etc/group"}
			if slices.ContainsFunc(programs, func(p located) bool { return p.elf.Interpreter != "" }) {
				for _, name := range runtimeLibraries() {
					executables = append(executables, path.Join("/lib", programs[0].elf.Triplet, name))
				}
				documents = append(documents, "usr/share/doc/libc6/copyright", "usr/share/doc/libgcc-s1/copyright",
					"var/lib/dpkg/status.d/libc6", "etc/os-release")
			}
			for _, name := range executables {
				if header, ok := resolve(files, name); !ok || header.Typeflag != tar.TypeReg || header.Mode != 0o755 || header.Size == 0 {
					t.Errorf("%s is not a program: %+v", name, header)
				}
			}
			for name, header := range files {
				if _, ok := resolve(files, name); !ok {
					t.Errorf("%s leads nowhere: %s", name, header.Linkname)
				}
				if header.Uid != 0 || header.Gid != 0 || header.ModTime.Unix() != 0 || header.Mode&0o6022 != 0 && header.Typeflag != tar.TypeSymlink && name != "tmp" {
					t.Errorf("%s: owner %d:%d, time %v, mode %o", name, header.Uid, header.Gid, header.ModTime, header.Mode)
				}
			}
			for _, name := range documents {
				if header, ok := resolve(files, name); !ok || header.Size == 0 {
					t.Errorf("%s is missing", name)
				}
			}
		})
	}
}

func TestNoImageHasAShellAndOneHasTheSimulator(t *testing.T) {
	f := get(t)
	for _, i := range images() {
		files := entries(t, f.images[i.name])
		if _, ok := resolve(files, "/bin/sh"); ok {
			t.Errorf("%s has a shell", i.name)
		}
		for _, name := range []string{"/bin/gpu-sim", "/bin/libnvidia-ml.so.1"} {
			if _, ok := resolve(files, name); ok != (i.name == "gpu-sim") {
				t.Errorf("%s has %s: %v", i.name, name, ok)
			}
		}
	}
}

func TestTheConfigurationSaysWhatAnImageIs(t *testing.T) {
	f := get(t)
	config, err := f.images["gpu-kubelet-plugin"].ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	programs, err := f.locate(byName(t, "gpu-kubelet-plugin"))
	if err != nil {
		t.Fatal(err)
	}
	if config.OS != "linux" || config.Architecture != programs[0].elf.GOARCH {
		t.Errorf("platform %s/%s", config.OS, config.Architecture)
	}
	want := v1.Config{
		Entrypoint: []string{"/usr/bin/gpu-kubelet-plugin"}, Env: []string{"PATH=/usr/bin"}, User: "0:0", WorkingDir: "/",
		Labels: map[string]string{
			"org.opencontainers.image.title":       "GPU DRA driver: node agent",
			"org.opencontainers.image.description": "Publishes a node's GPUs as ResourceSlices and prepares them for the pods that claim them.",
			"org.opencontainers.image.version":     "v1.2.3+abc",
			"org.opencontainers.image.revision":    "0123abc",
			"org.opencontainers.image.source":      "https://github.com/gpu-dra/gpu-dra-driver",
			"org.opencontainers.image.licenses":    "Apache-2.0 AND BSD-3-Clause AND ISC AND MIT AND MPL-2.0 AND LGPL-2.1-or-later AND GPL-3.0-or-later WITH GCC-exception-3.1",
			"org.opencontainers.image.created":     "2023-11-14T22:13:20Z",
		},
	}
	if diff := cmp.Diff(want, config.Config); diff != "" {
		t.Errorf("configuration (-want +got):\n%s", diff)
	}
	if !config.Created.Equal(f.created) {
		t.Errorf("created %v, want %v", config.Created, f.created)
	}
}

// contents returns every file in a folder, by name.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, file := range files {
		text, err := os.ReadFile(filepath.Join(dir, file.Name()))
		if err != nil {
			t.Fatal(err)
		}
		out[file.Name()] = string(text)
	}
	return out
}

func TestTheSameInputsMakeTheSameArchives(t *testing.T) {
	f := get(t)
	first := output{dir: t.TempDir(), prefix: "localhost/test", say: t.Output()}
	if err := first.write(t.Context(), f.builder); err != nil {
		t.Fatal(err)
	}
	// A build in another folder, with another umask, from files with other times.
	old := syscall.Umask(0o077)
	defer syscall.Umask(old)
	again := f.changed(t)
	again.layers = layer.Cache{}
	for _, dir := range []string{again.bin, filepath.Join(again.bin, simFolder)} {
		programs, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range programs {
			if err := os.Chtimes(filepath.Join(dir, p.Name()), time.Unix(1, 0), time.Unix(1, 0)); err != nil {
				t.Fatal(err)
			}
		}
	}
	second := output{dir: filepath.Join(t.TempDir(), "new"), prefix: "localhost/test", say: t.Output()}
	if err := second.write(t.Context(), again); err != nil {
		t.Fatal(err)
	}
	one, two := contents(t, first.dir), contents(t, second.dir)
	if len(one) != len(images())+1 || len(two) != len(one) {
		t.Fatalf("%d and %d files, want %d", len(one), len(two), len(images())+1)
	}
	for name := range one {
		if one[name] != two[name] {
			t.Errorf("%s differs", name)
		}
	}
}

// layers returns the description and the digest of each layer, from the bottom.
func layers(t *testing.T, img v1.Image) (whats, digests []string) {
	t.Helper()
	config, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := img.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	for n, layer := range manifest.Layers {
		whats = append(whats, config.History[n].Comment)
		digests = append(digests, layer.Digest.String())
	}
	return whats, digests
}

func TestANewProgramIsOneNewLayer(t *testing.T) {
	const name = "gpu-kubelet-plugin"
	f := get(t)
	what, before := layers(t, f.images[name])
	if diff := cmp.Diff([]string{"base", "C library", "nvidia-cdi-hook", name, "gpu-memory-hook", "gpu-memory-limit", "licences"}, what); diff != "" {
		t.Fatalf("layers (-want +got):\n%s", diff)
	}
	b := f.changed(t)
	// Bytes after the end of the program do not change its behaviour.
	file, err := os.OpenFile(filepath.Join(b.bin, name), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = file.WriteString("new")
	if err := errors.Join(err, file.Close()); err != nil {
		t.Fatal(err)
	}
	b.version, b.revision, b.created = "v1.2.4", "4567def", b.created.Add(time.Hour)
	img, err := b.build(t.Context(), byName(t, name))
	if err != nil {
		t.Fatal(err)
	}
	_, after := layers(t, img)
	for n := range what {
		if same := before[n] == after[n]; same != (what[n] != name) {
			t.Errorf("layer %s is the same: %v", what[n], same)
		}
	}
}

func TestAProgramThatWouldNotRunOnEveryHostIsRefused(t *testing.T) {
	f := get(t)
	for image, program := range map[string]string{"gpu-kubelet-plugin": "nvidia-cdi-hook", "gpu-sim": "sim/gpu-sim"} {
		b := f.changed(t)
		if err := copyFile(f.dynamic, filepath.Join(b.bin, program)); err != nil {
			t.Fatal(err)
		}
		_, err := b.build(t.Context(), byName(t, image))
		if err == nil || !strings.Contains(err.Error(), program+" is dynamically linked") {
			t.Errorf("image %s with a dynamic %s: error %v", image, program, err)
		}
	}
}

func TestAMissingProgramIsNamed(t *testing.T) {
	b := get(t).builder
	b.bin = t.TempDir()
	err := output{dir: t.TempDir(), prefix: "localhost/test", say: t.Output()}.write(t.Context(), b)
	if !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "gpu-kubelet-plugin") {
		t.Errorf("error %v", err)
	}
}

func TestANameWithoutAHostIsRefused(t *testing.T) {
	err := output{dir: t.TempDir(), prefix: "acme", say: t.Output()}.write(t.Context(), get(t).builder)
	if err == nil || !strings.Contains(err.Error(), `"acme"`) {
		t.Errorf("error %v", err)
	}
}

func TestStaticProgramsComeWithoutACLibrary(t *testing.T) {
	f := get(t)
	for image, want := range map[string][]string{
		"gpu-probe": {"base", "probe", "licences"},
		"gpu-sim":   {"base", "gpu-sim", "libnvidia-ml.so.1", "licences"},
	} {
		what, _ := layers(t, f.images[image])
		if diff := cmp.Diff(want, what); diff != "" {
			t.Errorf("layers of %s (-want +got):\n%s", image, diff)
		}
	}
}

// A C library that is linked into a program is in the image as well as one in a file.
func TestTheTermsOfALinkedCLibraryAreThere(t *testing.T) {
	f := get(t)
	for image, want := range map[string]bool{"gpu-sim": true, "gpu-probe": false, "gpu-kubelet-plugin": false} {
		if header, ok := resolve(entries(t, f.images[image]), "/usr/share/doc/libc6-dev/copyright"); ok != want || ok && header.Size == 0 {
			t.Errorf("%s has the terms of libc6-dev: %v, want %v", image, ok, want)
		}
	}
}

// A command reaches its users in an image or as a plugin of kubectl.
func TestEveryCommandIsShipped(t *testing.T) {
	mains, err := filepath.Glob("../../cmd/*/main.go")
	if err != nil || len(mains) == 0 {
		t.Fatalf("commands %v, %v", mains, err)
	}
	krew, err := os.ReadFile("../krew/gpu.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, main := range mains {
		command := filepath.Base(filepath.Dir(main))
		inImage := slices.ContainsFunc(images(), func(i image) bool {
			return slices.ContainsFunc(i.programs, func(p program) bool { return p.name == command })
		})
		if !inImage && !strings.Contains(string(krew), "bin: "+command+"\n") {
			t.Errorf("%s is in no image and not in krew's manifest; add it to images.go or deployments/krew/gpu.yaml", command)
		}
	}
}
