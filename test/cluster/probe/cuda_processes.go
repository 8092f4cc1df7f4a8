// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
)

// child is a process of several. It holds its memory until its standard input ends.
type child struct {
	cmd   *exec.Cmd
	stdin io.Closer
	out   *json.Decoder
}

// runProcesses runs several CUDA processes at a time, prints their reports as one, and
// holds what they have until ctx ends. The error is the first of theirs.
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
	var failed *cudaError
	for _, c := range children {
		var r cudaReport
		if err := c.out.Decode(&r); err != nil {
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
		"cuda", "--until-eof", "--memory=" + o.memory.String(), "--device=" + strconv.Itoa(o.device),
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
	c.out = json.NewDecoder(out)
	return c, c.cmd.Start()
}
