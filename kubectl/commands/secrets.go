// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"encoding/json"
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet"
)

// leftOut replaces text that may be secret.
const leftOut = "(left out)"

// object is an API object with metadata.
type object[T any] interface {
	*T
	runtime.Object
	metav1.Object
}

// cleaned returns copies of objects without text that may be secret: annotations of others,
// the fields' managers, parameters and data of other drivers than the named one, and the
// fields that reduce removes.
func cleaned[T any, P object[T]](driver string, all []P, reduce func(P)) []P {
	copies := []P{}
	for _, o := range all {
		c := o.DeepCopyObject().(P) //nolint:forcetypeassert // a copy has the type of its original
		c.SetManagedFields(nil)
		annotations := c.GetAnnotations()
		for name := range annotations {
			if !strings.HasPrefix(name, v1alpha1.GroupName+"/") {
				delete(annotations, name)
			}
		}
		reduce(c)
		emptyForeign(driver, "", reflect.ValueOf(c))
		copies = append(copies, c)
	}
	return copies
}

// emptyForeign empties each [runtime.RawExtension] in a value, except the driver's own ones. It
// finds them by their type, so a field that a later release of Kubernetes adds is emptied too.
// owner is the field Driver of the innermost struct that has one.
func emptyForeign(driver, owner string, v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			emptyForeign(driver, owner, v.Elem())
		}
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			emptyForeign(driver, owner, v.Index(i))
		}
	case reflect.Map:
		for _, key := range v.MapKeys() {
			// Values of maps cannot be changed in place.
			value := reflect.New(v.Type().Elem()).Elem()
			value.Set(v.MapIndex(key))
			emptyForeign(driver, owner, value)
			v.SetMapIndex(key, value)
		}
	case reflect.Struct:
		emptyStruct(driver, owner, v)
	}
}

func emptyStruct(driver, owner string, v reflect.Value) {
	if raw, ok := v.Addr().Interface().(*runtime.RawExtension); ok {
		if owner != driver || !isOurs(raw) {
			*raw = runtime.RawExtension{Raw: []byte(`{"parameters": "` + leftOut + `"}`)}
		}
		return
	}
	if field := v.FieldByName("Driver"); field.IsValid() && field.Kind() == reflect.String {
		owner = field.String()
	}
	for i := range v.NumField() {
		if v.Type().Field(i).IsExported() {
			emptyForeign(driver, owner, v.Field(i))
		}
	}
}

// isOurs reports whether a value is of the driver's API group: a claim can have any JSON for
// any driver.
func isOurs(raw *runtime.RawExtension) bool {
	var kind metav1.TypeMeta
	return json.Unmarshal(raw.Raw, &kind) == nil && kind.GroupVersionKind().Group == v1alpha1.GroupName
}

// toNodes leaves out rules about other pods, which commands ignore, too.
func toNodes(a *corev1.Affinity) *corev1.Affinity {
	if a == nil || a.NodeAffinity == nil {
		return nil
	}
	return &corev1.Affinity{NodeAffinity: a.NodeAffinity}
}

func keepAll[T any](*T) {}

// reduceClaim leaves out labels, and addresses of networks.
func reduceClaim(c *resourceapi.ResourceClaim) {
	c.Labels = nil
	for i := range c.Status.Devices {
		c.Status.Devices[i].NetworkData = nil
	}
}

// reduceNode reduces a node to the fields that concern devices and scheduling: without its
// addresses, identifiers of the machine and of the cloud, and names of images and volumes.
func reduceNode(n *corev1.Node) {
	info := n.Status.NodeInfo
	n.Spec = corev1.NodeSpec{Taints: n.Spec.Taints, Unschedulable: n.Spec.Unschedulable}
	n.Status = corev1.NodeStatus{
		Capacity: n.Status.Capacity, Allocatable: n.Status.Allocatable, Conditions: n.Status.Conditions,
		NodeInfo: corev1.NodeSystemInfo{
			BootID: info.BootID, KernelVersion: info.KernelVersion, OSImage: info.OSImage, ContainerRuntimeVersion: info.ContainerRuntimeVersion,
			KubeletVersion: info.KubeletVersion, OperatingSystem: info.OperatingSystem, Architecture: info.Architecture, Swap: info.Swap,
		},
		DeclaredFeatures: n.Status.DeclaredFeatures,
	}
}

// reducePod reduces a user's pod to the fields that concern devices and scheduling.
func reducePod(pod *corev1.Pod) {
	reduced := func(c corev1.Container) corev1.Container {
		return corev1.Container{Name: c.Name, Resources: c.Resources, RestartPolicy: c.RestartPolicy}
	}
	spec := pod.Spec
	pod.Labels = nil
	pod.Spec = corev1.PodSpec{
		InitContainers: fleet.Each(spec.InitContainers, reduced), Containers: fleet.Each(spec.Containers, reduced),
		ResourceClaims: spec.ResourceClaims, NodeName: spec.NodeName, NodeSelector: spec.NodeSelector, Affinity: toNodes(spec.Affinity),
		Tolerations: spec.Tolerations, Priority: spec.Priority, PriorityClassName: spec.PriorityClassName, SchedulerName: spec.SchedulerName,
	}
	pod.Status = corev1.PodStatus{
		Phase: pod.Status.Phase, Conditions: pod.Status.Conditions, Reason: pod.Status.Reason,
		ResourceClaimStatuses: pod.Status.ResourceClaimStatuses, ExtendedResourceClaimStatus: pod.Status.ExtendedResourceClaimStatus,
	}
}

// reduceDriverPod reduces a pod of the driver to its settings, without the values of
// environment variables.
func reduceDriverPod(pod *corev1.Pod) {
	reduced := func(c corev1.Container) corev1.Container {
		return corev1.Container{
			Name: c.Name, Image: c.Image, Command: c.Command, Args: c.Args, Ports: c.Ports, Resources: c.Resources, VolumeMounts: c.VolumeMounts,
			SecurityContext: c.SecurityContext, RestartPolicy: c.RestartPolicy,
			Env: fleet.Each(c.Env, func(env corev1.EnvVar) corev1.EnvVar { return corev1.EnvVar{Name: env.Name, Value: leftOut} }),
		}
	}
	volumes := fleet.Each(pod.Spec.Volumes, func(v corev1.Volume) corev1.Volume {
		return corev1.Volume{Name: v.Name, VolumeSource: corev1.VolumeSource{HostPath: v.HostPath, EmptyDir: v.EmptyDir, ConfigMap: v.ConfigMap}}
	})
	spec := pod.Spec
	pod.Spec = corev1.PodSpec{
		InitContainers: fleet.Each(spec.InitContainers, reduced), Containers: fleet.Each(spec.Containers, reduced), Volumes: volumes,
		ServiceAccountName: spec.ServiceAccountName, NodeName: spec.NodeName, NodeSelector: spec.NodeSelector, Affinity: toNodes(spec.Affinity), Tolerations: spec.Tolerations,
		HostNetwork: spec.HostNetwork, HostPID: spec.HostPID, SecurityContext: spec.SecurityContext, PriorityClassName: spec.PriorityClassName,
		TerminationGracePeriodSeconds: spec.TerminationGracePeriodSeconds, RestartPolicy: spec.RestartPolicy, RuntimeClassName: spec.RuntimeClassName,
	}
	status := pod.Status
	pod.Status = corev1.PodStatus{
		Phase: status.Phase, Conditions: status.Conditions, Reason: status.Reason, Message: status.Message, StartTime: status.StartTime, QOSClass: status.QOSClass,
		InitContainerStatuses: fleet.Each(status.InitContainerStatuses, reduceStatus), ContainerStatuses: fleet.Each(status.ContainerStatuses, reduceStatus),
	}
}

func reduceStatus(s corev1.ContainerStatus) corev1.ContainerStatus {
	return corev1.ContainerStatus{
		Name: s.Name, State: s.State, LastTerminationState: s.LastTerminationState, Ready: s.Ready, RestartCount: s.RestartCount,
		Image: s.Image, ImageID: s.ImageID, Started: s.Started,
	}
}

// reduceConfigMap leaves out files that are not text.
func reduceConfigMap(c *corev1.ConfigMap) { c.BinaryData = nil }
