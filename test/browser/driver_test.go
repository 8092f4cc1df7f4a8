// SPDX-License-Identifier: Apache-2.0

package browser

import (
	"encoding/json"
	"net/http"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/version"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
)

// used is the report of the agent of dgx-01.
const used = `{"rows": [
  {"namespace": "research", "claim": "training", "pod": "training", "container": "main", "device": "gpu-1b-00", "memoryUsedBytes": 75161927680, "smUsed": 0.97},
  {"namespace": "research", "claim": "training", "pod": "training", "container": "main", "device": "gpu-43-00", "memoryUsedBytes": 75161927680, "smUsed": 0.96},
  {"namespace": "team-a", "claim": "notebook-0", "pod": "notebook-0", "container": "main", "device": "gpu-52-00", "memoryUsedBytes": 12884901888, "smUsed": 0.12}
]}`

// serveDriver answers a request about the driver's own objects, as a cluster with an agent on each
// node. It reports false for other requests.
func serveDriver(w http.ResponseWriter, r *http.Request, nodes []*corev1.Node) bool {
	labels := map[string]string{"app.kubernetes.io/name": "gpu-dra-driver", "app.kubernetes.io/component": "agent"}
	spec := corev1.PodSpec{NodeName: "dgx-01", ServiceAccountName: "agent", Containers: []corev1.Container{{
		Name: "agent", Image: "agent:v0.9.0", Args: []string{"--driver-name=" + v1alpha1.DriverName}, Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 9000}},
	}}}
	all := int32(len(nodes)) //nolint:gosec // a test has few
	set := appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "gpus", Name: "agent", UID: "agent", Labels: labels},
		Spec:       appsv1.DaemonSetSpec{Template: corev1.PodTemplateSpec{Spec: spec}},
		Status:     appsv1.DaemonSetStatus{DesiredNumberScheduled: all, CurrentNumberScheduled: all, UpdatedNumberScheduled: all},
	}
	set.Spec.Template.Annotations = map[string]string{v1alpha1.AnnotationViewerAccount: "viewer"}
	var agents []corev1.Pod
	for _, node := range nodes {
		name := "agent-" + node.Name
		agent := corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "gpus", Name: name, UID: types.UID(name), Labels: labels,
				OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(&set, appsv1.SchemeGroupVersion.WithKind("DaemonSet"))},
			},
			Spec:   spec,
			Status: corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}},
		}
		agent.Spec.NodeName = node.Name
		agents = append(agents, agent)
	}
	meta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Name: name, Labels: labels, Annotations: map[string]string{v1alpha1.AnnotationDriverNamespace: "gpus"}}
	}
	policies := []string{"x-own-slices", "x-own-claims", "x-own-events"}
	var answer any
	switch path := r.URL.Path; {
	case path == "/version":
		answer = version.Info{Major: "1", Minor: "37", GitVersion: "v1.37.1"}
	case path == "/apis/resource.k8s.io/v1":
		list := metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: "resource.k8s.io/v1"}
		for _, name := range []string{"deviceclasses", "devicetaintrules", "resourceclaims", "resourceclaimtemplates", "resourceslices"} {
			list.APIResources = append(list.APIResources, metav1.APIResource{Name: name})
		}
		answer = list
	case strings.HasSuffix(path, "/validatingadmissionpolicies"):
		list := admissionv1.ValidatingAdmissionPolicyList{TypeMeta: metav1.TypeMeta{Kind: "ValidatingAdmissionPolicyList", APIVersion: "admissionregistration.k8s.io/v1"}}
		for _, name := range policies {
			list.Items = append(list.Items, admissionv1.ValidatingAdmissionPolicy{ObjectMeta: meta(name)})
		}
		answer = list
	case strings.HasSuffix(path, "/validatingadmissionpolicybindings"):
		list := admissionv1.ValidatingAdmissionPolicyBindingList{TypeMeta: metav1.TypeMeta{Kind: "ValidatingAdmissionPolicyBindingList", APIVersion: "admissionregistration.k8s.io/v1"}}
		for _, name := range policies {
			list.Items = append(list.Items, admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: meta(name), Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
				PolicyName: name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
			}})
		}
		answer = list
	case strings.HasSuffix(path, "/resourceclaimtemplates"):
		answer = map[string]any{"kind": "ResourceClaimTemplateList", "apiVersion": "resource.k8s.io/v1", "metadata": map[string]any{}}
	case strings.HasSuffix(path, "/daemonsets"):
		answer = appsv1.DaemonSetList{TypeMeta: metav1.TypeMeta{Kind: "DaemonSetList", APIVersion: "apps/v1"}, Items: []appsv1.DaemonSet{set}}
	case path == "/api/v1/namespaces/gpus/pods":
		answer = corev1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}, Items: agents}
	case strings.HasSuffix(path, "/serviceaccounts/viewer/token"):
		answer = authv1.TokenRequest{TypeMeta: metav1.TypeMeta{Kind: "TokenRequest", APIVersion: "authentication.k8s.io/v1"}, Status: authv1.TokenRequestStatus{Token: "token"}}
	case strings.HasSuffix(path, "agent-dgx-01:9000/proxy/v1/claims"):
		answer = json.RawMessage(used)
	case strings.HasSuffix(path, "/proxy/v1/claims"):
		answer = json.RawMessage(`{"rows": []}`)
	case strings.HasSuffix(path, "/proxy/v1/node"):
		answer = json.RawMessage(`{"driverVersion": {"value": "580.65.06"}, "cgroupControllers": {"value": ["cpu", "dmem"]}, "swapBytes": {"value": 1073741824}}`)
	default:
		return false
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer) // the program has gone
	return true
}
