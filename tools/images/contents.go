// SPDX-License-Identifier: Apache-2.0

package main

import (
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// file is a regular file, a symbolic link (target is set) or a folder (mode has fs.ModeDir).
type file struct {
	mode    fs.FileMode
	content []byte
	target  string
}

// runtimeLibraries are what programs and libraries of the NVIDIA driver need of the system. Ours load
// or start these from the driver root with the image's C library: libnvidia-ml.so.1, nvidia-smi,
// nvidia-cuda-mps-control. They are built for C libraries before 2.34, in which parts were apart; and
// the C library itself opens libgcc_s when a thread is cancelled, and ends the process without it.
func runtimeLibraries() []string {
	return []string{"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "libgcc_s.so.1"}
}

// contents returns the files of the image by their path without the leading slash.
func (i image) contents(bin string) (map[string]file, error) {
	const users = "root:x:0:0:root:/:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/:/sbin/nologin\n"
	files := map[string]file{"etc/passwd": {mode: 0o644, content: []byte(users)}, "tmp": {mode: fs.ModeDir | fs.ModeSticky | 0o777}}
	for _, folder := range []string{"dev", "proc", "run", "sys", "usr/bin", "usr/lib", "usr/lib64", "usr/sbin", "var/lib", "var/log"} {
		files[folder] = file{mode: fs.ModeDir | 0o755}
	}
	for _, link := range []string{"bin", "lib", "lib64", "sbin"} {
		files[link] = file{target: "usr/" + link}
	}
	for _, name := range i.programs {
		path := filepath.Join(bin, name)
		content, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		files["usr/bin/"+filepath.Base(name)] = file{mode: 0o755, content: content}
		interpreter, needed, err := headers(path)
		if err != nil {
			return nil, err
		}
		if interpreter == "" {
			continue
		}
		if slices.Contains(i.onHost, name) {
			return nil, fmt.Errorf("%s is dynamically linked and would not run on a host with another C library; link it statically", path)
		}
		if err := addLibraries(files, interpreter, append(needed, runtimeLibraries()...)); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	return files, nil
}

// headers returns the loader of a dynamic program, and the names of the libraries that it needs.
func headers(path string) (interpreter string, needed []string, err error) {
	f, err := elf.Open(path)
	if err != nil {
		return "", nil, fmt.Errorf("read %s: %w", path, err)
	}
	defer f.Close() //nolint:errcheck // only read from
	if section := f.Section(".interp"); section != nil {
		text, err := section.Data()
		if err != nil {
			return "", nil, fmt.Errorf("read %s: %w", path, err)
		}
		interpreter = string(text[:max(0, len(text)-1)])
	}
	needed, err = f.ImportedLibraries()
	return interpreter, needed, err
}

// addLibraries adds the loader, the libraries, and all that these need.
func addLibraries(files map[string]file, interpreter string, names []string) error {
	loader, err := filepath.EvalSymlinks(interpreter)
	if err != nil {
		return err
	}
	folder := filepath.Dir(loader) // on Debian of the architecture: usr/lib/x86_64-linux-gnu
	for todo := append(names, filepath.Base(interpreter)); len(todo) > 0; todo = todo[1:] {
		path := filepath.Join(folder, todo[0])
		if _, ok := files[path[1:]]; ok {
			continue
		}
		content, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("library %s is not in %s", todo[0], folder)
		}
		if err != nil {
			return err
		}
		_, needed, err := headers(path)
		if err != nil {
			return err
		}
		files[path[1:]] = file{mode: 0o755, content: content}
		todo = append(todo, needed...)
	}
	if resolved := "usr" + interpreter; resolved != loader[1:] {
		files[resolved] = file{target: loader}
	}
	return nil
}
