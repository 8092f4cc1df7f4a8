// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/gpu-dra/gpu-dra-driver/test/harness"
)

const (
	// acceleratorTests are the tests that a driver of accelerators decides. The others need
	// Kueue, an autoscaler, a sandboxed runtime, Prometheus or Kubeflow's trainer.
	acceleratorTests = "^(TestAcceleratorDriverRuntimeManagement|TestSecureAcceleratorAccess|TestAcceleratorPerformanceMetrics)$"

	// vanilla is the image of the suite's pods. The probe of the test cluster replaces it:
	// busybox's shell and tools, and nothing of NVIDIA.
	vanilla, probe = "docker.io/library/ubuntu:22.04", "localhost/gpu-dra/probe:test"
)

// suite is a checkout of the tests.
type suite struct {
	source, run, log string

	program string // the compiled tests
	usage   string // their flags
}

// runOn builds the tests, and runs them on the named cluster with the driver installed.
func (s *suite) runOn(ctx context.Context, bin, clusterName string) error {
	dir, err := os.MkdirTemp("", "ai-conformance-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a folder of our own
	if err := s.build(ctx, dir); err != nil {
		return err
	}
	say("bringing up the cluster %q", clusterName)
	cluster, err := harness.Up(ctx, bin, clusterName)
	if err != nil {
		return err
	}
	if err := cluster.LoadImages(ctx); err != nil {
		return err
	}
	say("%s is the test cluster's probe image: a shell and tools, and nothing of NVIDIA", vanilla)
	if err := cluster.TagImage(ctx, probe, vanilla); err != nil {
		return err
	}
	say("installing the Helm chart, for a simulated dgx-h100")
	agent := cluster.NewAgent("dgx-h100")
	agent.MetricsService = true
	if err := agent.Start(ctx); err != nil {
		return err
	}
	return s.test(ctx, cluster.Kubeconfig)
}

// build compiles the tests of the checkout and reads their flags.
func (s *suite) build(ctx context.Context, dir string) error {
	if found, err := filepath.Glob(filepath.Join(s.source, "test", "*_test.go")); s.source == "" || err != nil || len(found) == 0 {
		return fmt.Errorf("no checkout of kubernetes-sigs/ai-conformance in %q: run `git clone https://github.com/kubernetes-sigs/ai-conformance` and name its folder", s.source)
	}
	say("building the tests of %s at %s", s.source, s.commit(ctx))
	s.program = filepath.Join(dir, "ai-conformance.test")
	build := exec.CommandContext(ctx, "go", "-C", s.source, "test", "-c", "-o", s.program, "./test")
	build.Stdout, build.Stderr = os.Stdout, os.Stderr
	if err := build.Run(); err != nil {
		return fmt.Errorf("build the tests of %s: %w", s.source, err)
	}
	// Some releases of the flag package end with an error after the usage.
	usage, err := exec.CommandContext(ctx, s.program, "-help").CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return fmt.Errorf("read the flags of the tests: %w", err)
	}
	s.usage = string(usage)
	return s.sayMissing(ctx)
}

// commit returns the commit of the checkout. It returns "an unknown commit" without git's folder.
func (s *suite) commit(ctx context.Context) string {
	out, err := exec.CommandContext(ctx, "git", "-C", s.source, "describe", "--always", "--dirty", "--abbrev=40").Output()
	if err != nil {
		return "an unknown commit"
	}
	return strings.TrimSpace(string(out))
}

// sayMissing prints which of the tests about accelerators the checkout lacks. It returns an
// error if no test is left to run.
func (s *suite) sayMissing(ctx context.Context) error {
	out, err := exec.CommandContext(ctx, s.program, "-test.list", ".").Output()
	if err != nil {
		return fmt.Errorf("list the tests: %w", err)
	}
	wanted, err := regexp.Compile(s.run)
	if err != nil {
		return fmt.Errorf("-run: %w", err)
	}
	has, any := map[string]bool{}, false
	for name := range strings.Lines(string(out)) {
		name = strings.TrimSpace(name)
		has[name], any = true, any || wanted.MatchString(name)
	}
	for name := range strings.SplitSeq(strings.Trim(acceleratorTests, "^()$"), "|") {
		if !has[name] {
			say("the checkout has no %s", name)
		}
	}
	if !any {
		return fmt.Errorf("the checkout has no test that matches %s", s.run)
	}
	return nil
}

// arguments returns the flags for this driver that the checkout's tests know.
func (s *suite) arguments() []string {
	all := []string{"-test.v", "-test.count=1", "-test.timeout=60m", "-test.run=" + s.run, "-accelerator-type=nvidia"}
	for _, f := range [][2]string{
		{"allocation-mode", "dra"},
		{"metrics-namespace", harness.Namespace},
		{"metrics-service-name", harness.Namespace + "-agent"},
		{"metrics-service-port", "http"},
	} {
		if strings.Contains(s.usage, "  -"+f[0]+" ") {
			all = append(all, "-"+f[0]+"="+f[1])
		}
	}
	return all
}

// test runs the tests on a cluster. Their output goes to standard output and into the log.
func (s *suite) test(ctx context.Context, kubeconfig string) error {
	if err := os.MkdirAll(filepath.Dir(s.log), 0o755); err != nil {
		return err
	}
	log, err := os.Create(s.log)
	if err != nil {
		return err
	}
	defer log.Close() //nolint:errcheck // Sync reports what failed
	say("%s %s", filepath.Base(s.program), strings.Join(s.arguments(), " "))
	tests := exec.CommandContext(ctx, s.program, s.arguments()...)
	tests.Dir, tests.Env = filepath.Join(s.source, "test"), append(os.Environ(), "KUBECONFIG="+kubeconfig)
	tests.Stdout = io.MultiWriter(os.Stdout, log)
	tests.Stderr = tests.Stdout
	// Tests delete their namespaces before they end.
	tests.Cancel = func() error { return tests.Process.Signal(os.Interrupt) }
	tests.WaitDelay = time.Minute
	err = errors.Join(tests.Run(), log.Sync())
	say("the output is in %s", s.log)
	return err
}
