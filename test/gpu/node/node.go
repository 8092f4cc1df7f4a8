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
	"slices"
	"strings"
	"time"
)

const (
	namespace       = "lab"
	driverNamespace = "gpu-dra-driver"
	workloadImage   = "localhost/gpu-dra/gpuload:1"
	clusterName     = "gpu"
	// offer lists the devices that the node offers besides whole GPUs.
	offer      = "share.timeslice.seat"
	stateDir   = "/var/lib/gpu-dra-cluster/" + clusterName
	barrierDir = "/var/lib/gpu-dra-cluster/barriers"
)

// node is the Kubernetes node on this machine.
type node struct {
	dir       string
	simulated bool
	// settings is set if stories may change settings of the GPU.
	settings bool
	// nvidia is the path of NVIDIA's driver, and python that of a Python with PyTorch. Either may be empty.
	nvidia, python string
	report         *report
	// claims counts the templates, whose names are used once.
	claims int
}

// run brings the node up, runs the stories for at most limit, and takes the node down.
func (n *node) run(ctx context.Context, only *regexp.Regexp, limit time.Duration) (err error) {
	down := func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		_, err := n.program(ctx, "", "cluster", "down", "--name", clusterName, "--bin", filepath.Join(n.dir, "bin"))
		return errors.Join(err, os.RemoveAll(barrierDir))
	}
	defer func() { err = errors.Join(err, down(), n.report.end(time.Now())) }()
	n.report.section("machine")
	n.machine(ctx)
	if !n.simulated && only.MatchString("conformance") {
		n.conformance(ctx)
	}
	n.report.section("node")
	if err := n.up(ctx); err != nil {
		return err
	}
	err = n.install(ctx, "default")
	if err == nil {
		n.tell(ctx, only, limit)
	}
	n.collect(ctx)
	return err
}

// machine writes what the figures are of.
func (n *node) machine(ctx context.Context) {
	for _, command := range [][]string{
		{"cat", filepath.Join(n.dir, "version")},
		{"uname", "-srm"},
		{"nvidia-smi", "--query-gpu=name,driver_version,memory.total,mig.mode.current,compute_mode,memory.used", "--format=csv,noheader"},
	} {
		if n.simulated && command[0] == "nvidia-smi" {
			n.report.figure("no GPU: a simulated H200")
			continue
		}
		out, err := n.program(ctx, "", command[0], command[1:]...)
		if err != nil {
			out = err.Error()
		}
		n.report.figure("%s", strings.TrimSpace(out))
		if fields := strings.Split(out, ", "); command[0] == "nvidia-smi" && err == nil && len(fields) > 1 {
			n.report.machine = fields[0] + ", driver " + fields[1]
		}
	}
}

// tell runs the stories until ctx or the limit ends.
func (n *node) tell(ctx context.Context, only *regexp.Regexp, limit time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for _, s := range stories {
		if !only.MatchString(s.name) || ctx.Err() != nil {
			continue
		}
		n.report.section(s.name)
		if s.gpu && n.simulated {
			n.report.figure("skipped: it needs a GPU that computes")
			continue
		}
		if s.settings && !n.settings {
			n.report.figure("skipped: it changes settings of the GPU (-allow-settings)")
			continue
		}
		if err := s.run(ctx, n); err != nil {
			n.report.check(false, "%s: %v", s.name, err)
			n.screens(ctx)
			if s.name == stories[0].name {
				return
			}
		}
		if err := n.clean(ctx); err != nil {
			n.report.check(false, "%s: the end of its pods: %v", s.name, err)
		}
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		n.report.check(false, "the stories did not end within %s", limit)
	}
}

// collect keeps the logs of the driver and the state at the end.
func (n *node) collect(ctx context.Context) {
	n.report.section("end")
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	n.screens(ctx)
	n.show(ctx, "kubectl", "--namespace", driverNamespace, "get", "pods")
	n.show(ctx, "kubectl", "--namespace", driverNamespace, "get", "events", "--field-selector", "type=Warning", "--sort-by", ".lastTimestamp")
	n.keep(ctx, "agent.log", "kubectl", "--namespace", driverNamespace, "logs", "--selector", "app.kubernetes.io/component=agent", "--tail=-1")
	n.keep(ctx, "supervisor.log", "kubectl", "--namespace", driverNamespace, "logs", "--selector", "app.kubernetes.io/component=supervisor", "--tail=-1")
	n.keep(ctx, "resourceslices.yaml", "kubectl", "get", "resourceslices", "--output", "yaml")
	n.keep(ctx, "kernel.log", "sh", "-c", "dmesg | grep NVRM || true")
	if !n.simulated {
		n.show(ctx, "nvidia-smi", "--query-gpu=mig.mode.current,compute_mode,memory.used", "--format=csv")
	}
}

// conformance runs the hardware suite and records the machine.
func (n *node) conformance(ctx context.Context) {
	n.report.section("conformance")
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	out, err := n.program(ctx, "", "gpu-conformance", "-test.v", "-hardware=nvml", "-capture", n.report.path("machine.yaml"))
	n.report.file("conformance.txt", out)
	n.report.check(err == nil, "gpu-conformance -hardware=nvml: %v", err)
	if _, err := n.program(ctx, "", "gpu-conformance", "record", "--output", n.report.path("model.yaml")); err != nil {
		n.report.check(false, "gpu-conformance record: %v", err)
	}
}

func (n *node) up(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	// It takes libseccomp from the machine. Without it every container would fail, and hardly say why.
	if _, err := n.program(ctx, "", "runc", "--version"); err != nil {
		return err
	}
	if _, err := n.program(ctx, "", "cluster", "up", "--name", clusterName, "--bin", filepath.Join(n.dir, "bin")); err != nil {
		return err
	}
	if err := os.Setenv("KUBECONFIG", filepath.Join(stateDir, "admin.kubeconfig")); err != nil {
		return err
	}
	images, err := filepath.Glob(filepath.Join(n.dir, "images", "*.tar"))
	if err != nil {
		return err
	}
	for _, image := range images {
		if _, err := n.program(ctx, "", "cluster", "load-image", "--name", clusterName, "--bin", filepath.Join(n.dir, "bin"), image); err != nil {
			return err
		}
	}
	if _, err := n.program(ctx, "", "cluster", "load-program", "--root", "--name", clusterName, "--bin", filepath.Join(n.dir, "bin"), n.workload(), workloadImage); err != nil {
		return err
	}
	if _, err := n.kubectl(ctx, "", "label", "node", "--all", "gpu.nvidia.com/offer="+offer); err != nil {
		return err
	}
	_, err = n.kubectl(ctx, "", "create", "namespace", namespace)
	return err
}

// workload is the path of the program that computes.
func (n *node) workload() string {
	if n.simulated {
		return filepath.Join(n.dir, "simulated", "gpuload")
	}
	return filepath.Join(n.dir, "bin", "gpuload")
}

// install applies a rendering of the chart, with pairs of texts replaced, and waits until its pods are ready.
func (n *node) install(ctx context.Context, rendering string, replaced ...string) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	began := time.Now()
	name := rendering
	if n.simulated {
		name = rendering + "-simulated"
	}
	manifests, err := os.ReadFile(filepath.Join(n.dir, "charts", name+".yaml"))
	if err != nil {
		return err
	}
	if _, err := n.kubectl(ctx, strings.NewReplacer(replaced...).Replace(string(manifests)), "apply", "--server-side", "--force-conflicts", "--filename", "-"); err != nil {
		return err
	}
	// The supervisor is updated on deletion only.
	if _, err := n.kubectl(ctx, "", "--namespace", driverNamespace, "delete", "pod", "--selector", "app.kubernetes.io/component=supervisor", "--wait=true"); err != nil {
		return err
	}
	if _, err := n.kubectl(ctx, "", "--namespace", driverNamespace, "rollout", "status", "daemonset/gpu-dra-driver-agent", "--timeout=2m"); err != nil {
		return err
	}
	if err := n.until(ctx, func() error {
		_, err := n.kubectl(ctx, "", "--namespace", driverNamespace, "wait", "--for=condition=Ready", "pod", "--selector", "app.kubernetes.io/component=supervisor", "--timeout=30s")
		return err
	}); err != nil {
		return err
	}
	if err := n.published(ctx); err != nil {
		return err
	}
	n.report.check(true, "the driver serves %.1f s after kubectl apply (%s)", time.Since(began).Seconds(), rendering)
	return nil
}

// published waits until a driver has published devices.
func (n *node) published(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return n.until(ctx, func() error {
		out, err := n.kubectl(ctx, "", "get", "resourceslices", "--output", "name")
		if err == nil && strings.TrimSpace(out) == "" {
			err = errors.New("the driver has published nothing")
		}
		return err
	})
}

// until asks again and again until check returns nil or ctx ends.
func (n *node) until(ctx context.Context, check func() error) error {
	for {
		err := check()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// program runs a program of the packed folder or of the machine, and returns its output.
func (n *node) program(ctx context.Context, stdin, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdin = strings.NewReader(stdin)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Run(); err != nil {
		return out.String() + errs.String(), fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, tail(out.String()+errs.String(), 600))
	}
	return out.String(), nil
}

// smi runs nvidia-smi.
func (n *node) smi(ctx context.Context, args ...string) (string, error) {
	if n.simulated {
		return n.program(ctx, "", "/var/lib/gpu-sim/usr/bin/nvidia-smi", args...)
	}
	return n.program(ctx, "", "nvidia-smi", args...)
}

func tail(text string, most int) string {
	text = strings.TrimSpace(text)
	return text[max(0, len(text)-most):]
}

func (n *node) kubectl(ctx context.Context, stdin string, args ...string) (string, error) {
	return n.program(ctx, stdin, "kubectl", args...)
}

// show writes a command and its output into the report.
func (n *node) show(ctx context.Context, name string, args ...string) {
	out, err := n.program(ctx, "", name, args...)
	if err != nil && out == "" {
		out = err.Error()
	}
	n.report.output(name+" "+strings.Join(args, " "), out)
}

// keep writes the output of a command into a file of the report.
func (n *node) keep(ctx context.Context, file, name string, args ...string) {
	out, err := n.program(ctx, "", name, args...)
	if err != nil {
		out += "\n" + err.Error()
	}
	n.report.file(file, out)
}

// screens shows what users see now.
func (n *node) screens(ctx context.Context) {
	n.show(ctx, "kubectl", "gpu", "get")
	n.show(ctx, "kubectl", "gpu", "who", "--all-namespaces")
	n.show(ctx, "kubectl", "gpu", "doctor")
	n.show(ctx, "kubectl", "--namespace", namespace, "get", "events", "--field-selector", "type=Warning", "--sort-by", ".lastTimestamp")
}

// warned checks that a pod has an event with one of the reasons, within a minute.
func (n *node) warned(ctx context.Context, pod string, reasons ...string) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var said string
	err := n.until(ctx, func() error {
		out, err := n.kubectl(ctx, "", "--namespace", namespace, "get", "events", "--field-selector", "involvedObject.name="+pod, "--output", `jsonpath={range .items[*]}{.reason}: {.message}{"\n"}{end}`)
		for line := range strings.Lines(out) {
			if reason, _, _ := strings.Cut(line, ":"); slices.Contains(reasons, reason) {
				said = strings.TrimSpace(line)
				return nil
			}
		}
		return cmp.Or(err, fmt.Errorf("its events are %q", out))
	})
	n.report.check(err == nil, "an event on %s says what happened (%s): %s", pod, strings.Join(reasons, " or "), cmp.Or(said, fmt.Sprint(err)))
}
