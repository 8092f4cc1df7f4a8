// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/doctor"
)

const (
	// podsOfNode is the number of pods with devices for each node.
	podsOfNode = 5
	// teams is the number of namespaces of pods.
	teams = 10
	// waitingPart is the number of pods of which one waits.
	waitingPart = 50

	driverNamespace, viewerAccount = "gpu-dra-driver", "viewer"
)

// fleetInUse is a fleet of several publications with pods and agents.
type fleetInUse struct {
	parts []fleet
	// agentIP and agentPort are where all agents listen.
	agentIP   string
	agentPort int32
	// running and waiting are pods of the namespace team-0.
	running, waiting string
}

// mixed returns the publications of the parts of a fleet in use.
func mixed() []string {
	return []string{"standard", "share+timeslice", "layout-3g-2g-1g-1g", "share+mig-on-two"}
}

// split returns a fleet with equal parts of several publications.
func split(whole fleet) []fleet {
	var parts []fleet
	names := mixed()
	for i, name := range names {
		f := whole
		f.publication = publications()[slices.IndexFunc(publications(), func(p publication) bool { return p.name == name })]
		f.first = whole.nodes * i / len(names)
		f.nodes = whole.nodes*(i+1)/len(names) - f.first
		parts = append(parts, f)
	}
	return parts
}

// write writes all objects of the fleet.
func (u *fleetInUse) write(ctx context.Context, client kubernetes.Interface) error {
	for i := range teams {
		if err := createNamespace(ctx, client, team(i)); err != nil {
			return err
		}
	}
	set, err := writeDriver(ctx, client, u.agentPort)
	if err != nil {
		return err
	}
	for _, f := range u.parts {
		progress("writing %d nodes of %s", f.nodes, f.publication.name)
		if err := f.write(ctx, client); err != nil {
			return err
		}
		fill, err := newFilling(f)
		if err != nil {
			return err
		}
		kinds := f.publication.fillingKinds()
		for _, p := range fill.patterns {
			if _, err := p.grow(ctx, kinds, f.gpus()); err != nil {
				return err
			}
			p.claims = p.claims[:min(len(p.claims), podsOfNode)]
		}
		if err := fill.publish(ctx, client); err != nil {
			return err
		}
		if err := inParallel(ctx, f.nodes, func(ctx context.Context, i int) error {
			if err := u.writeAgent(ctx, client, set, f.name(i)); err != nil {
				return err
			}
			for j, a := range fill.patterns[i%patterns].claims {
				if err := writeUser(ctx, client, (f.first+i)*podsOfNode+j, nodeName(i%patterns), f.name(i), a); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			return err
		}
	}
	u.running, u.waiting = podName(teams), podName(0)
	return nil
}

func team(i int) string { return "team-" + strconv.Itoa(i%teams) }

func createNamespace(ctx context.Context, client kubernetes.Interface, name string) error {
	_, err := client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	return err
}

// writeDriver writes the driver's objects apart from pods. A policy names its namespace.
func writeDriver(ctx context.Context, client kubernetes.Interface, port int32) (*appsv1.DaemonSet, error) {
	labels := map[string]string{doctor.NameLabel: doctor.ChartName, doctor.ComponentLabel: doctor.AgentComponent}
	if err := createNamespace(ctx, client, driverNamespace); err != nil {
		return nil, err
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: viewerAccount}}
	if _, err := client.CoreV1().ServiceAccounts(driverNamespace).Create(ctx, account, metav1.CreateOptions{}); err != nil {
		return nil, err
	}
	// It checks no object: only its annotation is of interest.
	policy := &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "gpu-dra-driver", Labels: labels, Annotations: map[string]string{v1alpha1.AnnotationDriverNamespace: driverNamespace}},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
				Operations: []admissionv1.OperationType{admissionv1.Create},
				Rule:       admissionv1.Rule{APIGroups: []string{"resource.k8s.io"}, APIVersions: []string{"v1"}, Resources: []string{"resourceclaims"}},
			}}}},
			Validations: []admissionv1.Validation{{Expression: "true"}},
		},
	}
	if _, err := client.AdmissionregistrationV1().ValidatingAdmissionPolicies().Create(ctx, policy, metav1.CreateOptions{}); err != nil {
		return nil, err
	}
	set := &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: "agent", Labels: labels},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: map[string]string{v1alpha1.AnnotationViewerAccount: viewerAccount}},
				Spec:       agentSpec(port),
			},
		},
	}
	return client.AppsV1().DaemonSets(driverNamespace).Create(ctx, set, metav1.CreateOptions{})
}

func agentSpec(port int32) corev1.PodSpec {
	return corev1.PodSpec{ServiceAccountName: "agent", Containers: []corev1.Container{{
		Name: "agent", Image: "none", Args: []string{"--driver-name=" + v1alpha1.DriverName}, Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: port}},
	}}}
}

// writeAgent writes a pod of the DaemonSet on a node.
func (u *fleetInUse) writeAgent(ctx context.Context, client kubernetes.Interface, set *appsv1.DaemonSet, node string) error {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "agent-" + node, Labels: set.Spec.Template.Labels,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("DaemonSet"))},
		},
		Spec: agentSpec(u.agentPort),
	}
	p.Spec.NodeName = node
	p.Annotations = set.Spec.Template.Annotations
	p, err := client.CoreV1().Pods(driverNamespace).Create(ctx, p, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	setRunning(p)
	p.Status.PodIP, p.Status.PodIPs = u.agentIP, []corev1.PodIP{{IP: u.agentIP}}
	_, err = client.CoreV1().Pods(driverNamespace).UpdateStatus(ctx, p, metav1.UpdateOptions{})
	return err
}

func setRunning(p *corev1.Pod) {
	now := metav1.Now()
	p.Status = corev1.PodStatus{
		Phase: corev1.PodRunning, StartTime: &now, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: now}},
		ContainerStatuses: []corev1.ContainerStatus{{
			Name: p.Spec.Containers[0].Name, Ready: true, Started: ptr.To(true), State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}},
		}},
	}
}

// writeUser writes a pod with a claim for the results of a pattern's node, for another node.
// Some pods wait, and their claim is for more GPUs than a node has.
func writeUser(ctx context.Context, client kubernetes.Interface, i int, from, to string, a allocation) error {
	namespace, name := team(i), podName(i)
	p := pod(name, a.kind)
	p.Spec.SchedulerName = "none" // the scheduler would use the processors
	claim := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: resourceapi.ResourceClaimSpec{Devices: *a.kind.devices}}
	waits := i%waitingPart == 0
	if waits {
		claim.Spec.Devices = *linked(9)
	} else {
		p.Spec.NodeName = to
	}
	claim, err := client.ResourceV1().ResourceClaims(namespace).Create(ctx, claim, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	if p, err = client.CoreV1().Pods(namespace).Create(ctx, p, metav1.CreateOptions{}); err != nil {
		return err
	}
	if waits {
		p.Status.Conditions = []corev1.PodCondition{{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, LastTransitionTime: metav1.Now(),
			Message: "0/1000 nodes are available: cannot allocate all claims",
		}}
		_, err = client.CoreV1().Pods(namespace).UpdateStatus(ctx, p, metav1.UpdateOptions{})
		return err
	}
	setRunning(p)
	if _, err = client.CoreV1().Pods(namespace).UpdateStatus(ctx, p, metav1.UpdateOptions{}); err != nil {
		return err
	}
	claim.Status.Allocation = allocated(from, to, a)
	claim.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: p.Name, UID: p.UID}}
	if _, err = client.ResourceV1().ResourceClaims(namespace).UpdateStatus(ctx, claim, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("claim %s of %s: %w", name, strings.Join([]string{from, to}, " for "), err)
	}
	return nil
}
