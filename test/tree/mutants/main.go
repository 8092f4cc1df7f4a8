// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := command(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintf(os.Stderr, "mutants: %v\n", err)
		os.Exit(1) //nolint:gocritic // the process ends, so stop is not needed
	}
}

func command(ctx context.Context, args []string, w io.Writer) error {
	flags := flag.NewFlagSet("mutants", flag.ContinueOnError)
	only := flags.String("only", "", "try only the mutants whose folder and declaration begin like this, such as pkg/claim")
	parallel := flags.Int("parallel", runtime.NumCPU(), "how many mutants are tried at a time")
	if err := flags.Parse(args); err != nil {
		return err
	}
	out, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return fmt.Errorf("go env GOMOD: %w", err)
	}
	root := filepath.Dir(strings.TrimSpace(string(out)))
	mutants, err := readAll(root)
	if err != nil {
		return err
	}
	mutants = slices.DeleteFunc(mutants, func(m mutant) bool { return !strings.HasPrefix(m.String(), *only) })
	return tryAll(ctx, root, mutants, max(1, *parallel), w)
}

// tryAll tries the mutants, at most parallel at a time, and writes a line for each. It
// returns an error unless each mutant is killed.
func tryAll(ctx context.Context, root string, mutants []mutant, parallel int, w io.Writer) error {
	if len(mutants) == 0 {
		return errors.New("there are no such mutants")
	}
	var printing sync.Mutex
	var errs []error
	var tries errgroup.Group
	tries.SetLimit(parallel)
	for _, m := range mutants {
		tries.Go(func() error {
			start := time.Now()
			err := m.try(ctx, root)
			printing.Lock()
			defer printing.Unlock()
			result := "killed"
			if err != nil {
				errs = append(errs, err)
				result = "NOT KILLED"
			}
			_, _ = fmt.Fprintf(w, "%s: %s (%s)\n", m, result, time.Since(start).Round(time.Second))
			return nil
		})
	}
	_ = tries.Wait()
	return errors.Join(errs...)
}

// testLimit is the timeout of a test.
const testLimit = "60s"

// try returns an error unless the test of the mutant fails, and passes without it.
func (m mutant) try(ctx context.Context, root string) error {
	dir, err := os.MkdirTemp("", "mutant-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	path, text, err := m.apply(root)
	if err != nil {
		return err
	}
	instead, overlay := filepath.Join(dir, filepath.Base(path)), filepath.Join(dir, "overlay.json")
	replaced, err := json.Marshal(map[string]map[string]string{"Replace": {path: instead}})
	if err := errors.Join(err, os.WriteFile(instead, []byte(text), 0o600), os.WriteFile(overlay, replaced, 0o600)); err != nil {
		return err
	}
	var exit *exec.ExitError
	switch out, err := m.runTest(ctx, root, "-overlay", overlay); {
	case err == nil && strings.Contains(out, "[no tests to run]"):
		return fmt.Errorf("%s: %s has no test %s", m, m.testFolder, m.test)
	case err == nil && strings.Contains(out, "--- SKIP: "):
		return fmt.Errorf("%s: %s was skipped, run as root: %s", m, m.test, out)
	case err == nil:
		return fmt.Errorf("%s: survived %s, write a test: %s", m, m.test, m.effect)
	case !errors.As(err, &exit) || ctx.Err() != nil || strings.Contains(out, " failed]\n"):
		return fmt.Errorf("%s: %w: %s", m, err, out) // does not compile
	}
	if out, err := m.runTest(ctx, root); err != nil {
		return fmt.Errorf("%s: %s fails without the mutant as well: %w: %s", m, m.test, err, out)
	}
	return nil
}

// runTest runs the test of the mutant and returns its output.
func (m mutant) runTest(ctx context.Context, root string, more ...string) (string, error) {
	args := append([]string{"test", "-v", "-failfast", "-vet=off", "-ldflags=-s -w", "-timeout", testLimit, "-run", "^" + m.test + "$"}, more...)
	cmd := exec.CommandContext(ctx, "go", append(args, "./"+m.testFolder)...)
	cmd.Dir = root
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	// Processes that a test leaves behind keep the output open.
	endAll := func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.Cancel, cmd.WaitDelay = endAll, 10*time.Second
	out, err := cmd.CombinedOutput()
	if cmd.Process != nil {
		_ = endAll() // fails if no process is left
	}
	return string(out), err
}
