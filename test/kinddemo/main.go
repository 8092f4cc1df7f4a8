// SPDX-License-Identifier: Apache-2.0

// Command kinddemo runs demo/whole-gpu on a kind cluster with simulated GPUs, with images that
// make images has built. It leaves the cluster running, and its kubeconfig in the folder of the images.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// oldestMinor is the first minor version of Kubernetes 1 that serves resource.k8s.io/v1.
const oldestMinor = 34

// pods of demo/whole-gpu that get their GPUs. nine-gpus waits.
var pods = []string{"pod/by-memory", "pod/first-available", "pod/gpu-large", "pod/one-gpu", "pod/shared-claim", "pod/two-pods-a", "pod/two-pods-b"}

func main() {
	var d demo
	flag.StringVar(&d.root, "root", ".", "the folder of the repository")
	flag.StringVar(&d.bin, "bin", ".build/bin", "the folder with helm and kubectl-gpu")
	flag.StringVar(&d.images, "images", ".build/images", "the folder of the image archives")
	flag.StringVar(&d.name, "name", "gpu-dra-demo", "the name of the kind cluster")
	flag.StringVar(&d.nodeImage, "image", "", "the image of kind's nodes, if not kind's default")
	flag.StringVar(&d.model, "model", "dgx-h100", "the simulated machine")
	check := flag.Bool("check", false, "only check that the tools are there")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	d.out = os.Stdout
	err := d.check(ctx)
	if err == nil && !*check {
		err = d.run(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "kind-demo:", err)
		stop()
		os.Exit(1)
	}
}

// demo is a run of the demo, by the commands of kind, kubectl and helm.
type demo struct {
	root, bin, images, name, nodeImage, model string
	out                                       io.Writer
}

// check returns an error that names each missing tool, or an engine that does not answer.
func (d demo) check(ctx context.Context) error {
	var missing []error
	engine := engineName()
	if engine == "" {
		missing = append(missing, errors.New("needs a container engine: docker, or podman"))
	}
	for tool, where := range map[string]string{"kind": "https://kind.sigs.k8s.io", "kubectl": "https://kubernetes.io/docs/tasks/tools"} {
		if _, err := exec.LookPath(tool); err != nil {
			missing = append(missing, fmt.Errorf("needs %s on PATH: %s", tool, where))
		}
	}
	if len(missing) > 0 {
		slices.SortFunc(missing, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
		missing = append(missing, errors.New("make demo needs none of them, but root on Linux"))
		return errors.Join(missing...)
	}
	if out, err := exec.CommandContext(ctx, engine, "info").CombinedOutput(); err != nil {
		return fmt.Errorf("%s does not answer: %w: %s", engine, err, strings.TrimSpace(string(out)))
	}
	return nil
}

// engineName returns the container engine that kind uses here, or "".
func engineName() string {
	if engine := os.Getenv("KIND_EXPERIMENTAL_PROVIDER"); engine != "" {
		return engine
	}
	for _, engine := range []string{"docker", "podman"} {
		if _, err := exec.LookPath(engine); err == nil {
			return engine
		}
	}
	return ""
}

// run brings up the cluster, installs the driver and applies the manifests.
func (d demo) run(ctx context.Context) error {
	images, err := d.list()
	if err != nil {
		return err
	}
	reference := images[0].Reference
	colon := strings.LastIndex(reference, ":") // a registry may have a port
	if colon < 0 {
		return fmt.Errorf("the image %s has no tag", reference)
	}
	registry, tag := filepath.Dir(reference[:colon]), reference[colon+1:]

	if err := d.up(ctx); err != nil {
		return err
	}
	for _, image := range images {
		if err := d.do(ctx, "kind", "load", "image-archive", filepath.Join(d.images, image.Archive), "--name", d.name); err != nil {
			return err
		}
	}
	for _, command := range [][]string{
		{filepath.Join(d.bin, "helm"), "upgrade", "--install", "gpu-dra-driver", "deployments/helm/gpu-dra-driver",
			"--namespace", "gpu-dra-driver", "--create-namespace",
			"--set", "image.registry=" + registry, "--set-string", "image.tag=" + tag, "--set", "image.pullPolicy=Never",
			"--set", "simulation.model=" + d.model},
		{"kubectl", "--namespace", "gpu-dra-driver", "rollout", "status", "daemonset/gpu-dra-driver-agent", "--timeout=5m"},
	} {
		if err := d.do(ctx, command[0], command[1:]...); err != nil {
			return err
		}
	}
	// It may exist from an earlier run.
	if _, err := d.output(ctx, "kubectl", "get", "namespace", "demo"); err != nil {
		if err := d.do(ctx, "kubectl", "create", "namespace", "demo"); err != nil {
			return err
		}
	}
	gpu := filepath.Join(d.bin, "kubectl-gpu")
	for _, command := range [][]string{
		{"kubectl", "apply", "--namespace", "demo", "--filename", "demo/whole-gpu"},
		append([]string{"kubectl", "wait", "--namespace", "demo", "--for", "condition=Ready", "--timeout=5m"}, pods...),
		{gpu, "who", "--namespace", "demo"},
		{gpu, "explain", "nine-gpus", "--namespace", "demo"},
	} {
		if err := d.do(ctx, command[0], command[1:]...); err != nil {
			return err
		}
	}
	_, _ = fmt.Fprintf(d.out, "\n==> the cluster stays: export KUBECONFIG=%s\n==> to remove it: kind delete cluster --name %s\n", d.kubeconfig(), d.name)
	return nil
}

// image is an entry of the images.json that make images writes.
type image struct{ Name, Reference, Archive string }

// list returns the images, the agent's first.
func (d demo) list() ([]image, error) {
	text, err := os.ReadFile(filepath.Join(d.images, "images.json"))
	if err != nil {
		return nil, fmt.Errorf("find the images, which make images builds: %w", err)
	}
	var images []image
	if err := json.Unmarshal(text, &images); err != nil || len(images) == 0 {
		return nil, errors.Join(errors.New("find the images: images.json lists none"), err)
	}
	return images, nil
}

// up creates the cluster if it does not exist, and checks its version.
func (d demo) up(ctx context.Context) error {
	clusters, err := d.output(ctx, "kind", "get", "clusters")
	if err != nil {
		return err
	}
	if slices.Contains(strings.Fields(clusters), d.name) {
		err = d.do(ctx, "kind", "export", "kubeconfig", "--name", d.name, "--kubeconfig", d.kubeconfig())
	} else {
		args := []string{"create", "cluster", "--name", d.name, "--kubeconfig", d.kubeconfig(), "--wait", "5m"}
		if d.nodeImage != "" {
			args = append(args, "--image", d.nodeImage)
		}
		err = d.do(ctx, "kind", args...)
	}
	if err != nil {
		return err
	}
	text, err := d.output(ctx, "kubectl", "version", "--output", "json")
	if err != nil {
		return err
	}
	var version struct {
		ServerVersion struct{ Minor, GitVersion string }
	}
	if err := json.Unmarshal([]byte(text), &version); err != nil {
		return fmt.Errorf("read the cluster's version: %w", err)
	}
	minor, err := strconv.Atoi(strings.TrimRight(version.ServerVersion.Minor, "+"))
	if err != nil {
		return fmt.Errorf("read the cluster's version: %w", err)
	}
	if minor < oldestMinor {
		return fmt.Errorf("the cluster has Kubernetes %s, and the driver needs 1.%d or newer: delete it (kind delete cluster --name %s), "+
			"and use a newer kind, or name a newer node image of it with -image", version.ServerVersion.GitVersion, oldestMinor, d.name)
	}
	return nil
}

// kubeconfig returns the absolute path of the cluster's kubeconfig.
func (d demo) kubeconfig() string {
	path := filepath.Join(d.images, "kind-"+d.name+".kubeconfig")
	if absolute, err := filepath.Abs(path); err == nil {
		return absolute
	}
	return path
}

// do prints a command and runs it on the cluster.
func (d demo) do(ctx context.Context, name string, args ...string) error {
	_, _ = fmt.Fprintf(d.out, "\n==> %s %s\n", filepath.Base(name), strings.Join(args, " "))
	cmd := d.command(ctx, name, args...)
	cmd.Stdout, cmd.Stderr = d.out, d.out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s %s: %w", filepath.Base(name), strings.Join(args, " "), err)
	}
	return nil
}

// output returns the standard output of a command.
func (d demo) output(ctx context.Context, name string, args ...string) (string, error) {
	cmd := d.command(ctx, name, args...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return string(out), nil
}

func (d demo) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	if strings.ContainsRune(name, filepath.Separator) {
		if absolute, err := filepath.Abs(name); err == nil {
			name = absolute
		}
	}
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = d.root
	cmd.Env = append(os.Environ(), "KUBECONFIG="+d.kubeconfig())
	return cmd
}
