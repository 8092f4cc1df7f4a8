// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// Paths that others on the node read must mean the same inside and outside.
func TestWhatThePodsShareWithTheNodeIsMountedWhereTheNodeHasIt(t *testing.T) {
	shared := map[string][]string{
		"gpu-dra-driver-agent":      {"kubelet-plugins-dir", "kubelet-registry-dir", "cdi-dir", "mps-supervisor", "sim-state"},
		"gpu-dra-driver-supervisor": {"socket", "run-dir", "log-dir", "sim-state"},
	}
	for _, values := range []string{"default.yaml", "every-value.yaml", "sim.yaml"} {
		r := mustRender(t, cluster{}, valuesFile(t, values))
		for name, flags := range shared {
			set := find[appsv1.DaemonSet](t, r, "DaemonSet", name)
			args := argsOf(set.Spec.Template.Spec.Containers[0])
			for _, flag := range flags {
				path, ok := args[flag]
				if !ok {
					continue
				}
				if got := hostPath(t, set, path); got != path {
					t.Errorf("%s: %s: --%s=%s is %q on the node", values, name, flag, path, got)
				}
			}
		}
	}
}

func TestAgentsOverlapWhenUpdatedAndSupervisorsAreLeftAlone(t *testing.T) {
	r := mustRender(t, cluster{}, "")
	agent := find[appsv1.DaemonSet](t, r, "DaemonSet", "gpu-dra-driver-agent").Spec
	update := agent.UpdateStrategy
	if update.Type != appsv1.RollingUpdateDaemonSetStrategyType || update.RollingUpdate.MaxSurge.IntValue() != 1 || update.RollingUpdate.MaxUnavailable.IntValue() != 0 {
		t.Errorf("agents are updated by %+v", update)
	}
	for _, port := range agent.Template.Spec.Containers[0].Ports {
		if port.HostPort != 0 || agent.Template.Spec.HostNetwork {
			t.Error("two agents on a node would want the same port of it")
		}
	}
	if argsOf(agent.Template.Spec.Containers[0])["pod-uid"] != "$(POD_UID)" {
		t.Error("two agents on a node would want the same socket")
	}
	supervisor := find[appsv1.DaemonSet](t, r, "DaemonSet", "gpu-dra-driver-supervisor").Spec
	if supervisor.UpdateStrategy.Type != appsv1.OnDeleteDaemonSetStrategyType {
		t.Errorf("supervisors are updated by %s", supervisor.UpdateStrategy.Type)
	}
	if supervisor.Template.Spec.Containers[0].LivenessProbe != nil {
		t.Error("the kubelet may restart a supervisor")
	}
	// A new release of the chart alone must not change them.
	for key, value := range supervisor.Template.Labels {
		if strings.Contains(value, "0.1.0") {
			t.Errorf("the pods' label %s=%s changes with the chart", key, value)
		}
	}
}

func TestPodsHaveTheLeastTheyCanDoWith(t *testing.T) {
	real := mustRender(t, cluster{}, "")
	simulated := mustRender(t, cluster{}, "hardware: sim:dgx-h100")
	for name, r := range map[string]rendered{"real": real, "simulated": simulated} {
		supervisor := find[appsv1.DaemonSet](t, r, "DaemonSet", "gpu-dra-driver-supervisor").Spec.Template.Spec
		account := find[corev1.ServiceAccount](t, r, "ServiceAccount", "gpu-dra-driver-supervisor")
		if on := supervisor.AutomountServiceAccountToken; on == nil || *on {
			t.Errorf("%s: the supervisor's pod has a token of the API server", name)
		}
		if on := account.AutomountServiceAccountToken; on == nil || *on {
			t.Errorf("%s: pods of the supervisor's account have a token of the API server", name)
		}
		if supervisor.ServiceAccountName != account.Name {
			t.Errorf("%s: the supervisor's account is %s", name, supervisor.ServiceAccountName)
		}
		for _, m := range r.manifests {
			if kind := kindOf(t, m); strings.Contains(kind, "Role") && strings.Contains(m, "supervisor") {
				t.Errorf("%s: a %s speaks of the supervisor", name, kind)
			}
		}
		for _, set := range []string{"gpu-dra-driver-agent", "gpu-dra-driver-supervisor"} {
			pod := find[appsv1.DaemonSet](t, r, "DaemonSet", set).Spec.Template.Spec
			for _, c := range slices.Concat(pod.Containers, pod.InitContainers) {
				s := c.SecurityContext
				if s.ReadOnlyRootFilesystem == nil || !*s.ReadOnlyRootFilesystem {
					t.Errorf("%s: container %s can write to its image", name, c.Name)
				}
				privileged := s.Privileged != nil && *s.Privileged
				if privileged != (name == "real") {
					t.Errorf("%s: container %s: privileged is %v", name, c.Name, privileged)
				}
				if !privileged && (len(s.Capabilities.Drop) != 1 || s.Capabilities.Drop[0] != "ALL") {
					t.Errorf("%s: container %s drops %v", name, c.Name, s.Capabilities.Drop)
				}
			}
		}
	}
}

// Without a GPU on the nodes there is nothing of the node's to ask for.
func TestSimulatedGPUsNeedNoLabelsOfNodesAndNoneOfTheirFiles(t *testing.T) {
	r := mustRender(t, cluster{}, valuesFile(t, "sim.yaml"))
	for _, name := range []string{"gpu-dra-driver-agent", "gpu-dra-driver-supervisor"} {
		pod := find[appsv1.DaemonSet](t, r, "DaemonSet", name).Spec.Template.Spec
		if pod.Affinity != nil || pod.NodeSelector["pool"] != "trial" || len(pod.Tolerations) != 0 {
			t.Errorf("%s runs on nodes with %v, %v and taints %v", name, pod.NodeSelector, pod.Affinity, pod.Tolerations)
		}
		for _, v := range pod.Volumes {
			if v.HostPath != nil && (v.HostPath.Path == "/" || v.HostPath.Path == "/dev") {
				t.Errorf("%s sees %s of the node", name, v.HostPath.Path)
			}
		}
		if image := pod.Containers[0].Image; !strings.Contains(image, "-sim:") {
			t.Errorf("%s runs %s, which brings no gpu-sim", name, image)
		}
	}
}

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
			return v.HostPath.Path + strings.TrimPrefix(path, best.MountPath)
		}
	}
	return ""
}

func kindOf(t *testing.T, manifest string) string {
	t.Helper()
	var head struct{ Kind string }
	if err := yaml.Unmarshal([]byte(manifest), &head); err != nil {
		t.Fatal(err)
	}
	return head.Kind
}
