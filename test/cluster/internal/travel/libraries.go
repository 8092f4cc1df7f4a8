// SPDX-License-Identifier: Apache-2.0

// Package travel copies programs of this machine so that they run on another one.
//
// A dynamic program travels with its libraries and its loader, and a script runs it with
// them. Out of scope: files that a program opens by itself.
package travel

import (
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
)

// libraryFolders are where the loader of Debian and its relatives searches.
var libraryFolders = []string{"/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib/aarch64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/lib64", "/usr/lib64", "/lib", "/usr/lib"}

// Libraries returns the loader and all shared libraries of a program, as sorted paths.
// Both are empty for a static program and for a script. It fails if a library is not in a usual
// folder.
func Libraries(program string) (loader string, libraries []string, err error) {
	head := make([]byte, len(elf.ELFMAG))
	if n, err := readHead(program, head); err != nil {
		return "", nil, fmt.Errorf("libraries of %s: %w", program, err)
	} else if string(head[:n]) != elf.ELFMAG {
		return "", nil, nil
	}
	file, err := elf.Open(program)
	if err != nil {
		return "", nil, fmt.Errorf("libraries of %s: %w", program, err)
	}
	defer file.Close() //nolint:errcheck // only read
	for _, p := range file.Progs {
		if p.Type != elf.PT_INTERP {
			continue
		}
		text := make([]byte, p.Filesz)
		if _, err := p.ReadAt(text, 0); err != nil {
			return "", nil, fmt.Errorf("loader of %s: %w", program, err)
		}
		loader = string(text[:len(text)-1])
	}
	if loader == "" {
		return "", nil, nil
	}
	found := map[string]string{filepath.Base(loader): loader}
	if err := follow(program, found); err != nil {
		return "", nil, err
	}
	delete(found, filepath.Base(loader))
	for _, path := range found {
		libraries = append(libraries, path)
	}
	slices.Sort(libraries)
	return loader, libraries, nil
}

// readHead fills head from the start of a file, as far as the file reaches.
func readHead(path string, head []byte) (int, error) {
	file, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer file.Close() //nolint:errcheck // only read
	n, err := io.ReadFull(file, head)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = nil
	}
	return n, err
}

// follow adds what an object needs to found, which maps names to paths.
func follow(object string, found map[string]string) error {
	file, err := elf.Open(object)
	if err != nil {
		return fmt.Errorf("libraries of %s: %w", object, err)
	}
	defer file.Close() //nolint:errcheck // only read
	needed, err := file.ImportedLibraries()
	if err != nil {
		return fmt.Errorf("libraries of %s: %w", object, err)
	}
	for _, name := range needed {
		if found[name] != "" {
			continue
		}
		i := slices.IndexFunc(libraryFolders, func(dir string) bool {
			_, err := os.Stat(filepath.Join(dir, name))
			return err == nil
		})
		if i < 0 {
			return fmt.Errorf("libraries of %s: %s is in none of the usual folders", object, name)
		}
		found[name] = filepath.Join(libraryFolders[i], name)
		if err := follow(found[name], found); err != nil {
			return err
		}
	}
	return nil
}
