// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/pager"
	"k8s.io/component-base/version"
	"sigs.k8s.io/yaml"

	agentv1 "github.com/gpu-dra/gpu-dra-driver/api/agent/v1"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/commands/internal/plain"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/doctor"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/lists"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/rows"
)

// Bounds of an archive, so that one can attach it to a bug report.
const (
	mostLogLines  = 5000
	mostLogBytes  = 4 << 20
	mostExplained = 20
	// explainedFor is the limit of each explanation.
	explainedFor = 5 * time.Second
)

func (o *options) newSysdump() *cobra.Command {
	var to string
	cmd := &cobra.Command{
		Use: "sysdump",
		Example: `  # An archive for a bug report
  kubectl gpu sysdump --to dump.tar.gz`,
		Short: "An archive for a bug report: devices, claims, the driver's logs and settings, without secrets",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			now := time.Now()
			if to == "" {
				to = now.UTC().Format("gpu-sysdump-20060102-150405.tar.gz")
			}
			v, err := o.readWithSlices(cmd.Context())
			if err != nil {
				return err
			}
			file, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600) //nolint:gosec // the user names it
			if err != nil {
				return err
			}
			problems, err := o.sysdump(cmd.Context(), v, file, now)
			if err = errors.Join(err, file.Close()); err != nil {
				return errors.Join(err, os.Remove(to))
			}
			for _, problem := range problems {
				fmt.Fprintln(o.ErrOut, problem) //nolint:errcheck // there is no other place to say so
			}
			_, err = fmt.Fprintf(o.Out, "%s\nRead it before you publish it: it has names of namespaces, pods, claims and nodes, and the logs of the driver.\n", to)
			return err
		},
	}
	cmd.Flags().StringVar(&to, "to", "", "name of the archive (default: gpu-sysdump-TIME.tar.gz)")
	return cmd
}

// sysdump writes the archive. It returns a sentence for each part that it cannot read.
func (o *options) sysdump(ctx context.Context, v *view, w io.Writer, now time.Time) ([]string, error) {
	zipped := gzip.NewWriter(w)
	d := &dump{tar: tar.NewWriter(zipped), now: now}
	d.versions(v.client)
	d.cluster(v)
	o.addOutput(ctx, d, v)
	c, err := o.examine(ctx, v.client, v.Objects, v.Refused, nil)
	d.problem("check the cluster", err)
	if err == nil {
		d.driver(ctx, v, o.driverNamespaces(c))
		d.checks(c)
	}
	d.text("problems.txt", strings.Join(append(v.Sentences(), d.problems...), "\n")+"\n")
	return d.problems, errors.Join(d.err, d.tar.Close(), zipped.Close())
}

// dump is an archive that is being written. err is its first error.
type dump struct {
	tar      *tar.Writer
	now      time.Time
	problems []string
	err      error
}

// text adds a file. Its reader may print it to a terminal.
func (d *dump) text(name, content string) {
	if d.err != nil {
		return
	}
	name, content = plain.Line(name), plain.Text(content)
	d.err = d.tar.WriteHeader(&tar.Header{Name: "gpu-sysdump/" + name, Mode: 0o600, Size: int64(len(content)), ModTime: d.now})
	if d.err == nil {
		_, d.err = io.WriteString(d.tar, content)
	}
}

func (d *dump) yaml(name string, value any) {
	text, err := yaml.Marshal(value)
	d.problem("write "+name, err)
	d.text(name, string(text))
}

func (d *dump) problem(what string, err error) {
	if err != nil {
		d.problems = append(d.problems, fmt.Sprintf("Cannot %s: %v.", what, err))
	}
}

func (d *dump) versions(client kubernetes.Interface) {
	server, err := client.Discovery().ServerVersion()
	d.problem("read the version of the API server", err)
	d.yaml("versions.yaml", map[string]any{"kubectlGPU": version.Get().GitVersion, "server": server, "time": d.now.UTC().Format(time.RFC3339)})
}

// cluster writes the objects of the cluster that concern devices.
func (d *dump) cluster(v *view) {
	d.yaml("cluster/resourceslices.yaml", cleaned(v.Driver, v.Objects.Slices, keepAll))
	d.yaml("cluster/deviceclasses.yaml", cleaned(v.Driver, v.Objects.Classes, keepAll))
	d.yaml("cluster/devicetaintrules.yaml", cleaned(v.Driver, v.Objects.TaintRules, keepAll))
	d.yaml("cluster/resourceclaims.yaml", cleaned(v.Driver, v.Objects.Claims, reduceClaim))
	d.yaml("cluster/nodes.yaml", cleaned(v.Driver, v.Objects.Nodes, reduceNode))
	pods := slices.DeleteFunc(slices.Clone(v.Objects.Pods), func(pod *corev1.Pod) bool { return !v.HasClaims(pod) })
	d.yaml("cluster/pods.yaml", cleaned(v.Driver, pods, reducePod))
}

// addOutput writes the output of the other commands.
func (o *options) addOutput(ctx context.Context, d *dump, v *view) {
	add := func(name string, run func(*options) error) {
		var out bytes.Buffer
		quiet := *o
		quiet.Out, quiet.ErrOut, quiet.output, quiet.width = &out, io.Discard, "wide", func() int { return 0 }
		err := run(&quiet)
		if empty := emptyError(""); errors.As(err, &empty) {
			out.WriteString(string(empty) + "\n")
			err = nil
		}
		d.problem("print "+name, err)
		d.text("output/"+name+".txt", out.String())
	}
	d.problem("read the driver's pods", o.addAgents(ctx, v))
	nodes := v.Nodes()
	add("get", func(o *options) error { return o.printGPUs(v.GPUs(nodes, nil), nil) })
	add("who", func(o *options) error {
		return o.printHolders(v.Holders(nodes, metav1.NamespaceAll, nil), nil, o.noHolders(v, nodes, metav1.NamespaceAll))
	})
	explained := 0
	for _, pod := range v.Objects.Pods {
		if !rows.Waits(pod) || explained == mostExplained {
			continue
		}
		if claims, missing := v.ClaimsOf(pod); len(claims) == 0 && len(missing) == 0 {
			continue
		}
		explained++
		add("explain-"+pod.Namespace+"-"+pod.Name, func(o *options) error {
			q := rows.Question{Namespace: pod.Namespace, Name: "pod/" + pod.Name, Nodes: 3, Limit: explainedFor}
			evidence, err := o.evidence(ctx, v, q)
			if err != nil {
				return err
			}
			e, err := v.Explain(ctx, q, evidence)
			_, _ = io.WriteString(o.Out, textOf(e.Sections(true)))
			return err
		})
	}
}

// driver writes the driver's pods, settings, events and logs in its namespaces.
func (d *dump) driver(ctx context.Context, v *view, namespaces []string) {
	pods := slices.DeleteFunc(slices.Clone(v.Objects.Pods), func(pod *corev1.Pod) bool {
		return pod.Labels[doctor.NameLabel] != doctor.ChartName || !slices.Contains(namespaces, pod.Namespace)
	})
	d.yaml("driver/pods.yaml", cleaned(v.Driver, pods, reduceDriverPod))
	for _, pod := range pods {
		statuses := slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses)
		for _, container := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
			d.logs(ctx, v.client, pod, container.Name, false)
			if slices.ContainsFunc(statuses, func(s corev1.ContainerStatus) bool { return s.Name == container.Name && s.RestartCount > 0 }) {
				d.logs(ctx, v.client, pod, container.Name, true)
			}
		}
	}
	for _, namespace := range namespaces {
		addList(ctx, d, "events", namespace, lists.Of(v.client.CoreV1().Events(namespace).List), v.Driver, keepAll[corev1.Event])
		addList(ctx, d, "configmaps", namespace, selected(v.client.CoreV1().ConfigMaps(namespace).List), v.Driver, reduceConfigMap)
	}
}

// addList writes the objects of a namespace.
func addList[T any, P object[T]](ctx context.Context, d *dump, kind, namespace string, list pager.ListPageFunc, driver string, reduce func(P)) {
	var all []P
	err := lists.Into(ctx, &all, list)
	d.problem("list the "+kind+" of namespace "+namespace, err)
	if err == nil {
		d.yaml("driver/"+kind+"-"+namespace+".yaml", cleaned(driver, all, reduce))
	}
}

// checks writes the findings of doctor, and the facts about the nodes.
func (d *dump) checks(c *doctor.Cluster) {
	d.yaml("output/doctor.yaml", doctor.Examine(c))
	facts := map[string]*agentv1.Node{}
	for node, answer := range c.Facts {
		facts[node] = answer.Value // the findings have the errors
	}
	d.yaml("cluster/nodefacts.yaml", facts)
}

// logs writes the end of the log of a container, or of its run before the last restart.
func (d *dump) logs(ctx context.Context, client kubernetes.Interface, pod *corev1.Pod, container string, previous bool) {
	name := fmt.Sprintf("driver/logs/%s-%s", pod.Name, container)
	if previous {
		name += "-previous"
	}
	text, err := client.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{
		Container: container, Previous: previous, TailLines: new(int64(mostLogLines)), LimitBytes: new(int64(mostLogBytes)),
	}).DoRaw(ctx)
	d.problem("read the log "+name, err)
	d.text(name+".log", string(text))
}
