// SPDX-License-Identifier: Apache-2.0

package home

import (
	"debug/elf"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

const (
	// MemoryHookName is the file name of the memory hook in the folder of the agent's
	// program.
	MemoryHookName = "gpu-memory-hook"
	// memoryHookDir is the folder of the installed memory hook and its libraries.
	memoryHookDir = "memory-hook"
	// limitsDir is the folder in which the memory hook notes the limits of containers.
	limitsDir = "memory-limits"
)

// driverLibraries are the C libraries that the hook and the driver's NVML library need.
// Releases of glibc before 2.34 have all of them as files of their own; later releases
// keep most of them for older programs.
var driverLibraries = []string{"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1"}

// InstallMemoryHook copies a program into the home as the memory hook, with the C library
// that this process runs with, and returns the command that runs it. A host may have
// another C library, or an older one, or none where programs expect it.
//
// The error wraps [gpu.ErrNotSupported] if this process has no C library.
func (h *Home) InstallMemoryHook(program string) (command []string, err error) {
	dir := filepath.Join(h.dir, memoryHookDir)
	loader, libraries, err := ownCLibrary(program)
	if err == nil {
		err = os.MkdirAll(dir, mode)
	}
	files := append([]string{program, loader}, libraries...)
	for _, file := range files {
		if err == nil {
			err = install(file, filepath.Join(dir, filepath.Base(file)))
		}
	}
	if err != nil {
		return nil, fmt.Errorf("install the memory hook: %w", err)
	}
	return []string{
		filepath.Join(dir, filepath.Base(loader)), "--inhibit-cache", "--library-path", dir, filepath.Join(dir, filepath.Base(program)),
	}, nil
}

// Limits returns the folder in which the memory hook notes the limits of containers.
func (h *Home) Limits() string { return filepath.Join(h.dir, limitsDir) }

// ownCLibrary returns the loader that a program names and the C libraries in the folder
// from which this process has loaded its own.
func ownCLibrary(program string) (loader string, libraries []string, err error) {
	if loader, err = loaderOf(program); err != nil {
		return "", nil, err
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return "", nil, err
	}
	for line := range strings.Lines(string(maps)) {
		path := line[strings.IndexByte(line, '/')+1:]
		if dir, name := filepath.Split("/" + strings.TrimSpace(path)); name == driverLibraries[0] {
			for _, library := range driverLibraries {
				if file := filepath.Join(dir, library); isFile(file) {
					libraries = append(libraries, file)
				}
			}
			return loader, libraries, nil
		}
	}
	return "", nil, fmt.Errorf("%w: this process has no C library", gpu.ErrNotSupported)
}

// loaderOf returns the loader of a dynamic program.
func loaderOf(program string) (string, error) {
	file, err := elf.Open(program)
	if err != nil {
		return "", err
	}
	defer file.Close() //nolint:errcheck // it was only read
	for _, segment := range file.Progs {
		if segment.Type != elf.PT_INTERP {
			continue
		}
		text, err := io.ReadAll(segment.Open())
		return strings.TrimRight(string(text), "\x00"), err
	}
	return "", fmt.Errorf("%s: %w: it is a static program", program, gpu.ErrNotSupported)
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// removeMemoryHook removes the memory hook and its libraries.
func (h *Home) removeMemoryHook() error { return os.RemoveAll(filepath.Join(h.dir, memoryHookDir)) }
