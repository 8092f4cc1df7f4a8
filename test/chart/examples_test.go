// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"os"
	"path/filepath"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/yaml"
)

const examples = "../../deployments/examples"

func example(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(examples, path))
	must(t, err)
	return string(text)
}

func TestValuesOfExamplesRender(t *testing.T) {
	found, err := filepath.Glob(examples + "/*/gpu-dra-driver.yaml")
	if err != nil || len(found) == 0 {
		t.Fatalf("%d values files: %v", len(found), err)
	}
	for _, file := range found {
		path, err := filepath.Rel(examples, file)
		must(t, err)
		r := mustRender(t, cluster{}, example(t, path))
		find[appsv1.DaemonSet](t, r, "DaemonSet", "gpu-dra-driver-agent")
	}
}

// The GPU operator's driver manager changes one label, and our pods must leave for it.
func TestOneLabelHandsNodesOverAndBack(t *testing.T) {
	var operator struct {
		DevicePlugin, MIGManager struct{ Enabled *bool }
		Driver                   struct {
			UpgradePolicy struct{ AutoUpgrade *bool }
			Manager       struct {
				Env []struct{ Name, Value string }
			}
		}
	}
	must(t, yaml.UnmarshalStrict([]byte(example(t, "gpu-operator/gpu-operator.yaml")), &operator))
	for name, on := range map[string]*bool{"the device plugin": operator.DevicePlugin.Enabled, "the MIG manager": operator.MIGManager.Enabled, "automatic driver upgrades": operator.Driver.UpgradePolicy.AutoUpgrade} {
		if on == nil || *on {
			t.Errorf("the operator's values leave %s enabled", name)
		}
	}
	env := map[string]string{}
	for _, e := range operator.Driver.Manager.Env {
		env[e.Name] = e.Value
	}
	label := env["NODE_LABEL_FOR_GPU_POD_EVICTION"]
	if label == "" || env["ENABLE_AUTO_DRAIN"] != "false" {
		t.Fatalf("the driver manager's environment is %v", env)
	}
	r := mustRender(t, cluster{}, example(t, "gpu-operator/gpu-dra-driver.yaml"))
	for _, name := range []string{"gpu-dra-driver-agent", "gpu-dra-driver-supervisor"} {
		set := find[appsv1.DaemonSet](t, r, "DaemonSet", name)
		if got := set.Spec.Template.Spec.NodeSelector[label]; got != "true" {
			t.Errorf("%s selects nodes whose label %s is %q, want true", name, label, got)
		}
		if len(set.Spec.Template.Spec.NodeSelector) != 1 {
			t.Errorf("%s selects nodes by %v, want one label", name, set.Spec.Template.Spec.NodeSelector)
		}
	}
}
