// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// ApplyInTurn applies the objects of a manifest one after the other. It waits after
// each pod until that pod has started or been refused. The scheduler of Kubernetes
// 1.37 counts what a claim takes of a device twice for the moment in which it is
// bound, so of pods that fill a GPU to the last byte at once, one may be refused or
// sent to the next GPU. namespace is for objects that name none.
func (c *Cluster) ApplyInTurn(ctx context.Context, namespace, path string) error {
	text, err := os.ReadFile(filepath.Join(c.Root, path))
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "in-turn-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a folder of our own
	file := filepath.Join(dir, "object.yaml")
	for _, document := range strings.Split(string(text), "\n---\n") {
		var object metav1.PartialObjectMetadata
		if err := yaml.Unmarshal([]byte(document), &object); err != nil {
			return err
		}
		if err := os.WriteFile(file, []byte(document), 0o600); err != nil {
			return err
		}
		args := []string{"apply", "-f", file}
		if object.Namespace == "" && namespace != "" {
			args = append(args, "-n", namespace)
			object.Namespace = namespace
		}
		if _, err := c.Kubectl(ctx, args...); err != nil {
			return err
		}
		if object.Kind != "Pod" {
			continue
		}
		if err := c.waitTried(ctx, object.Namespace, object.Name); err != nil {
			return err
		}
	}
	return nil
}

// waitTried waits until a pod is ready, or the scheduler has refused it.
func (c *Cluster) waitTried(ctx context.Context, namespace, name string) error {
	return Until(ctx, func(ctx context.Context) (bool, string, error) {
		pod, err := c.Client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, err.Error(), ignoreNotFound(err)
		}
		_, refused := refusal(pod)
		return refused || isReady(pod), c.why(ctx, pod), nil
	})
}
