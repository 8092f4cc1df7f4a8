// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/lists"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/rows"
)

// Cluster is a running cluster of test/cluster. The fields with JSON names are
// what `cluster status -o json` prints.
type Cluster struct {
	Name               string `json:"name"`
	NodeName           string `json:"nodeName"`
	KubernetesVersion  string `json:"kubernetesVersion"`
	NodeIP             string `json:"nodeIP"`
	NetNS              string `json:"netns"`
	Kubeconfig         string `json:"kubeconfig"`
	PluginsDir         string `json:"pluginsDir"`
	PluginsRegistryDir string `json:"pluginsRegistryDir"`
	DevicePluginsDir   string `json:"devicePluginsDir"`
	CDIDir             string `json:"cdiDir"`
	// ContainerdSocket is empty with CRI-O.
	ContainerdSocket string `json:"containerdSocket"`
	StateDir         string `json:"stateDir"`
	LogsDir          string `json:"logsDir"`
	BinDir           string `json:"binDir"`

	// Bin is the folder with our own binaries, and Images the folder with the
	// archives of our images.
	Bin    string `json:"-"`
	Images string `json:"-"`
	// References of the images that were loaded, by name.
	References map[string]string `json:"-"`
	// Root is the top of the repository.
	Root   string               `json:"-"`
	Client kubernetes.Interface `json:"-"`
	// Further are the nodes besides the first, each with its own folders and daemons.
	Further []*Cluster `json:"-"`

	config *rest.Config
	// found is what a cluster had that was up before, nil for one that was not.
	found *Baseline
	// ends are what [Main] calls before it takes the cluster down, the last first.
	ends []func(context.Context) error
}

// Program returns the path of a program of ours.
func (c *Cluster) Program(name string) string { return filepath.Join(c.Bin, name) }

// SimProgram returns the path of a program that belongs to the simulated node.
func (c *Cluster) SimProgram(name string) string { return filepath.Join(c.Bin, "sim", name) }

// DriverDir is the driver's folder among those of the kubelet's plugins.
func (c *Cluster) DriverDir() string { return filepath.Join(c.PluginsDir, DriverName) }

// Up brings the named cluster up, or connects to it where it is up already.
// bin is the folder that `make build` fills. Progress goes to standard error.
func Up(ctx context.Context, bin, name string) (*Cluster, error) {
	bin, err := filepath.Abs(bin)
	if err != nil {
		return nil, err
	}
	c := &Cluster{Name: name, Bin: bin, Images: filepath.Join(filepath.Dir(bin), "images")}
	down := c.status(ctx, &struct{}{})
	if err := c.tool(ctx, "up"); err != nil {
		return nil, fmt.Errorf("bring the cluster %s up: %w", name, err)
	}
	if err := c.status(ctx, c); err != nil {
		return nil, err
	}
	if c.Root, err = repositoryRoot(ctx); err != nil {
		return nil, err
	}
	if c.config, err = clientcmd.BuildConfigFromFlags("", c.Kubeconfig); err != nil {
		return nil, fmt.Errorf("connect to the cluster %s: %w", name, err)
	}
	c.config.QPS = -1
	if c.Client, err = kubernetes.NewForConfig(c.config); err != nil {
		return nil, fmt.Errorf("connect to the cluster %s: %w", name, err)
	}
	if down == nil {
		c.found, err = NewBaseline(ctx, c)
	}
	return c, err
}

// AddNodes brings up further nodes until the cluster has that many. It replaces one that is down.
func (c *Cluster) AddNodes(ctx context.Context, count int) error {
	if err := c.tool(ctx, "up", "--nodes", strconv.Itoa(count)); err != nil {
		return fmt.Errorf("add nodes to the cluster %s: %w", c.Name, err)
	}
	c.Further = nil
	for n := 2; n <= count; n++ {
		node := *c
		node.Name, node.Further = fmt.Sprintf("%s.%d", c.Name, n), nil
		if err := node.status(ctx, &node); err != nil {
			return err
		}
		c.Further = append(c.Further, &node)
	}
	return nil
}

// Nodes returns the nodes of the cluster. The first one is the cluster itself.
func (c *Cluster) Nodes() []*Cluster { return append([]*Cluster{c}, c.Further...) }

// status reads what the cluster's tool prints of a healthy node into a pointer.
func (c *Cluster) status(ctx context.Context, into any) error {
	out, err := exec.CommandContext(ctx, filepath.Join(c.Bin, "cluster"), "status", "--name", c.Name, "-o", "json").Output()
	if err == nil {
		err = json.Unmarshal(out, into)
	}
	if err != nil {
		return fmt.Errorf("describe the cluster %s: %w", c.Name, err)
	}
	return nil
}

// Down takes the cluster down and leaves nothing behind. For a further node it takes down that node.
func (c *Cluster) Down(ctx context.Context) error {
	if err := c.tool(ctx, "down"); err != nil {
		return err
	}
	dirs, err := filepath.Glob(runDirs(c.Name) + "*")
	if err != nil {
		return err
	}
	for _, dir := range dirs {
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
	}
	return nil
}

// Restart restarts a daemon of the node, such as the kubelet, with the pods running.
func (c *Cluster) Restart(ctx context.Context, component string) error {
	return c.tool(ctx, "restart", component)
}

// Kill ends a daemon of the node at once. [Cluster.Restart] starts it again.
func (c *Cluster) Kill(ctx context.Context, component string) error {
	var is struct {
		Components []struct {
			Name string `json:"name"`
			PID  int    `json:"pid"`
		} `json:"components"`
	}
	if err := c.status(ctx, &is); err != nil {
		return err
	}
	for _, found := range is.Components {
		if found.Name == component {
			return syscall.Kill(found.PID, syscall.SIGKILL)
		}
	}
	return fmt.Errorf("kill %s: the node %s has no such daemon", component, c.Name)
}

// tool runs the cluster's own tool.
func (c *Cluster) tool(ctx context.Context, args ...string) error {
	return run(ctx, filepath.Join(c.Bin, "cluster"), append([]string{"--name", c.Name}, args...)...)
}

// Kubectl runs kubectl on the cluster and returns its output. Paths are relative to
// the top of the repository.
func (c *Cluster) Kubectl(ctx context.Context, args ...string) (string, error) {
	return c.KubectlInput(ctx, "", args...)
}

// KubectlInput runs kubectl as [Cluster.Kubectl] does, with input to read from.
func (c *Cluster) KubectlInput(ctx context.Context, input string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(c.BinDir, "kubectl"), append([]string{"--kubeconfig", c.Kubeconfig}, args...)...)
	cmd.Dir, cmd.Stdin = c.Root, strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return string(out), nil
}

// GPU runs kubectl gpu and returns its output.
func (c *Cluster) GPU(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(c.Bin, "kubectl-gpu"), append([]string{"--kubeconfig", c.Kubeconfig}, args...)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("kubectl gpu %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return string(out), nil
}

// GPUs returns the GPUs of the node and their claims.
func (c *Cluster) GPUs(ctx context.Context) ([]fleet.GPU, error) {
	found, err := ReadFleet(ctx, c.Client, DriverName)
	if err != nil {
		return nil, err
	}
	var all []fleet.GPU
	for _, node := range found.Nodes() {
		all = append(all, node.GPUs...)
	}
	return all, nil
}

// ReadFleet returns the fleet of a cluster, as kubectl gpu reads it. It fails if the client may not
// read all of it.
func ReadFleet(ctx context.Context, client kubernetes.Interface, driver string) (*fleet.Fleet, error) {
	objects, _, err := lists.Objects(ctx, client, metav1.NamespaceAll, lists.All...)
	if err != nil {
		return nil, err
	}
	return rows.New(objects, driver, nil).Fleet, nil
}

func run(ctx context.Context, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	// An interrupt reaches the child from the terminal too; let it clean up.
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = time.Minute
	return cmd.Run()
}

func repositoryRoot(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return "", fmt.Errorf("find the top of the repository: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}
