// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// DriverName is the driver's name in ResourceSlices and claims.
const DriverName = "gpu.nvidia.com"

// Agent is gpu-kubelet-plugin on the cluster's node, on simulated hardware. It runs
// together with the MPS supervisor, as the Helm chart runs it. It keeps running
// when the program that started it ends, and stops with the cluster.
type Agent struct {
	cluster *Cluster
	dir     string
	model   string
	flags   []string
	// supervised says that the supervisor is a process of the host.
	supervised bool
	// NodeConfigs are the configurations that labels of nodes name.
	NodeConfigs map[string]any
	// MetricsService creates the Service of the agents' metrics.
	MetricsService bool
	// MIGLayouts is a file of mig-parted, of whose layouts configurations name one.
	MIGLayouts string
}

// NewAgent returns an agent for the simulated hardware of a model, with further
// flags of gpu-kubelet-plugin. The model is a name or a file. One agent runs at a
// time; each model has separate hardware.
func (c *Cluster) NewAgent(model string, flags ...string) *Agent {
	name := strings.TrimSuffix(filepath.Base(model), ".yaml")
	return &Agent{cluster: c, dir: filepath.Join(c.StateDir, "agent", name), model: model, flags: flags}
}

// SimDir is the driver root of the simulated node, with its state.
func (a *Agent) SimDir() string { return filepath.Join(a.dir, "sim") }

// Home is the agent's folder on the node, with its records and the CDI hook.
func (a *Agent) Home() string { return filepath.Join(a.cluster.DriverDir(), "agent") }

// Start starts the agent and waits until it says it is ready. An agent that
// runs already is stopped first.
func (a *Agent) Start(ctx context.Context) error {
	if err := a.Launch(ctx); err != nil {
		return err
	}
	return a.WaitReady(ctx)
}

// Launch starts the agent without waiting for anything.
func (a *Agent) Launch(ctx context.Context) error {
	if err := a.Stop(ctx); err != nil {
		return err
	}
	if err := os.MkdirAll(a.dir, 0o755); err != nil {
		return err
	}
	v, err := a.values()
	if err != nil {
		return err
	}
	if err := a.cluster.release(ctx, v, a.dir); err != nil {
		return fmt.Errorf("start the agent: %w", err)
	}
	if a.supervised {
		return a.cluster.remove(ctx, supervisorDaemonSet, "supervisor")
	}
	return nil
}

// Upgrade replaces the running agent with one that has further flags. It does so as
// an update of the chart does, and does not wait.
func (a *Agent) Upgrade(ctx context.Context, flags ...string) error {
	v, err := a.values()
	if err != nil {
		return err
	}
	v.Agent.ExtraArgs = append(v.Agent.ExtraArgs, flags...)
	return a.cluster.release(ctx, v, a.dir)
}

// Values returns the chart's values for this agent as YAML. A caller that installs
// the chart itself adds the names of the images.
func (a *Agent) Values() ([]byte, error) {
	v, err := a.values()
	if err != nil {
		return nil, err
	}
	return yaml.Marshal(v)
}

// values of the chart for this agent.
func (a *Agent) values() (values, error) {
	c := a.cluster
	var v values
	v.Simulation.Model, v.Simulation.Dir = a.model, a.SimDir()
	if strings.HasSuffix(a.model, ".yaml") {
		text, err := os.ReadFile(filepath.Join(c.Root, a.model))
		if err != nil {
			return v, err
		}
		name := filepath.Base(a.model)
		v.Simulation.Model, v.Simulation.Models = name, map[string]string{name: string(text)}
	}
	v.NodeConfigs, v.MIG.Layouts = a.NodeConfigs, a.MIGLayouts
	v.DeviceClasses.Seat.Enabled = true
	v.Monitoring.Service.Enabled = a.MetricsService
	v.CDI.Dir = c.CDIDir
	v.Kubelet.RootDir = filepath.Dir(c.PluginsDir)
	v.Agent.ExtraArgs, v.Agent.Logging.Verbosity = a.flags, 4
	v.Supervisor.RunDir, v.Supervisor.LogDir, v.Supervisor.Logging.Verbosity = a.Supervisor().RunDir(), a.Supervisor().LogDir(), 4
	return v, nil
}

// WaitReady waits until agent and supervisor are ready, and otherwise returns an
// error with their output.
func (a *Agent) WaitReady(ctx context.Context) error {
	nodes := int32(len(a.cluster.Nodes()))
	sets := []string{agentDaemonSet, supervisorDaemonSet}
	if a.supervised {
		sets = sets[:1]
	}
	for _, set := range sets {
		err := Until(ctx, func(ctx context.Context) (bool, string, error) {
			d, err := a.cluster.Client.AppsV1().DaemonSets(Namespace).Get(ctx, set, metav1.GetOptions{})
			if err != nil {
				return false, err.Error(), ignoreNotFound(err)
			}
			s := d.Status
			if s.ObservedGeneration != d.Generation || s.DesiredNumberScheduled != nodes {
				return false, set + " is not looked at yet", nil
			}
			if s.UpdatedNumberScheduled == 0 && d.Spec.UpdateStrategy.Type == appsv1.OnDeleteDaemonSetStrategyType {
				// It is for other hardware, and updated on purpose only.
				_, err := a.cluster.Kubectl(ctx, "delete", "pod", "-n", Namespace, "-l", "app.kubernetes.io/component=supervisor")
				return false, "the supervisor is replaced", err
			}
			return s.NumberReady == nodes && s.UpdatedNumberScheduled == nodes, fmt.Sprintf("%d of %d pods of %s are ready", s.NumberReady, nodes, set), nil
		})
		if err != nil {
			return fmt.Errorf("the release is not ready: %w\n%s", err, a.LogTail(ctx))
		}
	}
	return nil
}

// Stop ends the agent, as the kubelet does, and waits for it. The supervisor and
// its daemons go on.
func (a *Agent) Stop(ctx context.Context) error {
	return a.cluster.remove(ctx, agentDaemonSet, "agent")
}

// Kill ends the agent at once, as a crash does, and keeps it from coming back.
func (a *Agent) Kill(ctx context.Context) error {
	if err := killAll("gpu-kubelet-plugin", "--host-driver-root="+a.SimDir()); err != nil {
		return err
	}
	return a.Stop(ctx)
}

// Leftovers names what the node still holds for claims: CDI files, records, files in the upstream
// helper's metadata folder, processes and partitions on the simulated GPUs.
func (a *Agent) Leftovers(ctx context.Context) ([]string, error) {
	var left []string
	for _, dir := range []string{a.cluster.CDIDir, filepath.Join(a.Home(), "claims"), filepath.Join(a.cluster.DriverDir(), "dra-device-metadata")} {
		err := filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
			if os.IsNotExist(err) {
				return nil
			}
			if err == nil && !entry.IsDir() {
				left = append(left, path)
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	state, err := a.Sim(ctx, "show", "-o", "yaml")
	if err != nil {
		return nil, err
	}
	for _, kind := range []string{"processes:", "instances:"} {
		if strings.Contains(state, kind+"\n") {
			left = append(left, fmt.Sprintf("%s in the simulator:\n%s", kind, state))
		}
	}
	return left, nil
}

// LogTail is the end of the agent's log, for a failure's message.
func (a *Agent) LogTail(ctx context.Context) string {
	var tails []string
	for _, component := range []string{"agent", "supervisor"} {
		out, err := a.cluster.Kubectl(ctx, "logs", "-n", Namespace, "-l", "app.kubernetes.io/component="+component, "--all-containers", "--tail=30")
		if err != nil {
			out = err.Error()
		}
		tails = append(tails, component+":\n"+out)
	}
	return strings.Join(tails, "\n")
}

// Log is all that the agent has logged.
func (a *Agent) Log(ctx context.Context) (string, error) {
	return a.cluster.Kubectl(ctx, "logs", "-n", Namespace, "-l", "app.kubernetes.io/component=agent", "--tail=-1")
}

// Metrics returns the text of the agent's metrics.
func (a *Agent) Metrics(ctx context.Context) (string, error) {
	pod, err := a.cluster.Kubectl(ctx, "get", "pods", "-n", Namespace, "-l", "app.kubernetes.io/component=agent", "-o", "jsonpath={.items[*].metadata.name}")
	if err != nil {
		return "", err
	}
	return a.cluster.Kubectl(ctx, "get", "--raw", "/api/v1/namespaces/"+Namespace+"/pods/"+strings.TrimSpace(pod)+":8080/proxy/metrics")
}

// Sim runs gpu-sim on the agent's hardware and returns its output.
func (a *Agent) Sim(ctx context.Context, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, a.cluster.SimProgram("gpu-sim"), append(args, "--state", a.SimDir())...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("gpu-sim %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return string(out), nil
}
