// SPDX-License-Identifier: Apache-2.0

package repository

import (
	"bufio"
	"context"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// What a test leaves on a machine makes other tests fail, and a contributor's programs.
func TestMakeTestFailsIfTheMachineIsNotAsBefore(t *testing.T) {
	left := filepath.Join("/dev/shm", filepath.Base(t.TempDir())+"-maketest-"+strconv.Itoa(os.Getpid()))
	t.Cleanup(func() { _ = os.Remove(left) })
	run := makeTest(t, "touch "+left+"\n")
	text, err := io.ReadAll(run.output)
	if err != nil || !strings.Contains(string(text), "> shared memory "+left) || !strings.Contains(string(text), "==> what failed") {
		t.Errorf("make test printed %q, %v", text, err)
	}
}

// After an interrupt, tests take their clusters down and print that.
func TestAnInterruptOfMakeTestLetsItsStepsEnd(t *testing.T) {
	done := filepath.Join(t.TempDir(), "done")
	run := makeTest(t, `
trap 'sleep 0.3; echo taking the cluster down; touch `+done+`; exit 1' INT
echo the cluster is up
while :; do sleep 0.1; done
`)
	lines := bufio.NewReader(run.output)
	for line := ""; !strings.Contains(line, "the cluster is up"); {
		var err error
		if line, err = lines.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Kill(-run.group, syscall.SIGINT); err != nil { // as a terminal does
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, lines); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(done); err != nil {
		t.Errorf("the step did not come to its end: %v", err)
	}
}

type makeRun struct {
	output io.Reader // ends once all its processes have ended
	group  int       // of processes
}

// makeTest runs make test with a script of Bash in the place of its steps.
func makeTest(t *testing.T, steps string) makeRun {
	t.Helper()
	dir := t.TempDir()
	script, makefile := filepath.Join(dir, "steps"), filepath.Join(dir, "Makefile")
	for name, text := range map[string]string{script: steps, makefile: "include Makefile\ntest-steps:\n\t@exec bash " + script + "\n"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	cmd := exec.CommandContext(ctx, "make", "-f", makefile, "NEEDS=there", "test",
		"MAKE=make -f "+makefile, "BUILD="+dir)
	cmd.Dir = root
	// This test can be a part of make test.
	cmd.Env = append(os.Environ(), "MAKEFLAGS=", "MAKELEVEL=")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	// A child inherits an ignored interrupt, such as that of a job in the background, but no handler.
	interrupts := make(chan os.Signal, 1)
	signal.Notify(interrupts, os.Interrupt)
	defer signal.Stop(interrupts)
	output, input, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = input, input
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait() // it fails, as its steps do
		_ = output.Close()
	})
	if err := input.Close(); err != nil {
		t.Fatal(err)
	}
	return makeRun{output: output, group: cmd.Process.Pid}
}
