// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// report has the verdicts and figures of a run as one page, and everything as a log.
type report struct {
	dir   string
	began time.Time
	// machine is the GPU and its driver.
	machine string
	page    strings.Builder
	log     *os.File
	failed  int
	errs    error
}

// newReport creates a report in dir, and writes each line at once.
func newReport(dir string) (*report, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(dir, "log.txt"))
	return &report{dir: dir, began: time.Now(), machine: "a simulated H200", log: log}, err
}

func (r *report) path(name string) string { return filepath.Join(r.dir, name) }

func (r *report) section(name string) {
	r.writePage(time.Now())
	fmt.Fprintf(&r.page, "\n## %s\n\n", name)
	r.say("=== %s (+%.0f s)", name, time.Since(r.began).Seconds())
}

// check writes a verdict.
func (r *report) check(ok bool, format string, args ...any) {
	verdict := "ok"
	if !ok {
		verdict = "**FAILED**"
		r.failed++
	}
	text := scrub(fmt.Sprintf(format, args...))
	fmt.Fprintf(&r.page, "- %s: %s\n", verdict, text)
	r.say("%s: %s", verdict, text)
}

// figure writes a measured value.
func (r *report) figure(format string, args ...any) {
	text := scrub(fmt.Sprintf(format, args...))
	fmt.Fprintf(&r.page, "- %s\n", text)
	r.say("%s", text)
}

// output writes the output of a command into the log.
func (r *report) output(command, text string) {
	r.say("--- %s\n%s", command, strings.TrimRight(text, "\n"))
}

func (r *report) say(format string, args ...any) {
	text := scrub(fmt.Sprintf(format, args...))
	_, err := fmt.Fprintln(io.MultiWriter(os.Stdout, r.log), text)
	r.errs = errors.Join(r.errs, err)
}

// file writes a file of its own.
func (r *report) file(name, text string) {
	r.errs = errors.Join(r.errs, os.WriteFile(r.path(name), []byte(scrub(text)), 0o644))
}

func (r *report) writePage(now time.Time) {
	r.file("report.md", fmt.Sprintf("# A run of gpu-node on %s, %s\n\n%d checks failed; %.0f s.\n%s", r.machine, r.began.Format(time.DateOnly), r.failed, now.Sub(r.began).Seconds(), r.page.String()))
}

func (r *report) end(now time.Time) error {
	r.writePage(now)
	r.errs = errors.Join(r.errs, r.log.Close())
	if r.failed > 0 {
		return errors.Join(fmt.Errorf("%d checks failed: see %s", r.failed, r.path("report.md")), r.errs)
	}
	return r.errs
}

// identities are UUIDs of GPUs and boots, and serial numbers in the kernel's log.
var identities = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|(Serial Number: *)\S+`)

// scrub removes what identifies a machine.
func scrub(text string) string {
	if host, err := os.Hostname(); err == nil && len(host) > 3 {
		text = strings.ReplaceAll(text, host, "HOST")
	}
	return identities.ReplaceAllString(text, "${1}REMOVED")
}
