// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

const (
	// Namespace of the chart's release, which is named alike.
	Namespace = "gpu-dra-driver"

	chart               = "deployments/helm/gpu-dra-driver"
	agentDaemonSet      = Namespace + "-agent"
	supervisorDaemonSet = Namespace + "-supervisor"
)

// values of the chart that this harness sets.
type values struct {
	Image      *imageValues `json:"image,omitempty"`
	Simulation struct {
		Model  string            `json:"model"`
		Dir    string            `json:"dir"`
		Models map[string]string `json:"models,omitempty"`
	} `json:"simulation"`
	NodeConfigs map[string]any `json:"nodeConfigs,omitempty"`
	MIG         struct {
		Layouts string `json:"layouts"`
	} `json:"mig"`
	CDI struct {
		Dir string `json:"dir"`
	} `json:"cdi"`
	Kubelet struct {
		RootDir string `json:"rootDir"`
	} `json:"kubelet"`
	// DeviceClasses has the class of seats, which the chart's defaults do not have.
	DeviceClasses struct {
		Seat struct {
			Enabled bool `json:"enabled"`
		} `json:"seat"`
	} `json:"deviceClasses"`
	Monitoring struct {
		Service struct {
			Enabled bool `json:"enabled"`
		} `json:"service"`
	} `json:"monitoring"`
	Agent struct {
		ExtraArgs []string `json:"extraArgs,omitempty"`
		Logging   logging  `json:"logging"`
	} `json:"agent"`
	Supervisor struct {
		RunDir  string  `json:"runDir"`
		LogDir  string  `json:"logDir"`
		Logging logging `json:"logging"`
	} `json:"supervisor"`
}

type imageValues struct {
	Registry   string `json:"registry"`
	Tag        string `json:"tag"`
	PullPolicy string `json:"pullPolicy"`
}

type logging struct {
	Verbosity int `json:"verbosity"`
}

// LoadImages loads the images that `make images` has built into the container
// runtime of the node.
func (c *Cluster) LoadImages(ctx context.Context) error {
	images, err := c.images()
	if err != nil {
		return err
	}
	args := []string{"load-image"}
	for _, i := range images {
		args = append(args, filepath.Join(c.Images, i.Archive))
	}
	if err := c.tool(ctx, args...); err != nil {
		return err
	}
	c.References = map[string]string{}
	for _, i := range images {
		c.References[i.Name] = i.Reference
	}
	return nil
}

// LoadProgram loads a static program into the container runtime of the node, as an image
// with that reference. `cluster load-program` has the flags.
func (c *Cluster) LoadProgram(ctx context.Context, program, reference string, flags ...string) error {
	return c.tool(ctx, append([]string{"load-program", program, reference}, flags...)...)
}

// image is an entry of the images.json that `make images` writes.
type image struct{ Name, Reference, Archive string }

func (c *Cluster) images() ([]image, error) {
	text, err := os.ReadFile(filepath.Join(c.Images, "images.json"))
	if err != nil {
		return nil, fmt.Errorf("find the images, which `make images` builds: %w", err)
	}
	var images []image
	if err := json.Unmarshal(text, &images); err != nil || len(images) == 0 {
		return nil, errors.Join(errors.New("find the images: images.json lists none"), err)
	}
	return images, nil
}

// release installs or upgrades the chart, and waits for nothing.
func (c *Cluster) release(ctx context.Context, v values, dir string) error {
	reference := c.References["gpu-kubelet-plugin"]
	colon := strings.LastIndex(reference, ":") // a registry may have a port
	if colon < 0 {
		return errors.New("install the chart: no images are loaded")
	}
	name, tag := reference[:colon], reference[colon+1:]
	v.Image = &imageValues{Registry: filepath.Dir(name), Tag: tag, PullPolicy: "Never"}
	text, err := yaml.Marshal(v)
	if err != nil {
		return err
	}
	file := filepath.Join(dir, "values.yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return err
	}
	// The API server checks every object. For a check of its own Helm reads the schemas of all kinds,
	// which takes as much processor time as the rest; the documents' commands do it.
	_, err = c.Helm(ctx, "upgrade", "--install", "--create-namespace", "--disable-openapi-validation", "--history-max", "2", Namespace, chart, "--values", file)
	return err
}

// Uninstall removes the chart's release and waits until its pods are gone.
func (c *Cluster) Uninstall(ctx context.Context) error {
	if _, err := c.Helm(ctx, "uninstall", "--ignore-not-found", Namespace); err != nil {
		return err
	}
	return c.noPods(ctx, "app.kubernetes.io/name="+Namespace)
}

// Helm runs helm on the cluster and returns its output. Paths are relative to the
// top of the repository.
func (c *Cluster) Helm(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(c.Bin, "helm"), append([]string{"--kubeconfig", c.Kubeconfig, "--namespace", Namespace}, args...)...)
	cmd.Dir = c.Root
	out, err := cmd.CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("helm %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return string(out), nil
}

// noPods waits until the release has no pods with a label any more. A pod may
// take its grace period of half a minute, and the kubelet some time to tell.
func (c *Cluster) noPods(ctx context.Context, label string) error {
	return Until(ctx, func(ctx context.Context) (bool, string, error) {
		pods, err := c.Client.CoreV1().Pods(Namespace).List(ctx, metav1.ListOptions{LabelSelector: label})
		if err != nil {
			return false, "", err
		}
		var left []string
		for _, pod := range pods.Items {
			left = append(left, fmt.Sprintf("%s (%s, deleted at %v, containers %+v)", pod.Name, pod.Status.Phase, pod.DeletionTimestamp, pod.Status.ContainerStatuses))
		}
		return len(left) == 0, fmt.Sprintf("pods with the label %s are left: %s", label, strings.Join(left, "; ")), nil
	})
}

// remove deletes a DaemonSet of the release with its pods, and waits.
func (c *Cluster) remove(ctx context.Context, daemonSet, component string) error {
	if _, err := c.Kubectl(ctx, "delete", "daemonset", "--ignore-not-found", "--wait=false", "-n", Namespace, daemonSet); err != nil {
		return err
	}
	return c.noPods(ctx, "app.kubernetes.io/component="+component)
}
