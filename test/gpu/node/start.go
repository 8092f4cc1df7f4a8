// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// starts measures how long pods take to start without a claim, with a share and with a whole GPU.
func starts(ctx context.Context, n *node) error {
	for _, class := range []string{"", "share.nvidia.com", "gpu.nvidia.com"} {
		if err := n.startTimes(ctx, "ours", class); err != nil {
			return err
		}
	}
	return nil
}

// startTimes starts pods of a class of devices one after the other, and writes how long each took, and the kubelet how
// long the driver took. Both have the two kubectl of a pod.
func (n *node) startTimes(ctx context.Context, driver, class string) error {
	const pods = 3
	before, err := n.prepared(ctx)
	if err != nil {
		return err
	}
	var took []time.Duration
	for i := range pods {
		p := pod{name: fmt.Sprintf("start-%s-%d", driver, i), steps: []string{"idle", "60"}}
		if class != "" {
			memory, compute := "", ""
			if class == "share.nvidia.com" {
				memory, compute = "4Gi", "25"
			}
			if p.claim, err = n.template(ctx, class, memory, compute, ""); err != nil {
				return err
			}
		}
		began := time.Now()
		if err := n.start(ctx, p); err != nil {
			return err
		}
		if _, err := n.kubectl(ctx, "", "--namespace", namespace, "wait", "--for=condition=Ready", "pod/"+p.name, "--timeout=1m"); err != nil {
			return err
		}
		took = append(took, time.Since(began))
		if err := n.clean(ctx); err != nil {
			return err
		}
	}
	after, err := n.prepared(ctx)
	if err != nil {
		return err
	}
	slices.Sort(took)
	text := fmt.Sprintf("%s, pods with %s: ready after %d ms, the slowest of %d after %d", driver, cmp.Or(class, "no claim"), took[pods/2].Milliseconds(), pods, took[pods-1].Milliseconds())
	calls := after.calls - before.calls
	if class != "" {
		text += fmt.Sprintf("; the kubelet waited %.0f ms for the driver in each of %.0f calls", 1000*(after.seconds-before.seconds)/max(calls, 1), calls)
	}
	// The kubelet calls the driver at least once for the claim of each pod.
	n.report.check(class == "" || calls >= pods, "%s", text)
	return nil
}

// calls are the calls of the kubelet that prepared devices of a driver, and their seconds together.
type calls struct{ calls, seconds float64 }

// prepared reads the kubelet's histogram.
func (n *node) prepared(ctx context.Context) (c calls, err error) {
	name, err := n.name(ctx)
	if err != nil {
		return calls{}, err
	}
	out, err := n.kubectl(ctx, "", "get", "--raw", "/api/v1/nodes/"+name+"/proxy/metrics")
	if err != nil {
		return calls{}, err
	}
	for line := range strings.Lines(out) {
		metric, value, _ := strings.Cut(strings.TrimSpace(line), "} ")
		family, labels, _ := strings.Cut(metric, "{")
		if !strings.Contains(labels, "NodePrepareResources") {
			continue
		}
		number, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return calls{}, fmt.Errorf("metrics of the kubelet: %w", err)
		}
		switch family {
		case "dra_grpc_operations_duration_seconds_count":
			c.calls += number
		case "dra_grpc_operations_duration_seconds_sum":
			c.seconds += number
		}
	}
	return c, nil
}

func (n *node) name(ctx context.Context) (string, error) {
	out, err := n.kubectl(ctx, "", "get", "nodes", "--output", "name")
	return strings.TrimPrefix(strings.TrimSpace(out), "node/"), err
}

// other measures NVIDIA's driver in the place of ours, on the same node.
func other(ctx context.Context, n *node) (err error) {
	if n.nvidia == "" {
		n.report.figure("skipped: it needs NVIDIA's gpu-kubelet-plugin (-nvidia PROGRAM)")
		return nil
	}
	name, err := n.name(ctx)
	if err != nil {
		return err
	}
	if _, err := n.kubectl(ctx, "", "--namespace", driverNamespace, "delete", "daemonsets", "--all", "--cascade=foreground"); err != nil {
		return err
	}
	bin := filepath.Join(n.dir, "bin")
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		_, stop := n.program(ctx, "", "cluster", "stop", "--name", clusterName, "--bin", bin, "nvidia")
		_, forget := n.kubectl(ctx, "", "delete", "resourceslices", "--all")
		n.keep(ctx, "nvidia.log", "cat", filepath.Join(stateDir, "nvidia.log"))
		err = errors.Join(err, stop, forget, n.install(ctx, "default"))
	}()
	if _, err := n.kubectl(ctx, "", "delete", "resourceslices", "--all"); err != nil {
		return err
	}
	kubelet := filepath.Join(stateDir, "kubelet")
	if _, err := n.program(ctx, "", "cluster", "start", "--name", clusterName, "--bin", bin, "--log", filepath.Join(stateDir, "nvidia.log"), "nvidia", "--",
		n.nvidia, "--kubeconfig="+filepath.Join(stateDir, "admin.kubeconfig"), "--node-name="+name, "--namespace="+driverNamespace, "--image-name="+workloadImage,
		"--container-driver-root=/", "--nvidia-driver-root=/", "--cdi-root="+filepath.Join(stateDir, "cdi"), "--nvidia-cdi-hook-path="+filepath.Join(bin, "nvidia-cdi-hook"),
		"--kubelet-plugins-directory-path="+filepath.Join(kubelet, "plugins"), "--kubelet-registrar-directory-path="+filepath.Join(kubelet, "plugins_registry")); err != nil {
		return err
	}
	if err := n.published(ctx); err != nil {
		return err
	}
	return n.startTimes(ctx, "nvidia", "gpu.nvidia.com")
}
