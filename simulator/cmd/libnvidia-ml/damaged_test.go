// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/gpu-dra/gpu-dra-driver/simulator/nvmlsim"
	"github.com/gpu-dra/gpu-dra-driver/simulator/simerr"
)

// stepper is a C program that makes one call after another.
type stepper struct {
	t       *testing.T
	in      io.Writer
	answers *bufio.Scanner
}

// steps starts the program of steps.c with a library, by default as the test's user.
func steps(t *testing.T, program, library string, as *syscall.Credential) *stepper {
	t.Helper()
	// The test's own context ends before its clean-up.
	c := exec.CommandContext(context.WithoutCancel(t.Context()), program)
	c.Env = append(os.Environ(), "LD_LIBRARY_PATH="+filepath.Dir(library))
	c.SysProcAttr = &syscall.SysProcAttr{Credential: as}
	c.Stderr = os.Stderr
	in, err := c.StdinPipe()
	must(t, err)
	out, err := c.StdoutPipe()
	must(t, err)
	must(t, c.Start())
	t.Cleanup(func() {
		if err := errors.Join(in.Close(), c.Wait()); err != nil {
			t.Errorf("the program: %v", err)
		}
	})
	return &stepper{t: t, in: in, answers: bufio.NewScanner(out)}
}

// begin begins a call.
func (s *stepper) begin(call string) {
	s.t.Helper()
	if _, err := fmt.Fprintln(s.in, call); err != nil {
		s.t.Fatal(err)
	}
}

// end waits for the answer to a call.
func (s *stepper) end(call, want string) {
	s.t.Helper()
	if !s.answers.Scan() {
		s.t.Fatalf("%s: the program has ended", call)
	}
	if got := s.answers.Text(); got != call+": "+want {
		s.t.Errorf("%q, want %q", got, want)
	}
}

// expect makes calls, each with the same answer.
func (s *stepper) expect(want string, calls ...string) {
	s.t.Helper()
	for _, call := range calls {
		s.begin(call)
		s.end(call, want)
	}
}

// The texts of the answers.
const (
	success   = "Success"
	noDriver  = "Driver Not Loaded"
	refused   = "Insufficient Permissions"
	unknown   = "Unknown Error"
	otherNode = "RM has detected an NVML/RM version mismatch."
)

// stateOf returns the folder with the state of a node.
func stateOf(sim *nvmlsim.Sim) string { return filepath.Join(sim.Root(), "var/lib/gpu-sim") }

// Wrong files of a node must be an error of NVML, not the end of the calling program.
func TestADamagedNodeIsAnErrorOfNVML(t *testing.T) {
	library := build(t)
	program := compile(t, "testdata/steps.c", library)
	for name, tc := range map[string]struct {
		damage func(t *testing.T, state string)
		// opened is the answer to a program that has the node open, unopened that of nvmlInit.
		opened, unopened string
	}{
		"no state": {func(t *testing.T, state string) { remove(t, filepath.Join(state, "state.json")) }, noDriver, noDriver},
		"no folder": {func(t *testing.T, state string) {
			must(t, os.RemoveAll(filepath.Dir(state)))
		}, noDriver, noDriver},
		"no model": {func(t *testing.T, state string) { remove(t, filepath.Join(state, "model.yaml")) }, success, noDriver},
		"half a state": {func(t *testing.T, state string) {
			write(t, filepath.Join(state, "state.json"), `{"gpus":[{"mi`)
		}, unknown, unknown},
		"an empty state": {func(t *testing.T, state string) { write(t, filepath.Join(state, "state.json"), "") }, unknown, unknown},
		"a state of another machine": {func(t *testing.T, state string) {
			write(t, filepath.Join(state, "state.json"), `{"gpus":[{},{}]}`)
		}, unknown, unknown},
		"a state of a later release": {func(t *testing.T, state string) {
			write(t, filepath.Join(state, "state.json"), `{"format":1000,"gpus":"as a text"}`)
		}, otherNode, otherNode},
		"a model of another release": {func(t *testing.T, state string) {
			write(t, filepath.Join(state, "model.yaml"), "name: t4\nfuture: 1\n")
		}, success, otherNode},
	} {
		t.Run(name, func(t *testing.T) {
			sim := node(t, "t4")
			s := steps(t, program, library, nil)
			s.expect(success, "init", "handle", "read", "subscribe")
			if tc.opened != success {
				s.begin("wait") // it sees the change, or the state after it
			}
			tc.damage(t, stateOf(sim))
			if tc.opened != success {
				s.end("wait", tc.opened)
			}
			s.expect(tc.opened, "read", "write")
			s.expect(success, "shutdown")
			s.expect(tc.unopened, "init")
			s.expect("Uninitialized", "read", "write", "shutdown")
		})
	}
}

// A state of an earlier release has no format and no model.
func TestAStateOfAnEarlierRelease(t *testing.T) {
	library := build(t)
	sim := node(t, "t4")
	gpu := `{"computeMode":"Default"}`
	write(t, filepath.Join(stateOf(sim), "state.json"), `{"bootID":"0","serial":0,"gpus":[`+strings.Join([]string{gpu, gpu, gpu, gpu}, ",")+`]}`)
	steps(t, compile(t, "testdata/steps.c", library), library, nil).expect(success, "init", "handle", "read", "write", "read", "shutdown")
}

// A root has one node. A program that runs while another node takes the place has the old
// driver's library in memory. It must initialise the library again.
func TestASecondModelInOneRoot(t *testing.T) {
	library := build(t)
	sim := node(t, "t4")
	s := steps(t, compile(t, "testdata/steps.c", library), library, nil)
	s.expect(success, "init", "handle", "read", "write")
	before, err := os.ReadFile(filepath.Join(stateOf(sim), "state.json"))
	must(t, err)
	for name, create := range map[string]func(string, *nvmlsim.Model) (*nvmlsim.Sim, error){"create": nvmlsim.Create, "create if missing": nvmlsim.OpenOrCreate} {
		if _, err := create(sim.Root(), model(t, "l40s")); !errors.Is(err, simerr.ErrInUse) || !strings.Contains(err.Error(), "it holds a simulated t4") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if after, err := os.ReadFile(filepath.Join(stateOf(sim), "state.json")); err != nil || string(after) != string(before) {
		t.Errorf("the state of the first has changed: %v", err)
	}
	s.expect(success, "read")
	must(t, sim.Destroy())
	s.expect(noDriver, "read")
	if _, err := nvmlsim.Create(sim.Root(), model(t, "dgx1-v100")); err != nil {
		t.Fatal(err)
	}
	s.expect(otherNode, "read", "write")
	s.expect(success, "shutdown", "init", "handle", "read", "write", "shutdown")
}

// A user who may only read has all answers, and changes nothing.
func TestAReadOnlyNode(t *testing.T) {
	library := build(t)
	sim := node(t, "t4")
	program := compile(t, "testdata/steps.c", library)
	var reader *syscall.Credential
	if os.Geteuid() == 0 {
		reader = &syscall.Credential{Uid: 65534, Gid: 65534}
	}
	// Others may not enter the folders that t.TempDir makes.
	for _, path := range []string{filepath.Dir(library), filepath.Dir(program), filepath.Dir(filepath.Dir(program)), sim.Root(), filepath.Dir(sim.Root())} {
		chmod(t, path, 0o755)
	}
	state := stateOf(sim)
	modes := map[string]os.FileMode{state: 0o555, filepath.Join(state, "lock"): 0o444, filepath.Join(state, "state.json"): 0o444}
	for path, mode := range modes {
		chmod(t, path, mode)
	}
	t.Cleanup(func() { chmod(t, state, 0o755) })
	s := steps(t, program, library, reader)
	s.expect(success, "init", "handle", "read", "subscribe")
	s.expect(refused, "write")
	s.expect(success, "read")
	// The lock alone does not let a user change the node.
	chmod(t, filepath.Join(state, "lock"), 0o666)
	s.expect(refused, "write")
	s.expect(success, "read", "shutdown", "init")
	chmod(t, filepath.Join(state, "state.json"), 0)
	s.expect(success, "shutdown")
	s.expect(refused, "init")
}

func chmod(t *testing.T, path string, mode os.FileMode) {
	t.Helper()
	must(t, os.Chmod(path, mode))
}

func remove(t *testing.T, path string) {
	t.Helper()
	must(t, os.Remove(path))
}

// write replaces a file as the simulator does, in one step.
func write(t *testing.T, path, content string) {
	t.Helper()
	must(t, os.WriteFile(path+".new", []byte(content), 0o644))
	must(t, os.Rename(path+".new", path))
}
