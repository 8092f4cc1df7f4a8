// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// Paths that others on the node read must mean the same inside and outside.
func TestWhatThePodsShareWithTheNodeIsMountedWhereTheNodeHasIt(t *testing.T) {
	shared := map[string][]string{
		"gpu-dra-driver-agent":      {"kubelet-plugins-dir", "kubelet-registry-dir", "cdi-dir", "mps-supervisor"},
		"gpu-dra-driver-supervisor": {"socket", "run-dir", "log-dir"},
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

// The last lines of a program's log are in the status of its pod, and kubectl describe prints them.
func TestTheStatusOfAPodSaysWhyAContainerFailed(t *testing.T) {
	containers := 0
	for _, values := range []string{"default.yaml", "every-value.yaml", "sim.yaml"} {
		r := mustRender(t, cluster{}, valuesFile(t, values))
		for _, m := range slices.Concat(r.manifests, r.hooks) {
			var spec corev1.PodSpec
			switch kindOf(t, m) {
			case "DaemonSet":
				spec = decode[appsv1.DaemonSet](t, m).Spec.Template.Spec
			case "Pod":
				spec = decode[corev1.Pod](t, m).Spec
			}
			for _, c := range slices.Concat(spec.InitContainers, spec.Containers) {
				containers++
				if c.TerminationMessagePolicy != corev1.TerminationMessageFallbackToLogsOnError {
					t.Errorf("%s: container %s has the policy %q", values, c.Name, c.TerminationMessagePolicy)
				}
			}
		}
	}
	if containers < 9 {
		t.Errorf("the chart renders only %d containers", containers)
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
	simulated := mustRender(t, cluster{}, "simulation: {model: dgx-h100}")
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
				if privileged != (c.Name != "simulated-gpus") {
					t.Errorf("%s: container %s: privileged is %v", name, c.Name, privileged)
				}
				if privileged {
					continue
				}
				if want := []corev1.Capability{"ALL"}; !slices.Equal(s.Capabilities.Drop, want) {
					t.Errorf("%s: container %s drops %v, want %v", name, c.Name, s.Capabilities.Drop, want)
				}
				if want := []corev1.Capability{"MKNOD"}; !slices.Equal(s.Capabilities.Add, want) {
					t.Errorf("%s: container %s adds %v, want %v", name, c.Name, s.Capabilities.Add, want)
				}
			}
		}
	}
}

func TestSimulatedGPUsNeedNoLabelsOfNodes(t *testing.T) {
	r := mustRender(t, cluster{}, valuesFile(t, "sim.yaml"))
	for _, name := range []string{"gpu-dra-driver-agent", "gpu-dra-driver-supervisor"} {
		pod := find[appsv1.DaemonSet](t, r, "DaemonSet", name).Spec.Template.Spec
		if pod.Affinity != nil || pod.NodeSelector["pool"] != "trial" || len(pod.Tolerations) != 0 {
			t.Errorf("%s runs on nodes with %v, %v and taints %v", name, pod.NodeSelector, pod.Affinity, pod.Tolerations)
		}
	}
}

// Simulated GPUs are a driver root, made by a container before the programs start. All else
// is as with a driver at that root, but that the pods need no mounts of the node.
func TestProgramsRunOnSimulatedGPUsAsOnADriver(t *testing.T) {
	for name, tc := range map[string]struct {
		simulation, dir, model string
	}{
		"a model that is built in": {"{model: dgx-h100}", "/var/lib/gpu-sim", "dgx-h100"},
		"a model of the values":    {"{model: ten.yaml, models: {ten.yaml: 'gpus: []'}}", "/var/lib/gpu-sim", "/etc/gpu-sim/ten.yaml"},
		"another folder":           {"{model: t4, dir: /srv/gpus/one/}", "/srv/gpus/one", "t4"},
		"a folder at the top":      {"{model: t4, dir: /gpus}", "/gpus", "t4"},
	} {
		t.Run(name, func(t *testing.T) {
			// A cluster with a driver of its own, which simulated GPUs do not use.
			gke := cluster{version: "v1.36.1-gke.1014001"}
			simulated := mustRender(t, gke, "simulation: "+tc.simulation)
			driver := mustRender(t, gke, "{driver: {root: "+tc.dir+", devRoot: "+tc.dir+"}, nodes: {withAnyLabel: []}}")
			for _, set := range []string{"gpu-dra-driver-agent", "gpu-dra-driver-supervisor"} {
				got := find[appsv1.DaemonSet](t, simulated, "DaemonSet", set)
				want := find[appsv1.DaemonSet](t, driver, "DaemonSet", set)
				checkMaker(t, got, tc.dir, tc.model)
				pod := &want.Spec.Template.Spec
				own := &pod.Containers[0]
				// The node need not share its mounts with containers.
				for i := range own.VolumeMounts {
					own.VolumeMounts[i].MountPropagation = nil
				}
				cgroups := corev1.VolumeMount{Name: "cgroups", MountPath: "/sys/fs/cgroup", ReadOnly: true}
				if set == "gpu-dra-driver-agent" {
					at := slices.Index(own.Args, "--host-dev-root="+tc.dir) + 1
					own.Args = slices.Insert(own.Args, at, "--machine-root=/host"+tc.dir)
					at = slices.IndexFunc(own.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == "driver-root" })
					own.VolumeMounts[at].ReadOnly = false
					own.VolumeMounts = slices.Insert(own.VolumeMounts, at+1, cgroups)
					at = slices.IndexFunc(own.Env, func(e corev1.EnvVar) bool { return e.Name == "NVIDIA_VISIBLE_DEVICES" })
					own.Env = slices.Insert(own.Env, at+1, corev1.EnvVar{Name: "PATH", Value: "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/host" + tc.dir + "/usr/bin"})
					if node := hostPath(t, got, argsOf(got.Spec.Template.Spec.Containers[0])["machine-root"]); node != tc.dir {
						t.Errorf("the agent sees %s of the node as the root of its machine, want %s", node, tc.dir)
					}
				} else {
					// The daemons run in the container, and end with it.
					own.Args = slices.DeleteFunc(own.Args, func(arg string) bool {
						return strings.HasPrefix(arg, "--mount-namespace=") || strings.HasPrefix(arg, "--cgroup=")
					})
					own.Args[slices.Index(own.Args, "--shm-size=1Gi")] = "--shm-size=0"
					own.VolumeMounts = append(own.VolumeMounts, corev1.VolumeMount{Name: "simulation", MountPath: tc.dir}, cgroups)
				}
				if diff := cmp.Diff(pod.Containers, got.Spec.Template.Spec.Containers); diff != "" {
					t.Errorf("%s (-with a driver +with simulated GPUs):\n%s", set, diff)
				}
				got.Spec.Template.Spec.InitContainers, got.Spec.Template.Spec.Containers = nil, pod.Containers
				got.Spec.Template.Spec.Volumes = slices.DeleteFunc(got.Spec.Template.Spec.Volumes, func(v corev1.Volume) bool {
					return v.Name == "simulation" || v.Name == "models" || v.Name == "cgroups"
				})
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("%s (-with a driver +with simulated GPUs):\n%s", set, diff)
				}
			}
		})
	}
}

// checkMaker checks the container of a pod that makes the simulated driver.
func checkMaker(t *testing.T, set *appsv1.DaemonSet, dir, model string) {
	t.Helper()
	pod := set.Spec.Template.Spec
	if len(pod.InitContainers) != 1 {
		t.Fatalf("%s has %d init containers, want 1", set.Name, len(pod.InitContainers))
	}
	maker := pod.InitContainers[0]
	if want := "gpu-sim:v0.1.0"; maker.Image != want {
		t.Errorf("%s makes simulated GPUs with the image %s, want %s", set.Name, maker.Image, want)
	}
	command := slices.Concat(maker.Command, maker.Args)
	if want := []string{"gpu-sim", "create", "--state=" + dir, "--model=" + model, "--if-missing"}; !slices.Equal(command, want) {
		t.Errorf("%s makes simulated GPUs with %q, want %q", set.Name, command, want)
	}
	alone := &appsv1.DaemonSet{Spec: appsv1.DaemonSetSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: pod.InitContainers, Volumes: pod.Volumes}}}}
	if got := hostPath(t, alone, dir); got != dir {
		t.Errorf("%s makes simulated GPUs in %q of the node, want %s", set.Name, got, dir)
	}
	if strings.HasPrefix(model, "/") && !slices.ContainsFunc(maker.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == path.Dir(model) }) {
		t.Errorf("%s: the container that makes simulated GPUs has no %s", set.Name, path.Dir(model))
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
			return filepath.Join(v.HostPath.Path, strings.TrimPrefix(path, best.MountPath))
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
