// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"path"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// What `driver.root: auto` finds out, and what follows.
func TestTheDriverIsFoundWhereTheClusterHasIt(t *testing.T) {
	policy := func(spec map[string]any) []map[string]any {
		return []map[string]any{{"apiVersion": "nvidia.com/v1", "kind": "ClusterPolicy", "metadata": map[string]any{"name": "cluster-policy"}, "spec": spec}}
	}
	for name, tc := range map[string]struct {
		on     cluster
		values string
		// the agent's flags, and the paths in its container.
		driver, dev, devInContainer string
	}{
		"a driver on the host": {
			driver: "/", dev: "/", devInContainer: "/",
		},
		"the GPU operator's driver container": {
			on:     cluster{policies: policy(map[string]any{"driver": map[string]any{"enabled": true}})},
			driver: "/run/nvidia/driver", dev: "/run/nvidia/driver", devInContainer: "/host/run/nvidia/driver",
		},
		"the GPU operator's driver container in another folder": {
			on:     cluster{policies: policy(map[string]any{"hostPaths": map[string]any{"driverInstallDir": "/opt/nvidia/driver"}})},
			driver: "/opt/nvidia/driver", dev: "/opt/nvidia/driver", devInContainer: "/host/opt/nvidia/driver",
		},
		"a GPU operator that leaves the driver to the host": {
			on:     cluster{policies: policy(map[string]any{"driver": map[string]any{"enabled": false}})},
			driver: "/", dev: "/", devInContainer: "/",
		},
		"two policies, of which the operator follows the first": {
			on:     cluster{policies: append(policy(map[string]any{}), policy(map[string]any{"hostPaths": map[string]any{"driverInstallDir": "/opt/nvidia/driver"}})...)},
			driver: "/run/nvidia/driver", dev: "/run/nvidia/driver", devInContainer: "/host/run/nvidia/driver",
		},
		"a GPU operator that has found a driver on every node with a GPU": {
			on: cluster{
				policies: policy(map[string]any{"driver": map[string]any{"enabled": true}}),
				nodes:    map[string]string{"a": "pre-installed", "b": "pre-installed", "cpu": ""},
			},
			driver: "/", dev: "/", devInContainer: "/",
		},
		"a GPU operator that upgrades the driver of a node": {
			on: cluster{
				policies: policy(map[string]any{"driver": map[string]any{"enabled": true}}),
				nodes:    map[string]string{"a": "true", "b": "paused-for-driver-upgrade", "cpu": ""},
			},
			driver: "/run/nvidia/driver", dev: "/run/nvidia/driver", devInContainer: "/host/run/nvidia/driver",
		},
		"nodes of two kinds, of which the administrator names one": {
			on:     cluster{policies: policy(map[string]any{}), nodes: map[string]string{"a": "true", "b": "pre-installed"}},
			values: "{driver: {root: /run/nvidia/driver}}",
			driver: "/run/nvidia/driver", dev: "/run/nvidia/driver", devInContainer: "/host/run/nvidia/driver",
		},
		"a GPU operator that is gone": {
			on:     cluster{policies: []map[string]any{}},
			driver: "/", dev: "/", devInContainer: "/",
		},
		"GKE": {
			on:     cluster{version: "v1.36.1-gke.1014001"},
			driver: "/home/kubernetes/bin/nvidia", dev: "/", devInContainer: "/",
		},
		"what the administrator says wins": {
			on:     cluster{version: "v1.36.1-gke.1014001"},
			values: "{driver: {root: /opt/nvidia, devRoot: /opt/dev/}}",
			driver: "/opt/nvidia", dev: "/opt/dev", devInContainer: "/dev-root",
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := mustRender(t, tc.on, tc.values)
			agent := find[appsv1.DaemonSet](t, r, "DaemonSet", "gpu-dra-driver-agent")
			args := argsOf(agent.Spec.Template.Spec.Containers[0])
			for flag, want := range map[string]string{
				"driver-root": path.Clean("/host" + tc.driver), "host-driver-root": tc.driver,
				"dev-root": tc.devInContainer, "host-dev-root": tc.dev,
			} {
				if args[flag] != want {
					t.Errorf("agent: --%s=%s, want %s", flag, args[flag], want)
				}
			}
			if got := hostPath(t, agent, args["driver-root"]); got != tc.driver {
				t.Errorf("the agent sees %s of the node as its driver root, want %s", got, tc.driver)
			}
			if tc.devInContainer == "/dev-root" {
				if got := hostPath(t, agent, "/dev-root"); got != tc.dev {
					t.Errorf("the agent sees %s of the node as its device root, want %s", got, tc.dev)
				}
			}
			supervisor := find[appsv1.DaemonSet](t, r, "DaemonSet", "gpu-dra-driver-supervisor")
			if got := argsOf(supervisor.Spec.Template.Spec.Containers[0])["driver-root"]; got != tc.driver {
				t.Errorf("supervisor: --driver-root=%s, want %s", got, tc.driver)
			}
		})
	}
}

func TestNodesOfTwoKindsAreRefusedWithWhatToDo(t *testing.T) {
	_, err := render(t, cluster{
		policies: []map[string]any{{"apiVersion": "nvidia.com/v1", "kind": "ClusterPolicy", "metadata": map[string]any{"name": "cluster-policy"}, "spec": map[string]any{}}},
		nodes:    map[string]string{"a": "true", "b": "pre-installed", "cpu": ""},
	}, "")
	if err == nil {
		t.Fatal("it is rendered")
	}
	for _, want := range []string{"b has the driver installed on the host", "a has the GPU operator's driver container", "driver.root=/ ", "driver.root=/run/nvidia/driver", "two releases"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %q: %v", want, err)
		}
	}
}

func TestGKEGetsAQuotaForItsPriorityAndOthersDoNot(t *testing.T) {
	gke := mustRender(t, cluster{version: "v1.36.1-gke.1014001"}, "")
	quota := find[corev1.ResourceQuota](t, gke, "ResourceQuota", "gpu-dra-driver")
	if got := quota.Spec.ScopeSelector.MatchExpressions[0].Values; len(got) != 1 || got[0] != "system-node-critical" {
		t.Errorf("the quota is for %v, want system-node-critical", got)
	}
	if _, ok := mustRender(t, cluster{}, "").files["gpu-dra-driver/templates/resourcequota.yaml"]; !ok {
		t.Fatal("no such template")
	}
	for name, values := range map[string]string{"elsewhere": "", "switched off": "priority: {quota: false}", "without a priority": "priority: {quota: true, className: ''}"} {
		for _, m := range mustRender(t, cluster{}, values).manifests {
			if kindOf(t, m) == "ResourceQuota" {
				t.Errorf("%s: there is a ResourceQuota", name)
			}
		}
	}
}
