// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"cmp"
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// Row is one device of one container of one pod.
type Row struct {
	Namespace, Pod, Container string
	// Request as the claim's result names it: "gpu", or "gpu/hopper" for a
	// choice of firstAvailable.
	Request string
	Device  string
	// UUID of the GPU or MIG instance, from the container's metadata file; "-" if the
	// file does not contain it.
	UUID string
	// Saw are the device nodes of GPUs and MIG capabilities inside the container.
	Saw []string
}

// Report returns the devices that pods hold in a namespace: a row for each device of
// each container, ordered by pod, container and device. Pods that are not running
// have one row without a device.
func (c *Cluster) Report(ctx context.Context, namespace string) ([]Row, error) {
	pods, err := c.Client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	var rows []Row
	for i := range pods.Items {
		pod := &pods.Items[i]
		if pod.Status.Phase != corev1.PodRunning {
			rows = append(rows, Row{Namespace: pod.Namespace, Pod: pod.Name, Container: "-", Request: "-", Device: string(pod.Status.Phase), UUID: "-"})
			continue
		}
		for _, container := range pod.Spec.Containers {
			found, err := c.containerRows(ctx, pod, container)
			if err != nil {
				return nil, err
			}
			rows = append(rows, found...)
		}
	}
	slices.SortFunc(rows, func(a, b Row) int {
		return cmp.Or(cmp.Compare(a.Pod, b.Pod), cmp.Compare(a.Container, b.Container), cmp.Compare(a.Device, b.Device))
	})
	return rows, nil
}

func (c *Cluster) containerRows(ctx context.Context, pod *corev1.Pod, container corev1.Container) ([]Row, error) {
	sight, err := c.Sight(ctx, pod.Namespace, pod.Name, container.Name)
	if err != nil {
		return nil, err
	}
	var rows []Row
	add := func(claim *resourceapi.ResourceClaim, wanted string) {
		if claim.Status.Allocation == nil {
			return // it was deallocated since the pod was listed
		}
		for _, result := range claim.Status.Allocation.Devices.Results {
			request, _, _ := strings.Cut(result.Request, "/")
			if wanted != "" && wanted != request {
				continue
			}
			rows = append(rows, Row{
				Namespace: pod.Namespace, Pod: pod.Name, Container: container.Name, Request: result.Request, Device: result.Device,
				UUID: ptr.Deref(sight.Attributes(result.Device)["uuid"].StringValue, "-"),
				Saw:  append(sight.GPUs(), sight.Capabilities()...),
			})
		}
	}
	for _, used := range container.Resources.Claims {
		claim, err := c.Claim(ctx, pod, used.Name)
		if err != nil {
			return nil, err
		}
		add(claim, used.Request)
	}
	if extended := pod.Status.ExtendedResourceClaimStatus; extended != nil {
		claim, err := c.Client.ResourceV1().ResourceClaims(pod.Namespace).Get(ctx, extended.ResourceClaimName, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		for _, mapping := range extended.RequestMappings {
			if mapping.ContainerName == container.Name {
				add(claim, mapping.RequestName)
			}
		}
	}
	return rows, nil
}

// Devices are the devices our driver publishes, by name.
func (c *Cluster) Devices(ctx context.Context) (map[string]resourceapi.Device, error) {
	devices := map[string]resourceapi.Device{}
	err := c.EachSlice(ctx, func(slice resourceapi.ResourceSlice) {
		for _, device := range slice.Spec.Devices {
			devices[device.Name] = device
		}
	})
	return devices, err
}

// EachSlice visits the ResourceSlices of our driver, by name.
func (c *Cluster) EachSlice(ctx context.Context, visit func(resourceapi.ResourceSlice)) error {
	list, err := c.Client.ResourceV1().ResourceSlices().List(ctx, metav1.ListOptions{FieldSelector: "spec.driver=" + DriverName})
	if err != nil {
		return err
	}
	slices.SortFunc(list.Items, func(a, b resourceapi.ResourceSlice) int { return cmp.Compare(a.Name, b.Name) })
	for _, slice := range list.Items {
		visit(slice)
	}
	return nil
}
