// SPDX-License-Identifier: Apache-2.0

package rights

import (
	"context"
	"encoding/json"

	authv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
)

// dryRun is for everything that would change the cluster.
func dryRun() []string { return []string{metav1.DryRunAll} }

func (s *scene) createSlice(ctx context.Context, as who, slice *resourceapi.ResourceSlice) error {
	_, err := s.clients[as].ResourceV1().ResourceSlices().Create(ctx, slice, metav1.CreateOptions{DryRun: dryRun()})
	return err
}

// updateSlice changes the generation of a pool, as the controller does.
func (s *scene) updateSlice(ctx context.Context, as who, name string) error {
	// Read with the administrator's rights, so that it is the update that is tried.
	slice, err := s.clients[admin].ResourceV1().ResourceSlices().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	slice.Spec.Pool.Generation++
	_, err = s.clients[as].ResourceV1().ResourceSlices().Update(ctx, slice, metav1.UpdateOptions{DryRun: dryRun()})
	return err
}

func (s *scene) patchSlice(ctx context.Context, as who, name string) error {
	_, err := s.clients[as].ResourceV1().ResourceSlices().Patch(ctx, name, types.MergePatchType,
		[]byte(`{"spec":{"pool":{"generation":7}}}`), metav1.PatchOptions{DryRun: dryRun()})
	return err
}

func (s *scene) deleteSlice(ctx context.Context, as who, name string) error {
	return s.clients[as].ResourceV1().ResourceSlices().Delete(ctx, name, metav1.DeleteOptions{DryRun: dryRun()})
}

// report writes the status of a driver's devices of a claim.
func (s *scene) report(ctx context.Context, as who, name, driver string, options metav1.PatchOptions) error {
	return s.changeStatus(ctx, as, name, options, func(status *resourceapi.ResourceClaimStatus) {
		for _, r := range status.Allocation.Devices.Results {
			if r.Driver == driver {
				status.Devices = append(status.Devices, resourceapi.AllocatedDeviceStatus{Driver: r.Driver, Pool: r.Pool, Device: r.Device})
			}
		}
	})
}

// changeStatus patches the status of a claim, as the agent does.
func (s *scene) changeStatus(ctx context.Context, as who, name string, options metav1.PatchOptions, change func(*resourceapi.ResourceClaimStatus)) error {
	claim, err := s.clients[admin].ResourceV1().ResourceClaims(tenant).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	change(&claim.Status)
	// Null removes a field.
	patch, err := json.Marshal(map[string]any{"status": map[string]any{
		"allocation": claim.Status.Allocation, "devices": claim.Status.Devices, "reservedFor": claim.Status.ReservedFor,
	}})
	if err != nil {
		return err
	}
	_, err = s.clients[as].ResourceV1().ResourceClaims(tenant).Patch(ctx, name, types.MergePatchType, patch, options, "status")
	return err
}

// updateStatus writes the status of a claim without a change.
func (s *scene) updateStatus(ctx context.Context, as who, name string) error {
	claim, err := s.clients[admin].ResourceV1().ResourceClaims(tenant).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	_, err = s.clients[as].ResourceV1().ResourceClaims(tenant).UpdateStatus(ctx, claim, metav1.UpdateOptions{DryRun: dryRun()})
	return err
}

func (s *scene) reserve(ctx context.Context, as who, name string) error {
	return s.changeStatus(ctx, as, name, metav1.PatchOptions{DryRun: dryRun()}, func(status *resourceapi.ResourceClaimStatus) {
		status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: "somebody", UID: "1"}}
	})
}

func (s *scene) allocate(ctx context.Context, as who, name string) error {
	return s.changeStatus(ctx, as, name, metav1.PatchOptions{DryRun: dryRun()}, func(status *resourceapi.ResourceClaimStatus) {
		status.Allocation = &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{Results: []resourceapi.DeviceRequestAllocationResult{
			{Request: "gpu", Driver: driver, Pool: s.nodeA, Device: "gpu-0"},
		}}}
	})
}

// deallocate takes a claim's devices away.
func (s *scene) deallocate(ctx context.Context, as who, name string) error {
	return s.changeStatus(ctx, as, name, metav1.PatchOptions{DryRun: dryRun()}, func(status *resourceapi.ResourceClaimStatus) {
		status.Allocation, status.Devices = nil, nil
	})
}

func (s *scene) labelNode(ctx context.Context, as who, node string, subresources ...string) error {
	return s.patchNode(ctx, as, node, `{"metadata":{"labels":{"gpu.nvidia.com/offer":"mig"}}}`, subresources...)
}

func (s *scene) patchNode(ctx context.Context, as who, node, patch string, subresources ...string) error {
	_, err := s.clients[as].CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, []byte(patch), metav1.PatchOptions{DryRun: dryRun()}, subresources...)
	return err
}

func (s *scene) labelClaim(ctx context.Context, as who, name string) error {
	_, err := s.clients[as].ResourceV1().ResourceClaims(tenant).Patch(ctx, name, types.MergePatchType,
		[]byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{DryRun: dryRun()})
	return err
}

// healthEvent is an event as the agent of a node creates it on a pod.
func (s *scene) healthEvent(node string) *eventsv1.Event {
	return &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "pod.0123456789abcdef"},
		EventTime:  metav1.NowMicro(), ReportingController: driver, ReportingInstance: node, Action: "CheckHealth",
		Type: corev1.EventTypeWarning, Reason: v1alpha1.ReasonGPUUnhealthy, Note: "the GPU has fallen off the bus",
		Regarding: corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: tenant, Name: "pod", UID: "uid"},
	}
}

func (s *scene) createEvent(ctx context.Context, as who, event *eventsv1.Event) error {
	_, err := s.clients[as].EventsV1().Events(event.Namespace).Create(ctx, event, metav1.CreateOptions{DryRun: dryRun()})
	return err
}

// createCoreEvent creates an event of the core group, of another controller.
func (s *scene) createCoreEvent(ctx context.Context, as who) error {
	_, err := s.clients[as].CoreV1().Events(tenant).Create(ctx, &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: tenant, Name: "pod.0123456789abcdef"},
		InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: tenant, Name: "pod"},
		Type:           corev1.EventTypeWarning, Reason: v1alpha1.ReasonGPUUnhealthy, Message: "text", Source: corev1.EventSource{Component: "kubelet"},
	}, metav1.CreateOptions{DryRun: dryRun()})
	return err
}

func (s *scene) patchEvent(ctx context.Context, as who) error {
	_, err := s.clients[as].EventsV1().Events(tenant).Patch(ctx, "old", types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{DryRun: dryRun()})
	return err
}

func (s *scene) deleteEvent(ctx context.Context, as who) error {
	return s.clients[as].EventsV1().Events(tenant).Delete(ctx, "old", metav1.DeleteOptions{DryRun: dryRun()})
}

func (s *scene) createClaim(ctx context.Context, as who) error {
	_, err := s.clients[as].ResourceV1().ResourceClaims(tenant).Create(ctx, &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "try-"},
		Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{
			{Name: "gpu", Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: "gpu.nvidia.com"}},
		}}},
	}, metav1.CreateOptions{DryRun: dryRun()})
	return err
}

func (s *scene) createPod(ctx context.Context, as who, namespace string) error {
	_, err := s.clients[as].CoreV1().Pods(namespace).Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "try-"},
		Spec: corev1.PodSpec{
			// A pod of the agent's account would have the agent's rights.
			AutomountServiceAccountToken: ptr.To(true),
			Containers:                   []corev1.Container{{Name: "c", Image: "i"}},
		},
	}, metav1.CreateOptions{DryRun: dryRun()})
	return err
}

func (s *scene) createToken(ctx context.Context, as who, account string) error {
	_, err := s.clients[as].CoreV1().ServiceAccounts(driverNamespace).CreateToken(ctx, account, &authv1.TokenRequest{}, metav1.CreateOptions{DryRun: dryRun()})
	return err
}

// proxy sends a request to a pod that has no address, which is not found then.
func (s *scene) proxy(ctx context.Context, as who, namespace string) error {
	err := s.clients[as].CoreV1().RESTClient().Get().Namespace(namespace).Resource("pods").Name("agent-b:8080").SubResource("proxy").Suffix("v1/node").Do(ctx).Error()
	if apierrors.IsForbidden(err) {
		return err
	}
	return nil
}

func (s *scene) review(ctx context.Context, as who) error {
	_, err := s.clients[as].AuthenticationV1().TokenReviews().Create(ctx, &authv1.TokenReview{Spec: authv1.TokenReviewSpec{Token: "made up"}}, metav1.CreateOptions{})
	return err
}

func (s *scene) reviewAccess(ctx context.Context, as who) error {
	_, err := s.clients[as].AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: "someone", ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "get", Resource: "pods"},
	}}, metav1.CreateOptions{})
	return err
}

// actAs reads secrets with the rights of another user.
func (s *scene) actAs(ctx context.Context, as who, other string) error {
	return s.clients[as].CoreV1().RESTClient().Get().SetHeader("Impersonate-User", other).AbsPath("/api/v1/nodes").Do(ctx).Error()
}
