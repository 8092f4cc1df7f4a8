// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	nodev1 "k8s.io/api/node/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourceapi "k8s.io/api/resource/v1"
	"sigs.k8s.io/yaml"
)

// Kubernetes drops fields that it does not know: a misspelt one must not get
// that far.
func TestEveryObjectHasOnlyFieldsThatKubernetesKnows(t *testing.T) {
	for _, values := range []string{"default.yaml", "gpu-operator.yaml", "sim.yaml", "every-value.yaml"} {
		r := mustRender(t, cluster{version: "v1.37.1-gke.1", apis: []string{"security.openshift.io/v1"}}, valuesFile(t, values)+"\nnamespace: {create: true}\n")
		for _, m := range append(r.manifests, r.hooks...) {
			object := map[string]any{
				"Namespace": &corev1.Namespace{}, "ResourceQuota": &corev1.ResourceQuota{}, "ServiceAccount": &corev1.ServiceAccount{},
				"NetworkPolicy": &networkingv1.NetworkPolicy{}, "RuntimeClass": &nodev1.RuntimeClass{},
				"ConfigMap": &corev1.ConfigMap{}, "Pod": &corev1.Pod{}, "DaemonSet": &appsv1.DaemonSet{}, "Deployment": &appsv1.Deployment{},
				"ClusterRole": &rbacv1.ClusterRole{}, "ClusterRoleBinding": &rbacv1.ClusterRoleBinding{}, "Role": &rbacv1.Role{}, "RoleBinding": &rbacv1.RoleBinding{},
				"ValidatingAdmissionPolicy":        &admissionv1.ValidatingAdmissionPolicy{},
				"ValidatingAdmissionPolicyBinding": &admissionv1.ValidatingAdmissionPolicyBinding{},
				"SecurityContextConstraints":       &constraint{},
				"DeviceClass":                      &resourceapi.DeviceClass{}, "ResourceClaimTemplate": &resourceapi.ResourceClaimTemplate{},
			}[kindOf(t, m)]
			if object == nil {
				t.Errorf("%s: what is a %s?", values, kindOf(t, m))
				continue
			}
			if err := yaml.UnmarshalStrict([]byte(m), object); err != nil {
				t.Errorf("%s: %v in\n%s", values, err, m)
			}
		}
	}
}

// Profiles by the GPUs that the simulator knows are all that NVML reports of them.
func TestEveryProfileOfTheModelsHasAClassAndAnExtendedResource(t *testing.T) {
	r := mustRender(t, cluster{}, "deviceClasses: {migProfiles: {profiles: all}}")
	files, err := filepath.Glob("../../simulator/nvmlsim/models/*.yaml")
	must(t, err)
	profiles := 0
	for _, file := range append(files, "../e2e/testdata/dgx-a100-40gb.yaml") {
		text, err := os.ReadFile(file)
		must(t, err)
		var model struct {
			Kinds map[string]struct {
				MIG struct{ Profiles []struct{ Name string } }
			}
		}
		if err := yaml.Unmarshal(text, &model); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		for _, kind := range model.Kinds {
			for _, profile := range kind.MIG.Profiles {
				profiles++
				name := "mig-" + strings.ReplaceAll(profile.Name, "+", ".")
				class := find[resourceapi.DeviceClass](t, r, "DeviceClass", name)
				if got := class.Spec.ExtendedResourceName; got == nil || *got != "nvidia.com/"+name {
					t.Errorf("%s: the extended resource of %s is %v", file, name, got)
				}
				if expression := class.Spec.Selectors[0].CEL.Expression; !strings.HasSuffix(strings.TrimSpace(expression), "== '"+profile.Name+"'") {
					t.Errorf("%s: %s selects %s", file, name, expression)
				}
			}
		}
	}
	if profiles < 40 {
		t.Errorf("only %d profiles in the models: are they written in another way now?", profiles)
	}
}

// A token of the viewers' account proves that its user may create one. It must be of no
// other use.
func TestTheAccountOfViewersHasNoRights(t *testing.T) {
	r := mustRender(t, cluster{}, "")
	account := find[corev1.ServiceAccount](t, r, "ServiceAccount", "gpu-dra-driver-viewer")
	for _, m := range r.manifests {
		var subjects []rbacv1.Subject
		switch kindOf(t, m) {
		case "ClusterRoleBinding":
			subjects = decode[rbacv1.ClusterRoleBinding](t, m).Subjects
		case "RoleBinding":
			subjects = decode[rbacv1.RoleBinding](t, m).Subjects
		case "DaemonSet":
			if got := decode[appsv1.DaemonSet](t, m).Spec.Template.Spec.ServiceAccountName; got == account.Name {
				t.Errorf("pods run as %s", got)
			}
		}
		for _, s := range subjects {
			if s.Name == account.Name {
				t.Errorf("%s has rights:\n%s", s.Name, m)
			}
		}
	}
	policy := find[admissionv1.ValidatingAdmissionPolicy](t, r, "ValidatingAdmissionPolicy", "gpu-dra-driver-own-slices")
	if got := policy.Annotations["gpu.nvidia.com/driver-namespace"]; got == "" || got != account.Namespace {
		t.Errorf("the policy names the driver's namespace %q, want %q", got, account.Namespace)
	}
	role := find[rbacv1.Role](t, r, "Role", "gpu-dra-driver-viewer")
	if got := role.Rules[0]; got.Resources[0] != "serviceaccounts/token" || len(got.ResourceNames) != 1 || got.ResourceNames[0] != account.Name {
		t.Errorf("viewers may create tokens by %+v, want those of %s only", got, account.Name)
	}
	agent := find[appsv1.DaemonSet](t, r, "DaemonSet", "gpu-dra-driver-agent")
	if got := agent.Spec.Template.Annotations["gpu.nvidia.com/viewer-account"]; got != account.Name {
		t.Errorf("the agents' pods name the account %q", got)
	}
}

func TestGroupsOfTenantsHaveTheRoleForDevices(t *testing.T) {
	const name = "gpu-dra-driver-devices"
	for values, want := range map[string][]string{
		"": nil,
		"viewers: {devices: {groups: [team-a, 'oidc:team-b']}}":                    {"team-a", "oidc:team-b"},
		"viewers: {devices: {enabled: false, groups: [team-a]}}":                   nil,
		"viewers: {enabled: false, devices: {enabled: true, groups: ['sys:all']}}": {"sys:all"},
	} {
		var groups []string
		for _, m := range mustRender(t, cluster{}, values).manifests {
			if kindOf(t, m) != "ClusterRoleBinding" {
				continue
			}
			if binding := decode[rbacv1.ClusterRoleBinding](t, m); binding.RoleRef.Name == name {
				for _, s := range binding.Subjects {
					groups = append(groups, s.Name)
				}
			}
		}
		if diff := cmp.Diff(want, groups); diff != "" {
			t.Errorf("%s: groups with the role (-want +got):\n%s", values, diff)
		}
	}
	for _, m := range mustRender(t, cluster{}, "viewers: {devices: {enabled: false}}").manifests {
		if strings.Contains(m, name) {
			t.Errorf("the role is switched off, and rendered:\n%s", m)
		}
	}
}

func TestNoTwoClassesHaveOneName(t *testing.T) {
	seen := map[string]bool{}
	for _, m := range mustRender(t, cluster{}, "deviceClasses: {migProfiles: {profiles: all}}").manifests {
		if kindOf(t, m) != "DeviceClass" {
			continue
		}
		class := decode[resourceapi.DeviceClass](t, m)
		names := []string{class.Name}
		if extended := class.Spec.ExtendedResourceName; extended != nil {
			names = append(names, *extended)
		}
		for _, name := range names {
			if seen[name] {
				t.Errorf("%s is there twice", name)
			}
			seen[name] = true
		}
	}
}

func decode[T any](t *testing.T, manifest string) *T {
	t.Helper()
	object := new(T)
	must(t, yaml.UnmarshalStrict([]byte(manifest), object))
	return object
}

// Kubernetes has one class serve a name, and none after one of two is deleted.
func TestTwoClassesCannotServeOneName(t *testing.T) {
	const shared = "nvidia.com/gpu.shared"
	for values, want := range map[string]string{
		"deviceClasses: {seat: {enabled: true, extendedResource: nvidia.com/gpu.shared}}":                                                       "deviceClasses.seat: deviceClasses.timeslice serves the extended resource nvidia.com/gpu.shared already",
		"deviceClasses: {timeslice: {extendedResource: nvidia.com/gpu}}":                                                                        "deviceClasses.timeslice: deviceClasses.gpu serves the extended resource nvidia.com/gpu already",
		"deviceClasses: {seat: {enabled: true, extendedResource: nvidia.com/mig-1g.10gb}}":                                                      "deviceClasses.migProfiles serves the extended resource nvidia.com/mig-1g.10gb already",
		"deviceClasses: {timeslice: {enabled: false}, seat: {enabled: true, extendedResource: nvidia.com/gpu.shared}}":                          "",
		"deviceClasses: {timeslice: {extendedResource: ''}, seat: {enabled: true, extendedResource: nvidia.com/gpu.shared}}":                    "",
		"deviceClasses: {timeslice: {extendedResource: nvidia.com/gpu.sliced}, seat: {enabled: true, extendedResource: nvidia.com/gpu.shared}}": "",
	} {
		r, err := render(t, cluster{}, values)
		if want != "" {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: error %v, want %q", values, err, want)
			}
			continue
		}
		must(t, err)
		if got := find[resourceapi.DeviceClass](t, r, "DeviceClass", "seat.nvidia.com").Spec.ExtendedResourceName; got == nil || *got != shared {
			t.Errorf("%s: seat.nvidia.com serves %v, want %s", values, got, shared)
		}
	}
}
