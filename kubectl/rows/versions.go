// SPDX-License-Identifier: Apache-2.0

package rows

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/gpu-dra/gpu-dra-driver/kubectl/doctor"
)

// Version is the version of a part of the driver, in JSON and YAML.
type Version struct {
	// Component is "client", "server", "chart", "agent" or "supervisor".
	Component string `json:"component"`
	Version   string `json:"version"`
	// Namespace of the driver; empty for client and server.
	Namespace string `json:"namespace,omitempty"`
	// Pods is the number of agents or supervisors with the version.
	Pods int `json:"pods,omitempty"`
}

const (
	componentChart = "chart"
	// chartLabel is the label of a chart's objects with its name and version.
	chartLabel = "helm.sh/chart"
)

// Versions returns the versions of the chart and of the driver's pods, each once.
func Versions(d *doctor.Cluster) []Version {
	numbers := map[Version]int{}
	for _, set := range d.DaemonSets {
		if chart := set.Labels[chartLabel]; chart != "" {
			numbers[Version{Component: componentChart, Version: strings.TrimPrefix(chart, doctor.ChartName+"-"), Namespace: set.Namespace}] = 0
		}
	}
	for component, pods := range map[string][]*corev1.Pod{doctor.AgentComponent: d.Agents, doctor.SupervisorComponent: d.Supervisors} {
		for _, pod := range pods {
			numbers[Version{Component: component, Version: imageVersion(pod), Namespace: pod.Namespace}]++
		}
	}
	var rows []Version
	for v, n := range numbers {
		v.Pods = n
		rows = append(rows, v)
	}
	order := []string{componentChart, doctor.AgentComponent, doctor.SupervisorComponent}
	slices.SortFunc(rows, func(a, b Version) int {
		return cmp.Or(cmp.Compare(slices.Index(order, a.Component), slices.Index(order, b.Component)), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Version, b.Version))
	})
	return rows
}

// imageVersion returns the tag of a pod's image, or the whole name of an image without one.
func imageVersion(pod *corev1.Pod) string {
	if len(pod.Spec.Containers) == 0 {
		return "-"
	}
	image := pod.Spec.Containers[0].Image
	name, _, _ := strings.Cut(image, "@")
	if i := strings.LastIndex(name, ":"); i > strings.LastIndex(name, "/") {
		return name[i+1:]
	}
	return image
}
