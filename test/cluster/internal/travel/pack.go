// SPDX-License-Identifier: Apache-2.0

package travel

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// Pack writes a program into dir/bin, under its own name.
//
// A dynamic program is a script there, which runs the program in dir/libexec with the loader and
// the libraries in dir/lib. The variables, as NAME=$d/value, are set for it; $d is dir.
func Pack(program, dir string, variables ...string) error {
	loader, libraries, err := Libraries(program)
	if err != nil {
		return err
	}
	name := filepath.Base(program)
	if loader == "" {
		return Copy(program, filepath.Join(dir, "bin", name))
	}
	for _, library := range append(libraries, loader) {
		if err := Copy(library, filepath.Join(dir, "lib", filepath.Base(library))); err != nil {
			return err
		}
	}
	// A name of a program with many names, such as iptables, is a link.
	real, err := filepath.EvalSymlinks(program)
	if err != nil {
		return fmt.Errorf("pack %s: %w", program, err)
	}
	if err := Copy(real, filepath.Join(dir, "libexec", filepath.Base(real))); err != nil {
		return err
	}
	return script(filepath.Join(dir, "bin", name), variables,
		fmt.Sprintf(`"$d/lib/%s" --argv0 %s --library-path "$d/lib" "$d/libexec/%s"`, filepath.Base(loader), name, filepath.Base(real)))
}

func script(path string, variables []string, command string) error {
	text := "#!/bin/sh\nd=${0%/*}/..\n"
	for _, v := range variables {
		name, value, _ := strings.Cut(v, "=")
		text += fmt.Sprintf("export %s=\"%s\"\n", name, value)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(text+"exec "+command+" \"$@\"\n"), 0o755)
}

// Copy copies a file with its mode, and makes the folder of the copy.
func Copy(from, to string) (err error) {
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer source.Close() //nolint:errcheck // only read
	info, err := source.Stat()
	if err != nil {
		return err
	}
	target, err := os.OpenFile(to, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, info.Mode().Perm())
	if err != nil {
		return err
	}
	if _, err = io.Copy(target, source); err != nil {
		target.Close() //nolint:errcheck // the copy has failed already
		return err
	}
	return target.Close()
}
