// SPDX-License-Identifier: Apache-2.0

// Package closure finds what a dynamically linked program needs at run time:
// its interpreter and, all the way down, the shared libraries that it and they
// name.
//
// It reads the files and runs none of them. Out of scope: libraries
// that a program opens by name while it runs, because the file does not list them;
// run paths in the files, which neither our programs nor the C library have.
package closure

import (
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Platform is what a program is made for.
type Platform struct {
	// GOARCH is Go's name of the architecture, and the name in image platforms.
	GOARCH string
	// Triplet names the directory of its libraries on Debian.
	Triplet string
}

// Directories returns the default search path of the C library's loader.
func (p Platform) Directories() []string {
	return []string{"/lib/" + p.Triplet, "/usr/lib/" + p.Triplet}
}

// Program holds the facts from a program's ELF header.
type Program struct {
	Platform
	// Interpreter is the loader of a dynamically linked program; a static one
	// has none.
	Interpreter string

	machine elf.Machine
	needed  []string
}

// IsStatic reports whether the program needs no file at run time.
func (p Program) IsStatic() bool { return p.Interpreter == "" && len(p.needed) == 0 }

// Read reads the header of a program or library.
func Read(file string) (Program, error) {
	f, err := elf.Open(file)
	if err != nil {
		return Program{}, fmt.Errorf("read %s: %w", file, err)
	}
	defer f.Close() //nolint:errcheck // only read from
	p := Program{machine: f.Machine}
	switch f.Machine {
	case elf.EM_X86_64:
		p.Platform = Platform{GOARCH: "amd64", Triplet: "x86_64-linux-gnu"}
	case elf.EM_AARCH64:
		p.Platform = Platform{GOARCH: "arm64", Triplet: "aarch64-linux-gnu"}
	default:
		return Program{}, fmt.Errorf("read %s: it is made for %v; want amd64 or arm64", file, f.Machine)
	}
	for _, segment := range f.Progs {
		if segment.Type != elf.PT_INTERP {
			continue
		}
		name := make([]byte, segment.Filesz)
		if _, err := segment.ReadAt(name, 0); err != nil {
			return Program{}, fmt.Errorf("read the interpreter of %s: %w", file, err)
		}
		p.Interpreter = strings.TrimRight(string(name), "\x00")
	}
	if p.needed, err = f.ImportedLibraries(); err != nil {
		return Program{}, fmt.Errorf("read the libraries of %s: %w", file, err)
	}
	return p, nil
}

// Libraries returns the files of the libraries that the program needs, by library
// name. It includes the further libraries, and all libraries that these need. It
// skips files of another platform. It returns an error that wraps [fs.ErrNotExist]
// if a library is in none of the directories.
func (p Program) Libraries(dirs []string, further ...string) (map[string]string, error) {
	found := map[string]string{}
	for todo := append(slices.Clone(p.needed), further...); len(todo) > 0; todo = todo[1:] {
		name := todo[0]
		if found[name] != "" {
			continue
		}
		file, library, err := p.find(name, dirs)
		if err != nil {
			return nil, err
		}
		found[name] = file
		todo = append(todo, library.needed...)
	}
	return found, nil
}

// Names lists libraries in ascending order.
func Names(libraries map[string]string) []string {
	return slices.Sorted(maps.Keys(libraries))
}

func (p Program) find(name string, dirs []string) (string, Program, error) {
	for _, dir := range dirs {
		file := filepath.Join(dir, name)
		if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		library, err := Read(file)
		if err != nil {
			return "", Program{}, err
		}
		if library.machine == p.machine {
			return file, library, nil
		}
	}
	return "", Program{}, fmt.Errorf("library %s for %s: %w in %s", name, p.GOARCH, fs.ErrNotExist, strings.Join(dirs, ", "))
}
