// SPDX-License-Identifier: Apache-2.0

package home

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

const (
	// HookName is the file name of the hook. It is the same in the home and in the
	// folder of the agent's program.
	HookName = "nvidia-cdi-hook"
	// hookTemporary is the prefix of the temporary files that become the hook.
	hookTemporary = "." + HookName + "-"
)

// Program returns the path of a program in the folder of this one, as in the agent's image.
// The error wraps [gpu.ErrNotFound] if it is not there.
func Program(name string) (path string, err error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	path = filepath.Join(filepath.Dir(self), name)
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("%w: there is no %s to install", gpu.ErrNotFound, path)
	}
	return path, nil
}

// InstallHook copies a program into the home as the hook, makes it executable and
// returns its path. The container runtime may not see the original.
//
// The hook is replaced atomically, and only if it differs from the program. Nothing is
// synced to the disk: after a crash of the machine, the next agent compares the files
// again before any container gets a GPU.
func (h *Home) InstallHook(program string) (path string, err error) {
	path = filepath.Join(h.dir, HookName)
	if err := install(program, path); err != nil {
		return "", fmt.Errorf("install the CDI hook: %w", err)
	}
	return path, nil
}

func install(from, to string) (err error) {
	program, err := os.Open(from)
	if err != nil {
		return err
	}
	defer program.Close() //nolint:errcheck // it was only read
	if same, err := isInstalled(program, to); same || err != nil {
		return err
	}
	if _, err := program.Seek(0, io.SeekStart); err != nil {
		return err
	}
	// Another agent may install the hook at the same time.
	tmp, err := os.CreateTemp(filepath.Dir(to), hookTemporary+"*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(tmp.Name()))
		}
	}()
	_, err = io.Copy(tmp, program)
	if err == nil {
		// Chmod ignores the umask.
		err = tmp.Chmod(0o755)
	}
	// Close before the rename: a program that is open for writing cannot be run.
	if err = errors.Join(err, tmp.Close()); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), to)
}

// isInstalled reports whether file is a copy of the program with mode 0755.
func isInstalled(program *os.File, file string) (bool, error) {
	info, err := os.Lstat(file)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if info.IsDir() {
		return false, fmt.Errorf("%s is a directory: remove it", file)
	}
	if !info.Mode().IsRegular() || info.Mode().Perm() != 0o755 {
		return false, nil
	}
	have, err := os.Open(file)
	if err != nil {
		return false, err
	}
	defer have.Close() //nolint:errcheck // it was only read
	return same(program, have)
}

// same reports whether both readers have the same content. It compares block by block,
// because loading whole programs would take too much memory.
func same(a, b io.Reader) (bool, error) {
	const blockSize = 64 << 10
	left, right := make([]byte, blockSize), make([]byte, blockSize)
	for {
		n, errA := io.ReadFull(a, left)
		m, errB := io.ReadFull(b, right)
		if !bytes.Equal(left[:n], right[:m]) {
			return false, nil
		}
		for _, err := range []error{errA, errB} {
			if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
				return false, err
			}
		}
		if n < blockSize {
			return true, nil
		}
	}
}
