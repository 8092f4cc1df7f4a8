// SPDX-License-Identifier: Apache-2.0

package host

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Path is the search path for programs of the machine. It always holds the
// system's directories, which a user's path may lack.
func Path() string {
	return os.Getenv("PATH") + ":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
}

// LookPath finds a program of the machine.
func LookPath(program string) (string, error) {
	for _, dir := range filepath.SplitList(Path()) {
		path := filepath.Join(dir, program)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return path, nil
		}
	}
	return "", fmt.Errorf("program %s: %w", program, exec.ErrNotFound)
}

// Run runs a program and returns its standard output. The program is one of the
// machine, or is given by its absolute path. The error contains the output.
func Run(ctx context.Context, program string, args ...string) (string, error) {
	path := program
	if !filepath.IsAbs(path) {
		var err error
		if path, err = LookPath(program); err != nil {
			return "", err
		}
	}
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = append(os.Environ(), "PATH="+Path())
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", filepath.Base(program), strings.Join(args, " "), err, strings.TrimSpace(stderr.String()+stdout.String()))
	}
	return stdout.String(), nil
}
