// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"fmt"
	"slices"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/gpu-dra/gpu-dra-driver/kubectl/doctor"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// rowFlags adds the flags of commands that print rows about nodes.
func (o *options) rowFlags(flags *pflag.FlagSet) {
	flags.StringVarP(&o.selector, "selector", "l", "", "label selector of nodes, such as topology.kubernetes.io/zone=a")
	flags.StringVar(&o.sortBy, "sort-by", "", "`COLUMN` by which the rows are ordered, such as MEMORY")
}

// selectedNodes returns the nodes with the names and the labels of --selector; all nodes
// without both. The error wraps [gpu.ErrNotFound] if a name is not of a node with devices.
func (o *options) selectedNodes(v *view, names []string) ([]fleet.Node, error) {
	nodes := v.Nodes()
	all := fleet.Each(nodes, func(n fleet.Node) string { return n.Name })
	if err := checkNames("node", names, all, "it publishes no devices of "+o.driver); err != nil {
		return nil, err
	}
	isSelected, err := o.nodeSelector(v)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(nodes, func(n fleet.Node) bool {
		return len(names) > 0 && !slices.Contains(names, n.Name) || !isSelected(n.Name)
	}), nil
}

// nodeSelector returns whether --selector selects a node.
func (o *options) nodeSelector(v *view) (func(node string) bool, error) {
	if o.selector == "" {
		return func(string) bool { return true }, nil
	}
	selector, err := labels.Parse(o.selector)
	if err != nil {
		return nil, fmt.Errorf("--selector %s: %w: %w", o.selector, gpu.ErrInvalid, err)
	}
	if v.Refused[doctor.Nodes] != "" {
		return nil, fmt.Errorf("--selector %s: %w: you have no right to list nodes, which have the labels", o.selector, gpu.ErrPermission)
	}
	selected := map[string]bool{}
	for _, node := range v.Objects.Nodes {
		selected[node.Name] = selector.Matches(labels.Set(node.Labels))
	}
	return func(node string) bool { return selected[node] }, nil
}

// checkNames returns an error for the first name that is not among all. It suggests the
// nearest one.
func checkNames(kind string, names, all []string, otherwise string) error {
	for _, name := range names {
		if slices.Contains(all, name) {
			continue
		}
		if near := fleet.Nearest(name, all); len(near) > 0 {
			return fmt.Errorf("%s %s: %w: did you mean %s?", kind, name, gpu.ErrNotFound, near[0])
		}
		return fmt.Errorf("%s %s: %w: %s", kind, name, gpu.ErrNotFound, otherwise)
	}
	return nil
}
