// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// constraint is OpenShift's SecurityContextConstraints (security.openshift.io/v1), with the
// fields that the chart sets.
type constraint struct {
	metav1.TypeMeta          `json:",inline"`
	metav1.ObjectMeta        `json:"metadata"`
	AllowPrivilegedContainer bool                `json:"allowPrivilegedContainer"`
	AllowPrivilegeEscalation *bool               `json:"allowPrivilegeEscalation"`
	AllowHostPID             bool                `json:"allowHostPID"`
	AllowHostDirVolumePlugin bool                `json:"allowHostDirVolumePlugin"`
	AllowHostNetwork         bool                `json:"allowHostNetwork"`
	AllowHostPorts           bool                `json:"allowHostPorts"`
	AllowHostIPC             bool                `json:"allowHostIPC"`
	AllowedCapabilities      []corev1.Capability `json:"allowedCapabilities"`
	DefaultAddCapabilities   []corev1.Capability `json:"defaultAddCapabilities"`
	RequiredDropCapabilities []corev1.Capability `json:"requiredDropCapabilities"`
	ReadOnlyRootFilesystem   bool                `json:"readOnlyRootFilesystem"`
	RunAsUser                strategy            `json:"runAsUser"`
	SELinuxContext           strategy            `json:"seLinuxContext"`
	FSGroup                  strategy            `json:"fsGroup"`
	SupplementalGroups       strategy            `json:"supplementalGroups"`
	Volumes                  []string            `json:"volumes"`
	Priority                 *int32              `json:"priority"`
	Users                    []string            `json:"users"`
	Groups                   []string            `json:"groups"`
}

type strategy struct {
	Type string `json:"type"`
	UID  *int64 `json:"uid,omitempty"`
}

// checkPod returns what of the pod the constraint does not admit.
func (c *constraint) checkPod(pod corev1.PodSpec) []string {
	var refused []string
	need := func(needed, allowed bool, what string) {
		if needed && !allowed {
			refused = append(refused, what)
		}
	}
	need(pod.HostPID, c.AllowHostPID, "hostPID")
	need(pod.HostNetwork, c.AllowHostNetwork, "hostNetwork")
	need(pod.HostIPC, c.AllowHostIPC, "hostIPC")
	for _, v := range pod.Volumes {
		kind := volumeKind(v)
		need(true, slices.Contains(c.Volumes, kind), "volume "+kind)
		need(kind == "hostPath", c.AllowHostDirVolumePlugin, "the plugin of hostPath")
	}
	// The kubelet's volume with the token of the account.
	need(pod.AutomountServiceAccountToken == nil || *pod.AutomountServiceAccountToken, slices.Contains(c.Volumes, "projected"), "volume projected")
	for _, container := range slices.Concat(pod.InitContainers, pod.Containers) {
		s := container.SecurityContext
		privileged := s.Privileged != nil && *s.Privileged
		need(privileged, c.AllowPrivilegedContainer, "privileged")
		need(privileged, c.AllowPrivilegeEscalation == nil || *c.AllowPrivilegeEscalation, "privilege escalation")
		need(c.ReadOnlyRootFilesystem, s.ReadOnlyRootFilesystem != nil && *s.ReadOnlyRootFilesystem, "a writable root")
		need(c.RunAsUser.Type == "MustRunAs", s.RunAsUser != nil && c.RunAsUser.UID != nil && *s.RunAsUser == *c.RunAsUser.UID, "the user")
		for _, port := range container.Ports {
			need(port.HostPort != 0, c.AllowHostPorts, "hostPort")
		}
		if s.Capabilities != nil {
			for _, capability := range s.Capabilities.Add {
				need(true, slices.Contains(c.AllowedCapabilities, capability), fmt.Sprint("capability ", capability))
			}
		}
	}
	return refused
}

// volumeKind returns the name of a volume's source, as a constraint has it.
func volumeKind(v corev1.Volume) string {
	source := reflect.ValueOf(v.VolumeSource)
	for i := range source.NumField() {
		if !source.Field(i).IsNil() {
			name := source.Type().Field(i).Tag.Get("json")
			return name[:len(name)-len(",omitempty")]
		}
	}
	return ""
}

const ownSCC = "openshift: {ownSCC: true}"

func TestTheOwnConstraintAdmitsBothPods(t *testing.T) {
	openShift := cluster{apis: []string{"security.openshift.io/v1"}}
	for name, values := range map[string]string{
		"default":                ownSCC,
		"the operator's driver":  ownSCC + "\ndriver: {root: /run/nvidia/driver}",
		"devices apart":          ownSCC + "\ndriver: {root: /opt/driver, devRoot: /opt/dev}",
		"without PodResources":   ownSCC + "\nkubelet: {podResources: false}",
		"shared memory of nodes": ownSCC + "\nsupervisor: {hostShm: true}",
	} {
		t.Run(name, func(t *testing.T) {
			r := mustRender(t, openShift, values)
			scc := find[constraint](t, r, "SecurityContextConstraints", "gpu-dra-driver")
			for _, set := range []string{"gpu-dra-driver-agent", "gpu-dra-driver-supervisor"} {
				template := find[appsv1.DaemonSet](t, r, "DaemonSet", set).Spec.Template
				if refused := scc.checkPod(template.Spec); len(refused) != 0 {
					t.Errorf("%s needs %q", set, refused)
				}
				if got := template.Annotations["openshift.io/required-scc"]; got != scc.Name {
					t.Errorf("%s requires the constraint %q, want %q", set, got, scc.Name)
				}
			}
			if scc.AllowHostNetwork || scc.AllowHostPorts || scc.AllowHostIPC || len(scc.AllowedCapabilities) != 0 || !scc.ReadOnlyRootFilesystem {
				t.Errorf("it admits more than the pods need: %+v", scc)
			}
			if len(scc.Users)+len(scc.Groups) != 0 {
				t.Errorf("it is for users %q and groups %q, want the accounts of the RoleBinding only", scc.Users, scc.Groups)
			}
		})
	}
}

func TestOnlyTheChartsAccountsMayUseItsConstraint(t *testing.T) {
	openShift := cluster{apis: []string{"security.openshift.io/v1"}}
	r := mustRender(t, openShift, ownSCC)
	role := find[rbacv1.ClusterRole](t, r, "ClusterRole", "gpu-dra-driver-scc")
	want := []rbacv1.PolicyRule{{APIGroups: []string{"security.openshift.io"}, Resources: []string{"securitycontextconstraints"}, ResourceNames: []string{"gpu-dra-driver"}, Verbs: []string{"use"}}}
	if !reflect.DeepEqual(role.Rules, want) {
		t.Errorf("the role allows %+v, want %+v", role.Rules, want)
	}
	binding := find[rbacv1.RoleBinding](t, r, "RoleBinding", "gpu-dra-driver-scc")
	if binding.RoleRef.Name != role.Name || len(binding.Subjects) != 2 {
		t.Errorf("bound are %s and %v", binding.RoleRef.Name, binding.Subjects)
	}
	for _, m := range r.manifests {
		if strings.Contains(m, "system:openshift:scc:privileged") {
			t.Error("the accounts may use privileged as well")
		}
	}
	// Without OpenShift, and without the value, there is none.
	for name, other := range map[string]rendered{"another cluster": mustRender(t, cluster{}, ownSCC), "the default": mustRender(t, openShift, "")} {
		for _, m := range other.manifests {
			if kindOf(t, m) == "SecurityContextConstraints" {
				t.Errorf("%s has\n%s", name, m)
			}
		}
		for _, set := range []string{"gpu-dra-driver-agent", "gpu-dra-driver-supervisor"} {
			if got := find[appsv1.DaemonSet](t, other, "DaemonSet", set).Spec.Template.Annotations["openshift.io/required-scc"]; got != "" {
				t.Errorf("%s: %s requires the constraint %q", name, set, got)
			}
		}
	}
}
