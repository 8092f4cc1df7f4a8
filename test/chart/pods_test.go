// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

func TestNodesAreChosenByAnyLabelAndExcludedByAny(t *testing.T) {
	r := mustRender(t, cluster{}, "nodes: {withAnyLabel: [a=1, b/c], withoutLabels: [d, e=2]}")
	for _, name := range []string{"gpu-dra-driver-agent", "gpu-dra-driver-supervisor"} {
		terms := find[appsv1.DaemonSet](t, r, "DaemonSet", name).Spec.Template.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
		var got []string
		for _, term := range terms {
			var all []string
			for _, e := range term.MatchExpressions {
				all = append(all, strings.TrimSpace(e.Key+" "+string(e.Operator)+" "+strings.Join(e.Values, ",")))
			}
			got = append(got, strings.Join(all, "; "))
		}
		want := []string{"a In 1; d DoesNotExist; e NotIn 2", "b/c Exists; d DoesNotExist; e NotIn 2"}
		if !slices.Equal(got, want) {
			t.Errorf("%s: nodes are %q, want %q", name, got, want)
		}
	}
}

// argsOf returns a container's arguments; the last one of a name wins.
func argsOf(c corev1.Container) map[string]string {
	args := map[string]string{}
	for _, arg := range c.Args {
		name, value, _ := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
		args[name] = value
	}
	return args
}

// hostPath returns the node's path of a path in the first container. It returns ""
// if the path is the container's own.
func hostPath(t *testing.T, set *appsv1.DaemonSet, path string) string {
	t.Helper()
	pod := set.Spec.Template.Spec
	var best corev1.VolumeMount
	for _, m := range pod.Containers[0].VolumeMounts {
		if (path == m.MountPath || strings.HasPrefix(path, m.MountPath+"/")) && len(m.MountPath) > len(best.MountPath) {
			best = m
		}
	}
	for _, v := range pod.Volumes {
		if v.Name == best.Name && v.HostPath != nil {
			return filepath.Join(v.HostPath.Path, strings.TrimPrefix(path, best.MountPath))
		}
	}
	return ""
}

func kindOf(t *testing.T, manifest string) string {
	t.Helper()
	var head struct{ Kind string }
	must(t, yaml.Unmarshal([]byte(manifest), &head))
	return head.Kind
}
