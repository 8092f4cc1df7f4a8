// SPDX-License-Identifier: Apache-2.0

// Command gpu-node runs a Kubernetes node with the driver on a machine with a GPU.
//
// It runs stories of users there, takes everything down, and writes a report. It runs from its packed
// folder (make gpu-node), and needs Linux, root and an NVIDIA driver. It changes no setting of a GPU.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "gpu-node:", err)
		os.Exit(1)
	}
}

// insideVariable is set in the namespaces of the node.
const insideVariable = "GPU_NODE_INSIDE"

func run(ctx context.Context) error {
	out := flag.String("out", "gpu-node-report", "folder of the report")
	only := flag.String("stories", ".", "regular expression of the stories to run")
	smoke := flag.Bool("smoke", false, "start one pod with a share, and nothing else")
	limit := flag.Duration("limit", 10*time.Minute, "time after which the stories end; taking the node down takes half a minute more")
	simulated := flag.Bool("simulated", false, "run on a simulated H200, to try this program on a machine without a GPU")
	settings := flag.Bool("allow-settings", false, "also run the stories that change settings of the GPU: MIG mode, compute mode and time slice intervals; they are put back")
	nvidia := flag.String("nvidia", "", "NVIDIA's gpu-kubelet-plugin, to measure the start of pods with it on the same node")
	python := flag.String("python", "", "Python with PyTorch for a story that trains and decodes (default: the machine's python3)")
	flag.Parse()
	self, err := os.Executable()
	if err != nil {
		return err
	}
	dir := filepath.Dir(self)
	if *smoke {
		*only = "^smoke$"
	}
	pattern, err := regexp.Compile(*only)
	if err != nil {
		return err
	}
	if os.Geteuid() != 0 {
		return errors.New("a Kubernetes node needs root: run this with sudo")
	}
	if os.Getenv(insideVariable) == "" {
		return enter(ctx, self)
	}
	if err := inside(dir); err != nil {
		return err
	}
	report, err := newReport(*out)
	if err != nil {
		return err
	}
	n := &node{dir: dir, simulated: *simulated, settings: *settings, nvidia: *nvidia, python: *python, report: report}
	return n.run(ctx, pattern, *limit)
}

// enter runs this program again in mount and PID namespaces of its own. So no mount and no process
// of the node is left.
func enter(ctx context.Context, self string) error {
	cmd := exec.CommandContext(ctx, self, os.Args[1:]...)
	cmd.Env = append(os.Environ(), insideVariable+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID, Pdeathsig: syscall.SIGKILL}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	// The cluster is taken down on an interrupt.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = time.Minute
	return cmd.Run()
}

// inside prepares the new namespaces. Pods need shared mounts, and on some machines the root is private.
func inside(dir string) error {
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make the mounts private: %w", err)
	}
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_SHARED, ""); err != nil {
		return fmt.Errorf("make the mounts shared: %w", err)
	}
	if err := syscall.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("mount the processes of the namespace: %w", err)
	}
	return os.Setenv("PATH", filepath.Join(dir, "bin")+":"+os.Getenv("PATH")+":/usr/sbin:/usr/bin:/sbin:/bin:"+filepath.Join(dir, "applets"))
}
