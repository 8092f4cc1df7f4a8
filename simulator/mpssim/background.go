// SPDX-License-Identifier: Apache-2.0

package mpssim

import (
	"context"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// StartInBackground starts the process of a daemon, which outlives this one, and returns
// when the daemon answers. It returns an error if the process ends first.
func StartInBackground(ctx context.Context, daemon *exec.Cmd, o Options, output io.Writer) error {
	daemon.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := daemon.Start(); err != nil {
		return err
	}
	exited := make(chan error, 1)
	go func() { exited <- daemon.Wait() }()
	var list []string
	if o.Protocol == protocolNamed {
		list = []string{"server", "list"}
	}
	for {
		if err := Control(ctx, o.PipeDirectory, strings.NewReader("get_server_list"), output, list...); err == nil {
			return nil
		}
		select {
		case err := <-exited:
			return fmt.Errorf("the MPS control daemon did not come up: %w; see control.log in %s", err, o.LogDirectory)
		case <-time.After(10 * time.Millisecond):
		}
	}
}
