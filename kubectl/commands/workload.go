// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/rows"
)

// addTemplates reads the claim templates that the pods name and the manifests lack.
func (m *manifests) addTemplates(ctx context.Context, client kubernetes.Interface) error {
	for _, w := range m.workloads {
		for _, entry := range w.Template.Spec.ResourceClaims {
			name := entry.ResourceClaimTemplateName
			if name == nil || m.template(w.Namespace, *name) != nil {
				continue
			}
			template, err := client.ResourceV1().ResourceClaimTemplates(w.Namespace).Get(ctx, *name, metav1.GetOptions{})
			switch {
			case apierrors.IsNotFound(err):
			case err != nil:
				return fmt.Errorf("get claim template %s/%s: %w", w.Namespace, *name, err)
			default:
				m.templates = append(m.templates, template)
			}
		}
	}
	return nil
}

func (m *manifests) template(namespace, name string) *resourceapi.ResourceClaimTemplate {
	i := slices.IndexFunc(m.templates, func(t *resourceapi.ResourceClaimTemplate) bool { return t.Namespace == namespace && t.Name == name })
	if i < 0 {
		return nil
	}
	return m.templates[i]
}

// pods returns the pods of a workload.
func (w workload) pods(f *fleet.Fleet) []*corev1.Pod {
	one := func(name string) *corev1.Pod {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: name, UID: types.UID(w.String() + name)}, Spec: *w.Template.Spec.DeepCopy()}
		pod.Spec.NodeName = ""
		return pod
	}
	var all []*corev1.Pod
	if !w.EachNode {
		for i := range w.Pods {
			name := w.Name
			if w.Kind != "pod" {
				name = fmt.Sprintf("%s-%d", w.Name, i)
			}
			all = append(all, one(name))
		}
		return all
	}
	for _, node := range f.NodeNames() {
		pod := one(w.Name + "-" + node)
		pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{Key: corev1.TaintNodeUnschedulable, Operator: corev1.TolerationOpExists})
		// The controller of DaemonSets creates no pod for a node that excludes it.
		if len(f.Excludes(node, pod)) > 0 {
			continue
		}
		pin(pod, node)
		all = append(all, pod)
	}
	return all
}

// pin restricts a pod to a node, as the controller of DaemonSets does.
func pin(pod *corev1.Pod, node string) {
	if pod.Spec.Affinity == nil {
		pod.Spec.Affinity = &corev1.Affinity{}
	}
	pod.Spec.Affinity.NodeAffinity = &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{
			{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{node}},
		}}},
	}}
}

// claims returns the claims of a pod, and a sentence if one is missing.
func (m *manifests) claims(c *rows.Cluster, pod *corev1.Pod, named map[types.NamespacedName]*resourceapi.ResourceClaim) (claims []*resourceapi.ResourceClaim, missing string) {
	for _, entry := range pod.Spec.ResourceClaims {
		switch {
		case entry.ResourceClaimName != nil:
			claim := named[types.NamespacedName{Namespace: pod.Namespace, Name: *entry.ResourceClaimName}]
			if claim == nil {
				return nil, fmt.Sprintf("claim %s does not exist", *entry.ResourceClaimName)
			}
			claims = append(claims, claim)
		case entry.ResourceClaimTemplateName != nil:
			template := m.template(pod.Namespace, *entry.ResourceClaimTemplateName)
			if template == nil {
				return nil, fmt.Sprintf("claim template %s does not exist", *entry.ResourceClaimTemplateName)
			}
			claims = append(claims, &resourceapi.ResourceClaim{
				ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name + "-" + entry.Name, UID: pod.UID + types.UID("/"+entry.Name)},
				Spec:       *template.Spec.Spec.DeepCopy(),
			})
		}
	}
	if extended := c.ExtendedClaim(pod); extended != nil {
		extended.UID = pod.UID
		claims = append(claims, extended)
	}
	if classes := c.MissingClasses(claims); classes != nil {
		return nil, classes[0]
	}
	return claims, ""
}
