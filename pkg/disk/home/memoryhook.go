// SPDX-License-Identifier: Apache-2.0

package home

import (
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

const (
	// MemoryHookName is the file name of the memory hook in the folder of the agent's
	// program.
	MemoryHookName = "gpu-memory-hook"
	// MemoryCallName is the program there that calls the driver for the hook.
	MemoryCallName = "gpu-memory-limit"
	// memoryHookDir is the folder of both installed programs and their libraries.
	memoryHookDir = "memory-hook"
	// hookSocketName is the agent's socket for memory hooks. While an agent makes it, it has
	// another suffix.
	hookSocketName = "memory-hooks.sock"
	// limitsDir is the folder in which the memory hook notes the limits of containers.
	limitsDir = "memory-limits"
	// callLocks matches the files in limitsDir that package memoryhook locks.
	callLocks = "*.lock"
)

// driverLibraries are the C libraries that our program and the driver's NVML library need.
// Releases of glibc before 2.34 have all of them as files of their own; later releases
// keep most of them for older programs.
var driverLibraries = []string{"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1"}

// MemoryHook is the installed memory hook.
type MemoryHook struct {
	// Hook is the path of the hook, a static program.
	Hook string
	// Call is the command of the program that calls the driver.
	Call []string
}

// InstallMemoryHook copies both programs of the memory hook into the home. It also copies the
// C library that this process runs with. A host may have another C library, or an older one,
// or none where programs expect it.
//
// The files are in a folder of this version, which appears complete: a loader and a library
// of different versions do not run. The folders of two earlier versions stay, because CDI
// specs name them until the agent has rewritten the specs.
//
// The error wraps [gpu.ErrNotSupported] if this process has no C library.
func (h *Home) InstallMemoryHook(hook, call string) (MemoryHook, error) {
	loader, libraries, err := ownCLibrary(call)
	if err != nil {
		return MemoryHook{}, fmt.Errorf("install the memory hook: %w", err)
	}
	dir, err := installTogether(filepath.Join(h.dir, memoryHookDir), append([]string{hook, call, loader}, libraries...))
	if err != nil {
		return MemoryHook{}, fmt.Errorf("install the memory hook: %w", err)
	}
	return MemoryHook{
		Hook: filepath.Join(dir, filepath.Base(hook)),
		Call: []string{filepath.Join(dir, filepath.Base(loader)), "--inhibit-cache", "--library-path", dir, filepath.Join(dir, filepath.Base(call))},
	}, nil
}

// HookSocket returns the path of the agent's socket for memory hooks.
func (h *Home) HookSocket() string { return filepath.Join(h.dir, hookSocketName) }

// earlierVersions is the number of earlier versions that stay.
const earlierVersions = 2

// installTogether copies files into a folder of their version below parent and returns it.
// A complete folder is not written again.
func installTogether(parent string, files []string) (dir string, err error) {
	version, err := digest(files)
	if err != nil {
		return "", err
	}
	dir = filepath.Join(parent, version)
	if complete(dir, files) {
		return dir, nil
	}
	if err := os.MkdirAll(parent, mode); err != nil {
		return "", err
	}
	if err := keepNewest(parent, earlierVersions); err != nil {
		return "", err
	}
	tmp, err := os.MkdirTemp(parent, "new-")
	if err != nil {
		return "", err
	}
	for _, file := range files {
		err = errors.Join(err, install(file, filepath.Join(tmp, filepath.Base(file))))
	}
	if err == nil {
		err = os.Chmod(tmp, 0o755)
	}
	// A folder of this version is damaged, and none of its programs runs.
	if err = errors.Join(err, os.RemoveAll(dir)); err != nil {
		return "", errors.Join(err, os.RemoveAll(tmp))
	}
	return dir, os.Rename(tmp, dir)
}

// digest returns a name for the content of files.
func digest(files []string) (string, error) {
	sum := sha256.New()
	for _, name := range files {
		file, err := os.Open(name)
		if err != nil {
			return "", err
		}
		_, _ = fmt.Fprintf(sum, "%s\n", filepath.Base(name)) // a hash returns no error
		_, err = io.Copy(sum, file)
		if err = errors.Join(err, file.Close()); err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(sum.Sum(nil)[:8]), nil
}

// complete reports whether a folder has copies of all files.
func complete(dir string, files []string) bool {
	for _, name := range files {
		file, err := os.Open(name)
		if err != nil {
			return false
		}
		same, err := isInstalled(file, filepath.Join(dir, filepath.Base(name)))
		if err = errors.Join(err, file.Close()); err != nil || !same {
			return false
		}
	}
	return true
}

// keepNewest removes all entries of a folder but its newest folders.
func keepNewest(parent string, most int) error {
	entries, err := os.ReadDir(parent)
	if err != nil {
		return err
	}
	var infos []fs.FileInfo
	for _, e := range entries {
		if info, err := e.Info(); err == nil {
			infos = append(infos, info)
		}
	}
	slices.SortFunc(infos, func(a, b fs.FileInfo) int { return b.ModTime().Compare(a.ModTime()) })
	var errs []error
	for _, info := range infos {
		if most > 0 && info.IsDir() {
			most--
			continue
		}
		errs = append(errs, os.RemoveAll(filepath.Join(parent, info.Name())))
	}
	return errors.Join(errs...)
}

// removeCallLocks removes the files by which memory hooks wait for each other.
func (h *Home) removeCallLocks() error {
	files, err := filepath.Glob(filepath.Join(h.Limits(), callLocks))
	errs := []error{err}
	for _, file := range files {
		errs = append(errs, removeFile(file))
	}
	return errors.Join(errs...)
}

// Limits returns the folder in which the memory hook notes the limits of containers.
func (h *Home) Limits() string { return filepath.Join(h.dir, limitsDir) }

// ownCLibrary returns the loader that a program names and this process' C libraries.
// These are the C libraries in the folder from which this process has loaded its own.
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
