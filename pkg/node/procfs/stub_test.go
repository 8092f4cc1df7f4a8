// SPDX-License-Identifier: Apache-2.0

package procfs_test

import (
	"bufio"
	"os/exec"
	"testing"

	"github.com/gpu-dra/gpu-dra-driver/pkg/node/procfs"
)

func TestOnlyTheStubOfAContainerIsEnded(t *testing.T) {
	for name, c := range map[string]struct {
		command, ofPod string
		root           procfs.Root
		ended          bool
	}{
		"a stub":                      {command: "runc:[2:INIT]", root: "/", ended: true},
		"a program":                   {command: "python", root: "/"},
		"a program of a similar name": {command: "runc:[2:INIT]x", root: "/"},
		"a stub of another pod":       {command: "runc:[2:INIT]", ofPod: "another", root: "/"},
		"another PID namespace":       {command: "runc:[2:INIT]", root: "/proc/self/root"},
	} {
		t.Run(name, func(t *testing.T) {
			// A shell that has the name, and waits.
			child := exec.CommandContext(t.Context(), "sh", "-c", `printf %s "$0" >/proc/$$/comm && echo named && read -r line`, c.command)
			in, inErr := child.StdinPipe()
			out, outErr := child.StdoutPipe()
			if inErr != nil || outErr != nil || child.Start() != nil {
				t.Fatal(inErr, outErr)
			}
			if line, err := bufio.NewReader(out).ReadString('\n'); line != "named\n" {
				t.Fatal(line, err)
			}
			task, err := c.root.Task(child.Process.Pid)
			must(t, err)
			ended, err := c.root.EndStub(child.Process.Pid, task.PodUID+c.ofPod)
			if ended != c.ended || err != nil {
				t.Errorf("ended %t, %v, want %t", ended, err, c.ended)
			}
			_, _ = in.Write([]byte("\n"))
			_ = child.Wait()
			if killed := child.ProcessState.ExitCode() == -1; killed != c.ended {
				t.Errorf("%v, want killed: %t", child.ProcessState, c.ended)
			}
			if ended, err := c.root.EndStub(child.Process.Pid, task.PodUID); ended || err != nil {
				t.Errorf("ended again: %t, %v", ended, err)
			}
		})
	}
}
