// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/uuid"
)

// driver is a running instance of the program under test.
type driver struct {
	cmd   *exec.Cmd
	ended chan struct{}
	// limit is how long it may live after a signal.
	limit time.Duration
}

// startDriver starts the command of --exec in a process group of its own. Its output is appended to driver.log.
func (n *node) startDriver() (*driver, error) {
	log, err := os.OpenFile(n.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close()                          //nolint:errcheck // the driver writes it
	cmd := exec.Command("sh", "-c", n.command) //nolint:gosec,noctx // the command is what the user asks to run, and a signal ends it
	cmd.Env = append(os.Environ(),
		"KUBECONFIG="+n.kubeconfig, "NODE_NAME="+n.name, "POD_UID="+string(uuid.NewUUID()),
		"KUBELET_DIR="+n.kubelet, "PLUGINS_DIR="+filepath.Join(n.kubelet, "plugins"), "REGISTRY_DIR="+n.registry, "CDI_DIR="+n.cdi)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the driver: %w", err)
	}
	d := &driver{cmd: cmd, ended: make(chan struct{}), limit: n.waits.end}
	go func() {
		_ = cmd.Wait() // how a killed program ends is no news
		// A shell that does not exec the driver may end first.
		for len(d.processes()) > 0 {
			<-time.After(20 * time.Millisecond)
		}
		close(d.ended)
	}()
	return d, nil
}

// signal sends a signal to the driver and its children, and waits until the driver has ended.
func (d *driver) signal(ctx context.Context, signal syscall.Signal) error {
	if !d.running() {
		return nil // another process may have its id
	}
	if err := syscall.Kill(-d.cmd.Process.Pid, signal); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("end the driver: %w", err)
	}
	timer := time.NewTimer(d.limit)
	defer timer.Stop()
	select {
	case <-d.ended:
		return nil
	case <-timer.C:
		return fmt.Errorf("the driver runs %s after signal %s", d.limit, signal)
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (d *driver) running() bool {
	select {
	case <-d.ended:
		return false
	default:
		return true
	}
}

// ended returns an error if nothing more is to be expected of the driver.
func (n *node) ended() error {
	if n.driver != nil && !n.driver.running() {
		return errEnded
	}
	return nil
}

// restart ends the driver by a signal, and starts it again.
func (n *node) restart(ctx context.Context, signal syscall.Signal) error {
	if n.driver == nil {
		return errNoDriver
	}
	if err := n.driver.signal(ctx, signal); err != nil {
		return err
	}
	var err error
	if n.driver, err = n.startDriver(); err != nil {
		return err
	}
	_, err = n.awaitPlugin(ctx)
	return err
}

// processes returns the folders in /proc of the running processes of the driver's group.
func (d *driver) processes() (folders []string) {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat") // the pattern is valid
	for _, path := range stats {
		text, _ := os.ReadFile(path) // a process that has ended has none
		// The state, the parent and the group follow the name in parentheses.
		fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
		if len(fields) > 2 && fields[0] != "Z" && fields[2] == strconv.Itoa(d.cmd.Process.Pid) {
			folders = append(folders, filepath.Dir(path))
		}
	}
	return folders
}

// files returns the number of open files of the driver, and 0 for one in a cluster.
func (d *driver) files() (count int, err error) {
	if d == nil {
		return 0, nil
	}
	for _, folder := range d.processes() {
		entries, readErr := os.ReadDir(filepath.Join(folder, "fd"))
		if !errors.Is(readErr, fs.ErrNotExist) { // the process has ended
			err = errors.Join(err, readErr)
		}
		count += len(entries)
	}
	return count, err
}
