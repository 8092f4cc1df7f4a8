// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"context"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/doctor"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/lists"
)

// driverPods reads the policies of the chart, and by them the pods of the driver.
func (o *options) driverPods(ctx context.Context, client kubernetes.Interface) (*doctor.Cluster, error) {
	c := &doctor.Cluster{Driver: o.driver, Unread: map[doctor.List]string{}}
	if err := readPolicies(ctx, client, c); err != nil {
		return nil, err
	}
	return c, o.readDriver(ctx, client, c)
}

// readDriver reads the DaemonSets of the driver and their pods, after the policies. It
// reads the driver's namespaces only: a tenant can create pods and DaemonSets with the
// driver's labels in the tenant's own namespace.
func (o *options) readDriver(ctx context.Context, client kubernetes.Interface, c *doctor.Cluster) error {
	namespaces := o.driverNamespaces(c)
	if reason := c.Unread[doctor.Policies]; len(namespaces) == 0 && reason != "" {
		c.Unread[doctor.DriverPods] = reason + " They name the namespace of the driver; --driver-namespace does, too."
	}
	for _, namespace := range namespaces {
		if err := readNamespace(ctx, client, c, namespace); err != nil {
			return err
		}
	}
	return nil
}

// driverNamespaces returns the namespace that the user names, or the ones that the policies of
// the chart name. Only administrators write policies, which belong to no namespace.
func (o *options) driverNamespaces(c *doctor.Cluster) []string {
	if o.driverNamespace != "" {
		return []string{o.driverNamespace}
	}
	var all []string
	for _, policy := range c.Policies {
		if namespace := policy.Annotations[v1alpha1.AnnotationDriverNamespace]; namespace != "" {
			all = append(all, namespace)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// readNamespace reads the driver's DaemonSets and pods in one of its namespaces, unless these
// are of another driver.
func readNamespace(ctx context.Context, client kubernetes.Interface, c *doctor.Cluster, namespace string) error {
	var sets []*appsv1.DaemonSet
	if err := lists.Into(ctx, &sets, selected(client.AppsV1().DaemonSets(namespace).List)); err != nil {
		return noteIn(c, doctor.DaemonSets, namespace, err)
	}
	isOurs := func(set *appsv1.DaemonSet) bool {
		return set.Labels[doctor.ComponentLabel] == doctor.AgentComponent && doctor.Argument(&set.Spec.Template.Spec, "driver-name") == c.Driver
	}
	if !slices.ContainsFunc(sets, isOurs) {
		return nil
	}
	var pods []*corev1.Pod
	if err := lists.Into(ctx, &pods, selected(client.CoreV1().Pods(namespace).List)); err != nil {
		return noteIn(c, doctor.DriverPods, namespace, err)
	}
	c.DaemonSets = append(c.DaemonSets, sets...)
	for _, set := range sets {
		for _, pod := range pods {
			if isPodOf(set, pod) {
				add(c, set, pod)
			}
		}
	}
	return nil
}

// noteIn records that a list of a driver's namespace could not be read. Without the DaemonSets,
// the driver's pods are not known.
func noteIn(c *doctor.Cluster, list doctor.List, namespace string, err error) error {
	if !apierrors.IsForbidden(err) {
		return note(c, list, err)
	}
	c.Unread[doctor.DriverPods] = fmt.Sprintf("You have no right to list %s in the namespace %s.", list, namespace)
	return nil
}

func add(c *doctor.Cluster, set *appsv1.DaemonSet, pod *corev1.Pod) {
	component := set.Labels[doctor.ComponentLabel]
	switch {
	case component != doctor.AgentComponent && component != doctor.SupervisorComponent:
	case pod.Spec.NodeName == "":
		c.Pending = append(c.Pending, pod)
	case component == doctor.AgentComponent:
		c.Agents = append(c.Agents, pod)
	default:
		c.Supervisors = append(c.Supervisors, pod)
	}
}

// isPodOf reports whether the DaemonSet controls the pod, which then runs with its account.
func isPodOf(set *appsv1.DaemonSet, pod *corev1.Pod) bool {
	return pod.Namespace == set.Namespace && metav1.IsControlledBy(pod, set) && pod.Spec.ServiceAccountName == set.Spec.Template.Spec.ServiceAccountName
}

// setOf returns the DaemonSet that controls a pod of the driver; nil if none does.
func setOf(c *doctor.Cluster, pod *corev1.Pod) *appsv1.DaemonSet {
	return fleet.First(c.DaemonSets, func(set *appsv1.DaemonSet) bool { return isPodOf(set, pod) })
}
