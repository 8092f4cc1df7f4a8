// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
)

// child is a process of several. It prints a line when it has a context, allocates after a
// line of its standard input, and holds its memory until the input ends.
type child struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
	out   *bufio.Reader
}

// runProcesses runs several CUDA processes at a time, and prints their reports as one.
// They keep their memory until ctx ends. The error is the first of theirs.
func runProcesses(ctx context.Context, environ []string, o cudaOptions, report *cudaReport, output io.Writer) (err error) {
	var children []*child
	defer func() {
		for _, c := range children {
			// A process that failed has printed why, and ends with a status.
			_ = c.stdin.Close()
			_ = c.cmd.Wait()
		}
	}()
	for range o.processes {
		c, err := startChild(ctx, environ, o)
		if err != nil {
			return err
		}
		children = append(children, c)
	}
	// The contexts come first: the sum of the allocations is then the same in each
	// order of the processes. One that ended has no line, which its report explains.
	for _, c := range children {
		_, _ = c.out.ReadString('\n')
	}
	for _, c := range children {
		_, _ = io.WriteString(c.stdin, "\n")
	}
	var failed *cudaError
	for _, c := range children {
		var r cudaReport
		if err := json.NewDecoder(c.out).Decode(&r); err != nil {
			r.Error = &cudaError{Name: "UNKNOWN", Code: 999, Message: fmt.Sprintf("process %d printed no report: %v", c.cmd.Process.Pid, err)}
		}
		if failed == nil {
			failed = r.Error
		}
		report.MPS = r.MPS
		report.AllocatedBytes += r.AllocatedBytes
		report.Processes = append(report.Processes, r)
	}
	if failed != nil {
		return errors.Join(failed, report.fail(output, failed))
	}
	if err := report.print(output); err != nil || o.once {
		return err
	}
	<-ctx.Done()
	return nil
}

func startChild(ctx context.Context, environ []string, o cudaOptions) (*child, error) {
	self, err := exec.LookPath(os.Args[0])
	if err != nil {
		return nil, err
	}
	args := []string{
		"cuda", "--child", "--memory=" + o.memory.String(), "--device=" + strconv.Itoa(o.device),
		"--no-mps=" + strconv.FormatBool(o.noMPS), "--greedy=" + strconv.FormatBool(o.greedy),
	}
	// Its standard input ends with this process, however this ends.
	c := &child{cmd: exec.CommandContext(context.WithoutCancel(ctx), self, args...)}
	c.cmd.Env, c.cmd.Stderr = environ, os.Stderr
	if c.stdin, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.out = bufio.NewReader(out)
	return c, c.cmd.Start()
}

// awaitParent reports a context to the parent, and waits until the parent's other
// processes have one too. The context that it returns ends with the standard input.
func awaitParent(ctx context.Context, output io.Writer) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stdin := bufio.NewReader(os.Stdin)
	_, err := fmt.Fprintln(output)
	if err == nil {
		_, err = stdin.ReadString('\n')
	}
	if err != nil {
		cancel()
	}
	go func() {
		_, _ = io.Copy(io.Discard, stdin)
		cancel()
	}()
	return ctx, cancel
}
