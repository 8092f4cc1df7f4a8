// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
)

// killAll ends the processes of a program with an argument at once, in whatever
// container they run.
func killAll(program, argument string) error {
	found, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return err
	}
	killed := false
	for _, file := range found {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		args := bytes.Split(text, []byte{0})
		if filepath.Base(string(args[0])) != program || !slices.ContainsFunc(args, func(a []byte) bool { return string(a) == argument }) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err != nil {
			return err
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("kill %s: %w", program, err)
		}
		killed = true
	}
	if !killed {
		return fmt.Errorf("kill %s: no process has the argument %s", program, argument)
	}
	return nil
}
