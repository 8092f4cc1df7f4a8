// SPDX-License-Identifier: Apache-2.0

package kubectlgpu

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
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/component-base/version"
	"sigs.k8s.io/yaml"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/doctor"
	"github.com/gpu-dra/gpu-dra-driver/pkg/nodefacts"
)

// Bounds of an archive, so that one can attach it to a bug report.
const (
	mostLogLines  = 5000
	mostLogBytes  = 4 << 20
	mostExplained = 20
)

// leftOut replaces text that may be secret.
const leftOut = "(left out)"

func (o *options) newSysdump() *cobra.Command {
	var to string
	cmd := &cobra.Command{
		Use:   "sysdump",
		Short: "An archive for a bug report: devices, claims, the driver's logs and settings, without secrets",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			now := time.Now()
			if to == "" {
				to = now.UTC().Format("gpu-sysdump-20060102-150405.tar.gz")
			}
			v, err := o.read(cmd.Context())
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
	d.driver(ctx, v)
	d.checks(o.examine(ctx, v.client, v.objects, v.refused, doctor.ChartName, nil))
	d.text("problems.txt", strings.Join(append(v.sentences(), d.problems...), "\n")+"\n")
	return d.problems, errors.Join(d.err, d.tar.Close(), zipped.Close())
}

// dump is an archive that is being written. err is its first error.
type dump struct {
	tar      *tar.Writer
	now      time.Time
	problems []string
	err      error
}

func (d *dump) text(name, content string) {
	if d.err != nil {
		return
	}
	if d.err = d.tar.WriteHeader(&tar.Header{Name: "gpu-sysdump/" + name, Mode: 0o600, Size: int64(len(content)), ModTime: d.now}); d.err == nil {
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
	d.yaml("cluster/resourceslices.yaml", cleaned(v.objects.Slices, func(*resourceapi.ResourceSlice) {}))
	d.yaml("cluster/deviceclasses.yaml", cleaned(v.objects.Classes, func(*resourceapi.DeviceClass) {}))
	d.yaml("cluster/devicetaintrules.yaml", cleaned(v.objects.TaintRules, func(*resourceapi.DeviceTaintRule) {}))
	d.yaml("cluster/resourceclaims.yaml", cleaned(v.objects.Claims, func(c *resourceapi.ResourceClaim) {
		for i := range c.Spec.Devices.Config {
			withoutParameters(v.Driver, c.Spec.Devices.Config[i].Opaque)
		}
		if c.Status.Allocation != nil {
			for i := range c.Status.Allocation.Devices.Config {
				withoutParameters(v.Driver, c.Status.Allocation.Devices.Config[i].Opaque)
			}
		}
	}))
	d.yaml("cluster/nodes.yaml", cleaned(v.objects.Nodes, func(n *corev1.Node) { n.Status.Addresses, n.Status.Images = nil, nil }))
	var pods []*corev1.Pod
	for _, pod := range v.objects.Pods {
		if len(pod.Spec.ResourceClaims) > 0 || extendedClaim(v.Fleet, v.objects, pod) != nil {
			pods = append(pods, pod)
		}
	}
	d.yaml("cluster/pods.yaml", cleaned(pods, withoutProgram))
}

// withoutParameters leaves out the parameters for other drivers, which may be secret.
func withoutParameters(driver string, o *resourceapi.OpaqueDeviceConfiguration) {
	if o != nil && o.Driver != driver {
		o.Parameters.Raw = []byte(`{"parameters": "` + leftOut + `"}`)
	}
}

// withoutProgram reduces a user's pod to the fields that concern devices and scheduling.
func withoutProgram(pod *corev1.Pod) {
	containers := func(all []corev1.Container) []corev1.Container {
		var reduced []corev1.Container
		for _, c := range all {
			reduced = append(reduced, corev1.Container{Name: c.Name, Resources: c.Resources, RestartPolicy: c.RestartPolicy})
		}
		return reduced
	}
	spec := pod.Spec
	pod.Labels = nil
	pod.Spec = corev1.PodSpec{
		InitContainers: containers(spec.InitContainers), Containers: containers(spec.Containers),
		ResourceClaims: spec.ResourceClaims, NodeName: spec.NodeName, NodeSelector: spec.NodeSelector, Affinity: spec.Affinity,
		Tolerations: spec.Tolerations, Priority: spec.Priority, PriorityClassName: spec.PriorityClassName, SchedulerName: spec.SchedulerName,
	}
	pod.Status = corev1.PodStatus{
		Phase: pod.Status.Phase, Conditions: pod.Status.Conditions, Reason: pod.Status.Reason,
		ResourceClaimStatuses: pod.Status.ResourceClaimStatuses, ExtendedResourceClaimStatus: pod.Status.ExtendedResourceClaimStatus,
	}
}

// object is an API object with metadata.
type object[T any] interface {
	*T
	runtime.Object
	metav1.Object
}

// cleaned returns copies of objects without text that may be secret: annotations of others,
// the fields' managers, and what change removes.
func cleaned[T any, P object[T]](all []P, change func(P)) []P {
	copies := []P{}
	for _, o := range all {
		c := o.DeepCopyObject().(P) //nolint:forcetypeassert // a copy has the type of its original
		c.SetManagedFields(nil)
		annotations := c.GetAnnotations()
		for name := range annotations {
			if !strings.HasPrefix(name, v1alpha1.GroupName+"/") {
				delete(annotations, name)
			}
		}
		change(c)
		copies = append(copies, c)
	}
	return copies
}

// addOutput writes the output of the other commands.
func (o *options) addOutput(ctx context.Context, d *dump, v *view) {
	add := func(name string, run func(*options) error) {
		var out bytes.Buffer
		quiet := *o
		quiet.Out, quiet.ErrOut, quiet.output, quiet.colours = &out, io.Discard, "wide", false
		d.problem("print "+name, run(&quiet))
		d.text("output/"+name+".txt", out.String())
	}
	nodes := v.Nodes()
	add("get", func(o *options) error { return o.printGPUs(gpuItems(nodes)) })
	add("who", func(o *options) error { return o.printHolders(holderItems(nodes, metav1.NamespaceAll)) })
	explained := 0
	for _, pod := range v.objects.Pods {
		waits := slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse
		})
		if !waits || explained == mostExplained {
			continue
		}
		if claims, missing := claimsOf(v.Fleet, v.objects, pod); len(claims) == 0 && len(missing) == 0 {
			continue
		}
		explained++
		add("explain-"+pod.Namespace+"-"+pod.Name, func(o *options) error {
			e, err := explainPod(ctx, v.Fleet, v.objects, pod, 3)
			if err == nil {
				err = e.addEvents(ctx, v.client, pod)
			}
			_, _ = io.WriteString(o.Out, e.text())
			return err
		})
	}
}

// driver writes the driver's pods, settings, events and logs.
func (d *dump) driver(ctx context.Context, v *view) {
	var pods []*corev1.Pod
	var namespaces []string
	for _, pod := range v.objects.Pods {
		if pod.Labels[doctor.NameLabel] == doctor.ChartName {
			pods, namespaces = append(pods, pod), append(namespaces, pod.Namespace)
		}
	}
	d.yaml("driver/pods.yaml", cleaned(pods, func(pod *corev1.Pod) {
		for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
			for i := range containers {
				for j := range containers[i].Env {
					if env := &containers[i].Env[j]; env.Value != "" {
						env.Value = leftOut
					}
				}
			}
		}
	}))
	for _, pod := range pods {
		for _, container := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
			d.logs(ctx, v.client, pod, container.Name, false)
			if slices.ContainsFunc(pod.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool { return s.Name == container.Name && s.RestartCount > 0 }) {
				d.logs(ctx, v.client, pod, container.Name, true)
			}
		}
	}
	slices.Sort(namespaces)
	for _, namespace := range slices.Compact(namespaces) {
		events, err := v.client.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{})
		d.problem("list the events of namespace "+namespace, err)
		if err == nil {
			d.yaml("driver/events-"+namespace+".yaml", cleaned(pointers(events.Items), func(*corev1.Event) {}))
		}
		settings, err := v.client.CoreV1().ConfigMaps(namespace).List(ctx, metav1.ListOptions{LabelSelector: ofDriver})
		d.problem("list the configmaps of namespace "+namespace, err)
		if err == nil {
			d.yaml("driver/configmaps-"+namespace+".yaml", cleaned(pointers(settings.Items), func(*corev1.ConfigMap) {}))
		}
	}
}

// checks writes the findings of doctor, and the facts about the nodes.
func (d *dump) checks(c *doctor.Cluster, err error) {
	d.problem("check the cluster", err)
	if err != nil {
		return
	}
	d.yaml("output/doctor.yaml", doctor.Examine(c))
	facts := map[string]*nodefacts.Node{}
	for node, answer := range c.Facts {
		facts[node] = answer.Facts // the findings have the errors
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

func pointers[T any](all []T) []*T {
	var found []*T
	for i := range all {
		found = append(found, &all[i])
	}
	return found
}
