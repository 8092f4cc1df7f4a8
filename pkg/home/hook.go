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
)

const (
	// HookName is the hook's, in the home and beside the agent's program.
	HookName = "nvidia-cdi-hook"
	// hookTemporary is what files begin with that are to become the hook.
	hookTemporary = "." + HookName + "-"
)

// InstallHook makes the hook in the home an executable copy of a program, which
// may lie where the container runtime cannot see it, and returns where it is.
//
// Who opens the hook meanwhile finds the old program or the new one, whole. One
// that is the same already is left alone. Nothing waits for the disk: an agent
// that starts after a crash of the machine compares again, and no container gets
// a GPU before it has.
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
	// Another agent may be at it at the same time.
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
		// Whatever the umask.
		err = tmp.Chmod(0o755)
	}
	// A program that is open for writing cannot be run.
	if err = errors.Join(err, tmp.Close()); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), to)
}

// isInstalled tells whether file is the program and may be run by everybody.
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

// same compares a piece at a time: the agent's memory is not for programs.
func same(a, b io.Reader) (bool, error) {
	const piece = 64 << 10
	left, right := make([]byte, piece), make([]byte, piece)
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
		if n < piece {
			return true, nil
		}
	}
}
