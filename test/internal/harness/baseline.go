// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// baselineKinds are the kinds without a namespace that tests and documents create.
// ResourceSlices, which no cluster has at first, are not among them.
const baselineKinds = "nodes,namespaces,deviceclasses,devicetaintrules,validatingadmissionpolicies,validatingadmissionpolicybindings," +
	"mutatingadmissionpolicies,mutatingadmissionpolicybindings,clusterroles,clusterrolebindings"

// Baseline is what a cluster had at one time, to which it can be brought back.
type Baseline struct {
	cluster             *Cluster
	objects             map[string]bool   // by the name that kubectl prints
	labels, annotations map[string]string // of the node
}

// NewBaseline notes what the cluster has.
func NewBaseline(ctx context.Context, c *Cluster) (*Baseline, error) {
	b := &Baseline{cluster: c, objects: map[string]bool{}}
	names, err := b.names(ctx)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		b.objects[name] = true
	}
	node, err := c.Client.CoreV1().Nodes().Get(ctx, c.NodeName, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	b.labels, b.annotations = node.Labels, node.Annotations
	return b, nil
}

func (b *Baseline) names(ctx context.Context) ([]string, error) {
	out, err := b.cluster.Kubectl(ctx, "get", baselineKinds, "--output", "name")
	return strings.Fields(out), err
}

// Restore removes the objects that are newer. If the driver did not run when the baseline was
// noted, it ends the driver, the simulated hardware and the drivers of other devices too.
func (b *Baseline) Restore(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*patience)
	defer cancel()
	if err := b.restore(ctx); err != nil {
		return fmt.Errorf("restore the cluster %s: %w", b.cluster.Name, err)
	}
	return nil
}

// restore removes the driver after the pods that use GPUs, which cannot end
// without it.
func (b *Baseline) restore(ctx context.Context) error {
	names, err := b.names(ctx)
	if err != nil {
		return err
	}
	left := slices.DeleteFunc(names, func(name string) bool { return b.objects[name] })
	if err := b.removePods(ctx, left); err != nil {
		return err
	}
	if !b.hasDriver() {
		if err := b.removeDriver(ctx); err != nil {
			return err
		}
	}
	if len(left) > 0 {
		if _, err := b.cluster.Kubectl(ctx, append([]string{"delete", "--ignore-not-found"}, left...)...); err != nil {
			return err
		}
	}
	return b.restoreNode(ctx)
}

func (b *Baseline) hasDriver() bool { return b.objects["namespace/"+Namespace] }

// removePods removes the default namespace's pods, and all namespaces among names but the driver's.
func (b *Baseline) removePods(ctx context.Context, names []string) error {
	for _, name := range names {
		namespace, is := strings.CutPrefix(name, "namespace/")
		if !is || namespace == Namespace {
			continue
		}
		if err := b.cluster.DeleteNamespace(ctx, namespace); err != nil {
			return err
		}
	}
	return b.cluster.EmptyNamespace(ctx, metav1.NamespaceDefault)
}

func (b *Baseline) removeDriver(ctx context.Context) error {
	if err := b.cluster.Uninstall(ctx); err != nil {
		return err
	}
	for _, program := range []string{driverProgram, secondDriverProgram} {
		if err := b.cluster.tool(ctx, "stop", program); err != nil {
			return err
		}
	}
	// The kubelet deletes them only half a minute later.
	_, err := b.cluster.Kubectl(ctx, "delete", "resourceslices", "--all")
	return err
}

func (b *Baseline) restoreNode(ctx context.Context) error {
	node, err := b.cluster.Client.CoreV1().Nodes().Get(ctx, b.cluster.NodeName, metav1.GetOptions{})
	if err != nil {
		return err
	}
	for _, of := range []struct {
		command     string
		now, before map[string]string
	}{{"label", node.Labels, b.labels}, {"annotate", node.Annotations, b.annotations}} {
		for _, key := range slices.Sorted(maps.Keys(of.now)) {
			if _, was := of.before[key]; was {
				continue
			}
			if _, err := b.cluster.Kubectl(ctx, of.command, "node", b.cluster.NodeName, key+"-"); err != nil {
				return err
			}
		}
	}
	_, err = b.cluster.Kubectl(ctx, "uncordon", b.cluster.NodeName)
	return err
}
