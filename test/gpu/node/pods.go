// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// pod is a pod of a story.
type pod struct {
	name string
	// claim is a template, or empty.
	claim string
	user  int
	steps []string
	// command is run in place of the workload, with the steps, and has these folders of the machine at its paths.
	command []string
	machine map[string]string
	// shm is the size of the pod's own /dev/shm, or empty.
	shm string
}

// template creates a template of claims for one device and returns its name.
func (n *node) template(ctx context.Context, class, memory, compute, config string) (string, error) {
	n.claims++
	name := fmt.Sprintf("c%d", n.claims)
	var amounts []string
	if memory != "" {
		amounts = append(amounts, fmt.Sprintf("%q: %q", "memory", memory))
	}
	if compute != "" {
		amounts = append(amounts, fmt.Sprintf("%q: %q", "compute", compute))
	}
	text := fmt.Sprintf(`{"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "metadata": {"name": %q}, "spec": {"spec": {"devices": {
"requests": [{"name": "gpu", "exactly": {"deviceClassName": %q, "capacity": {"requests": {%s}}}}]`, name, class, strings.Join(amounts, ", "))
	if config != "" {
		text += fmt.Sprintf(`, "config": [{"opaque": {"driver": "gpu.nvidia.com", "parameters": {"apiVersion": "gpu.nvidia.com/v1alpha1", %s}}}]`, config)
	}
	_, err := n.kubectl(ctx, text+"}}}}", "--namespace", namespace, "create", "--filename", "-")
	return name, err
}

// claim starts a pod with a device of a class.
func (n *node) claim(ctx context.Context, p pod, class, memory, compute string) (err error) {
	if p.claim, err = n.template(ctx, class, memory, compute, ""); err != nil {
		return err
	}
	return n.start(ctx, p)
}

func (n *node) start(ctx context.Context, pods ...pod) error {
	if err := os.MkdirAll(barrierDir, 0o755); err != nil {
		return err
	}
	var list []string
	for _, p := range pods {
		container := map[string]any{
			"name": "main", "image": workloadImage, "imagePullPolicy": "Never", "args": p.steps,
			"volumeMounts": []any{map[string]any{"name": "barriers", "mountPath": "/barriers"}},
		}
		volumes := []any{map[string]any{"name": "barriers", "hostPath": map[string]any{"path": barrierDir}}}
		spec := map[string]any{"restartPolicy": "Never", "terminationGracePeriodSeconds": 1}
		if p.claim != "" {
			spec["resourceClaims"] = []any{map[string]any{"name": "gpu", "resourceClaimTemplateName": p.claim}}
			container["resources"] = map[string]any{"claims": []any{map[string]any{"name": "gpu"}}}
		}
		if p.user != 0 {
			container["securityContext"] = map[string]any{"runAsUser": p.user}
		}
		if p.command != nil {
			container["command"] = p.command
		}
		for i, path := range slices.Sorted(maps.Keys(p.machine)) {
			name := fmt.Sprintf("machine-%d", i)
			container["volumeMounts"] = append(container["volumeMounts"].([]any), map[string]any{"name": name, "mountPath": path})
			volumes = append(volumes, map[string]any{"name": name, "hostPath": map[string]any{"path": p.machine[path]}})
		}
		if p.shm != "" {
			container["volumeMounts"] = append(container["volumeMounts"].([]any), map[string]any{"name": "shm", "mountPath": "/dev/shm"})
			volumes = append(volumes, map[string]any{"name": "shm", "emptyDir": map[string]any{"medium": "Memory", "sizeLimit": p.shm}})
		}
		spec["containers"], spec["volumes"] = []any{container}, volumes
		text, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": p.name}, "spec": spec})
		if err != nil {
			return err
		}
		list = append(list, string(text))
	}
	_, err := n.kubectl(ctx, strings.Join(list, "\n"), "--namespace", namespace, "create", "--filename", "-")
	return err
}

// many starts equal pods of the workload with a claim each. steps gets the folder of a barrier.
func (n *node) many(ctx context.Context, name string, count int, steps func(dir string) []string, class, memory, compute, config string) ([]pod, error) {
	return n.manyPods(ctx, name, count, func(dir string) pod { return pod{steps: steps(dir)} }, class, memory, compute, config)
}

// manyPods starts equal pods with a claim each. of gets the folder of a barrier.
func (n *node) manyPods(ctx context.Context, name string, count int, of func(dir string) pod, class, memory, compute, config string) ([]pod, error) {
	dir, err := n.barrier(name)
	if err != nil {
		return nil, err
	}
	claim, err := n.template(ctx, class, memory, compute, config)
	if err != nil {
		return nil, err
	}
	var pods []pod
	for i := range count {
		p := of(dir)
		p.name, p.claim = fmt.Sprintf("%s-%d", name, i), claim
		pods = append(pods, p)
		// One after the other: kube-scheduler 1.37 counts the capacity of a claim twice while it is bound,
		// and a pod that does not fit then waits for minutes.
		if err := n.start(ctx, p); err != nil {
			return nil, err
		}
		if _, err := n.kubectl(ctx, "", "--namespace", namespace, "wait", "--for=condition=PodScheduled", "pod/"+p.name, "--timeout=30s"); err != nil {
			return nil, err
		}
	}
	return pods, nil
}

// barrier makes an empty folder for programs that start together, and returns its path in a pod.
func (n *node) barrier(name string) (string, error) {
	dir := filepath.Join(barrierDir, name)
	if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o755)); err != nil {
		return "", err
	}
	return "/barriers/" + name, os.Chmod(dir, 0o1777)
}

// phases returns the phases of all pods of the stories.
func (n *node) phases(ctx context.Context) (map[string]string, error) {
	out, err := n.kubectl(ctx, "", "--namespace", namespace, "get", "pods", "--output", `jsonpath={range .items[*]}{.metadata.name}={.status.phase}{"\n"}{end}`)
	if err != nil {
		return nil, err
	}
	phases := map[string]string{}
	for line := range strings.Lines(out) {
		name, phase, _ := strings.Cut(strings.TrimSpace(line), "=")
		phases[name] = phase
	}
	return phases, nil
}

// await waits until each pod is in one of the phases.
func (n *node) await(ctx context.Context, limit time.Duration, names []string, wanted ...string) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return n.until(ctx, func() error {
		phases, err := n.phases(ctx)
		for _, name := range names {
			if !slices.Contains(wanted, phases[name]) {
				err = errors.Join(err, fmt.Errorf("pod %s is %s", name, phases[name]))
			}
		}
		return err
	})
}

// step is a line that a workload printed.
type step map[string]any

func (s step) number(key string) float64 { v, _ := s[key].(float64); return v }

// find returns the last line of a kind, or nil.
func find(lines []step, kind string) step {
	for _, s := range slices.Backward(lines) {
		if s["step"] == kind {
			return s
		}
	}
	return nil
}

// finish waits for the end of pods, and returns what each printed.
func (n *node) finish(ctx context.Context, limit time.Duration, pods ...pod) (map[string][]step, error) {
	var names []string
	for _, p := range pods {
		names = append(names, p.name)
	}
	err := n.await(ctx, limit, names, "Succeeded", "Failed")
	results := map[string][]step{}
	for _, name := range names {
		if results[name] = n.lines(ctx, name); results[name] == nil {
			n.show(ctx, "kubectl", "--namespace", namespace, "get", "pod", name, "--output", "jsonpath={.status}")
		}
	}
	return results, err
}

// lines returns the output of a pod so far.
func (n *node) lines(ctx context.Context, name string) []step {
	out, err := n.kubectl(ctx, "", "--namespace", namespace, "logs", name)
	if err != nil {
		n.report.output("logs "+name, err.Error())
	}
	n.report.output("logs "+name, out)
	var lines []step
	for line := range strings.Lines(out) {
		var s step
		if json.Unmarshal([]byte(line), &s) == nil {
			lines = append(lines, s)
		}
	}
	return lines
}

// clean deletes all pods, and waits until no claim is left.
func (n *node) clean(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 90*time.Second)
	defer cancel()
	if _, err := n.kubectl(ctx, "", "--namespace", namespace, "delete", "pods", "--all"); err != nil {
		return err
	}
	return n.until(ctx, func() error {
		out, err := n.kubectl(ctx, "", "--namespace", namespace, "get", "resourceclaims", "--output", "name")
		if err == nil && strings.TrimSpace(out) != "" {
			err = fmt.Errorf("claims are left: %s", strings.Join(strings.Fields(out), " "))
		}
		return err
	})
}
