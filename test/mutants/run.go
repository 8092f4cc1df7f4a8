// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"
)

// verdict is the outcome of a mutant.
type verdict string

const (
	killed   verdict = "killed"   // a test failed, as expected
	excused  verdict = "excused"  // no test failed, as expected
	survived verdict = "survived" // no test failed
	hung     verdict = "hung"     // a test hung, and the list expects none to
	stale    verdict = "stale"    // a test failed, and the list excuses the mutant
	doubtful verdict = "doubtful" // a test failed, and passed when it ran again
	broken   verdict = "broken"   // the mutant could not be tried
)

// good reports whether the verdict is as the list expects.
func (v verdict) good() bool { return v == killed || v == excused }

// result is a verdict and the reason for it.
type result struct {
	name    string
	verdict verdict
	reason  string
	took    time.Duration
}

// runner tries mutants of the module at root.
type runner struct {
	root  string
	limit time.Duration // timeout of the tests of one mutant
}

// try applies a mutant and runs the tests that must detect it.
func (r runner) try(ctx context.Context, m mutant) result {
	start := time.Now()
	res := result{name: m.file}
	res.verdict, res.reason = r.judge(ctx, m, &res.name)
	res.took = time.Since(start)
	return res
}

func (r runner) judge(ctx context.Context, m mutant, name *string) (verdict, string) {
	dir, err := os.MkdirTemp("", "mutant-")
	if err != nil {
		return broken, err.Error()
	}
	defer func() { _ = os.RemoveAll(dir) }()
	var overlay string
	if *name, overlay, err = m.overlay(r.root, dir); err != nil {
		return broken, err.Error()
	}
	tests, err := r.build(ctx, m.folder(), overlay, dir)
	if err != nil {
		return broken, fmt.Sprintf("the mutant does not compile, which proves nothing: %v", err)
	}
	folder, limit := filepath.Join(r.root, m.folder()), cmp.Or(m.hangs, r.limit)
	out, err := run(ctx, tests, folder, m.run, limit)
	verdict, reason := m.judge(out, err)
	if name := failedTest.FindStringSubmatch(out); verdict == killed && name != nil {
		// The test may have failed for another reason, such as a busy machine.
		const times = "3"
		if _, err := run(ctx, tests, folder, "^"+name[1]+"$", limit, "-test.count", times); err == nil {
			return doubtful, fmt.Sprintf("%s failed once and then passed %s times; name the tests that notice the mutant", name[1], times)
		}
	}
	return verdict, reason
}

// judge returns the verdict on a mutant from the output and error of its tests.
func (m mutant) judge(out string, err error) (verdict, string) {
	var exit *exec.ExitError
	switch {
	case strings.Contains(out, "testing: warning: no tests to run"):
		return broken, fmt.Sprintf("no test of %s matches %q", m.folder(), m.run)
	case err == nil && m.excuse != "":
		return excused, m.excuse
	case err == nil:
		return survived, m.notice
	case !errors.As(err, &exit):
		return broken, err.Error()
	case timedOut(out):
		if m.hangs > 0 {
			return killed, "a test hangs"
		}
		return hung, "the tests do not end; say so in the list if that is how the mutant is noticed"
	case m.excuse != "":
		return stale, fmt.Sprintf("%s notices it, and the list says: %s", failed(out), m.excuse)
	}
	return killed, failed(out)
}

func timedOut(out string) bool { return strings.Contains(out, "panic: test timed out after") }

var failedTest = regexp.MustCompile(`(?m)^--- FAIL: (\S+)`)

// failed returns the name of the first test that failed.
func failed(out string) string {
	if match := failedTest.FindStringSubmatch(out); match != nil {
		return match[1]
	}
	if strings.Contains(out, "panic:") {
		return "a panic"
	}
	return "the end of the test's process"
}

// build compiles the tests of a directory into dir, and returns the path of the program.
func (r runner) build(ctx context.Context, folder, overlay, dir string) (string, error) {
	program := filepath.Join(dir, "tests")
	// Half of the time to link a program is its debug information.
	args := []string{"test", "-c", "-ldflags=-s -w", "-o", program}
	if overlay != "" {
		args = append(args, "-overlay", overlay)
	}
	cmd := exec.CommandContext(ctx, "go", append(args, "./"+folder)...)
	cmd.Dir = r.root
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w\n%s", err, bytes.TrimSpace(out))
	}
	return program, nil
}

// run runs tests in a directory as go test does, and returns their output. It kills the
// processes that they leave behind.
func run(ctx context.Context, tests, folder, pattern string, limit time.Duration, more ...string) (string, error) {
	args := append([]string{"-test.failfast", "-test.paniconexit0", "-test.timeout", limit.String()}, more...)
	if pattern != "" {
		args = append(args, "-test.run", pattern)
	}
	const grace = 30 * time.Second
	ctx, cancel := context.WithTimeout(ctx, limit+grace)
	defer cancel()
	cmd := exec.CommandContext(ctx, tests, args...)
	cmd.Dir = folder
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	endAll := func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.Cancel = endAll
	// A child process may keep the output open after its test has ended.
	cmd.WaitDelay = grace
	out, err := cmd.CombinedOutput()
	if cmd.Process != nil {
		_ = endAll() // fails if no process is left
	}
	return string(out), err
}

// passes returns an error if the tests of the mutants in a directory fail without a
// mutation.
func (r runner) passes(ctx context.Context, folder string, mutants []mutant) error {
	dir, err := os.MkdirTemp("", "mutant-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	tests, err := r.build(ctx, folder, "", dir)
	if err != nil {
		return err
	}
	out, err := run(ctx, tests, filepath.Join(r.root, folder), together(folder, mutants), r.limit)
	if err != nil {
		return fmt.Errorf("%s: %w: %s\n%s", folder, err, failed(out), out)
	}
	return nil
}

// together returns a pattern that matches the tests of all mutants in a directory, or ""
// for all tests.
func together(folder string, mutants []mutant) string {
	var patterns []string
	for _, m := range mutants {
		switch {
		case m.folder() != folder:
		case m.run == "":
			return ""
		default:
			patterns = append(patterns, m.run)
		}
	}
	return strings.Join(patterns, "|")
}
