// SPDX-License-Identifier: Apache-2.0

package evict

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/cordon"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/rows"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// cleanupTime is the time for removing rules after the end of a context.
const cleanupTime = 10 * time.Second

// Room is the room to make for a pod.
type Room struct {
	Pod   *corev1.Pod
	Found fleet.Room
	// Kept are the rules that keep the devices for the pod.
	Kept []*resourceapi.DeviceTaintRule
	// MustKeep refuses an API server that does not serve rules.
	MustKeep bool
	// Evicted is called after the eviction of each pod; nil for nothing to call.
	Evicted func(pod *corev1.Pod)
}

// MakeRoom keeps the devices, evicts the pods, and waits until the pod has its node. It begins when the API
// server would evict each of the pods. It always removes the rules, also when ctx has ended.
func (r Requests) MakeRoom(ctx context.Context, room Room) (err error) {
	defer func() {
		cleanup, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTime)
		defer cancel()
		err = errors.Join(err, r.Remove(cleanup, room.Kept))
	}()
	placed, err := r.begin(ctx, room)
	var evicted []string
	if err == nil && !placed {
		if evicted, err = r.evictAll(ctx, room); err == nil {
			err = r.waitForNode(ctx, room)
		}
	}
	switch {
	case err != nil && len(evicted) > 0:
		return fmt.Errorf("room for pod %s: %w; pods that were evicted: %s", fleet.FullName(room.Pod), err, rows.List(evicted))
	case err != nil:
		return fmt.Errorf("room for pod %s: no pod was evicted: %w", fleet.FullName(room.Pod), err)
	}
	return nil
}

// begin keeps the devices, and waits until the API server would evict each of the pods. It reports whether the
// waiting pod has its node then.
func (r Requests) begin(ctx context.Context, room Room) (placed bool, err error) {
	if err := r.create(ctx, room); err != nil {
		return false, err
	}
	for _, pod := range room.Found.Pods {
		if _, err := r.Evict(ctx, pod, true); err != nil {
			return false, err
		}
	}
	// A PodDisruptionBudget may have refused the evictions for minutes.
	node, err := r.nodeOf(ctx, room.Pod)
	return node != "", err
}

// evictAll evicts the pods. It returns the evicted ones, also with an error.
func (r Requests) evictAll(ctx context.Context, room Room) (evicted []string, err error) {
	for _, pod := range room.Found.Pods {
		ok, err := r.Evict(ctx, pod, false)
		if err != nil {
			return evicted, err
		}
		if ok {
			evicted = append(evicted, fleet.FullName(pod))
			if room.Evicted != nil {
				room.Evicted(pod)
			}
		}
	}
	return evicted, nil
}

// create creates the rules that keep devices. Another run can have one of them.
func (r Requests) create(ctx context.Context, room Room) error {
	return ForEach(ctx, room.Kept, func(ctx context.Context, rule *resourceapi.DeviceTaintRule) error {
		_, err := r.Client.ResourceV1().DeviceTaintRules().Create(ctx, rule, metav1.CreateOptions{})
		switch {
		case apierrors.IsNotFound(err) && !room.MustKeep:
			r.Say("the API server does not serve DeviceTaintRules, so device %s is not kept", cordon.DeviceOf(rule))
			return nil
		case apierrors.IsAlreadyExists(err):
			return fmt.Errorf("device %s: %w: another run keeps it: %w", cordon.DeviceOf(rule), gpu.ErrInUse, err)
		case err != nil:
			return r.Failed("create devicetaintrules.resource.k8s.io", err)
		}
		return nil
	})
}

// Remove removes rules that keep devices. It leaves those of another room, and of another run for the same pod.
func (r Requests) Remove(ctx context.Context, kept []*resourceapi.DeviceTaintRule) error {
	rules := r.Client.ResourceV1().DeviceTaintRules()
	return ForEach(ctx, kept, func(ctx context.Context, rule *resourceapi.DeviceTaintRule) error {
		now, err := rules.Get(ctx, rule.Name, metav1.GetOptions{})
		if err == nil && now.Labels[v1alpha1.LabelRoom] == rule.Labels[v1alpha1.LabelRoom] &&
			now.Annotations[v1alpha1.AnnotationRoomUntil] == rule.Annotations[v1alpha1.AnnotationRoomUntil] {
			err = rules.Delete(ctx, rule.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(now.UID))})
		}
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("DeviceTaintRule %s stays: %w", rule.Name, r.Failed("delete devicetaintrules.resource.k8s.io", err))
		}
		return nil
	})
}

// waitForNode waits until the pods and their claims are gone and the waiting pod has a node.
func (r Requests) waitForNode(ctx context.Context, room Room) error {
	pod, found := room.Pod, room.Found
	for _, p := range slices.Concat(found.Pods, found.Ending) {
		if err := r.WaitForPod(ctx, p); err != nil {
			return err
		}
	}
	r.nominate(ctx, pod, found.Node)
	held, said := len(found.Released), ""
	err := Until(ctx, func() (bool, error) {
		if node, err := r.nodeOf(ctx, pod); err != nil || node != "" {
			return node != "", err
		}
		if held > 0 {
			var err error
			if held, err = r.held(ctx, found.Released); err != nil {
				return false, err
			}
		}
		said = "its devices are free, and the scheduler has not placed it"
		if held > 0 {
			said = fmt.Sprintf("%s not released yet", fleet.NumberVerb(held, "claim", "is", "are"))
		}
		return false, nil
	})
	if err != nil && said != "" {
		return fmt.Errorf("%s: %w", said, err)
	}
	return err
}

// nodeOf returns the node of a pod; "" if it waits.
func (r Requests) nodeOf(ctx context.Context, pod *corev1.Pod) (string, error) {
	now, err := r.Client.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
	switch {
	case err != nil:
		return "", r.Failed("get pods", err)
	case now.UID != pod.UID || fleet.Ends(now):
		return "", fmt.Errorf("%w: the pod has ended or was replaced", gpu.ErrNotFound)
	case now.Spec.NodeName != "":
		r.Say("pod %s has its node: %s", fleet.FullName(pod), now.Spec.NodeName)
	}
	return now.Spec.NodeName, nil
}

// held returns the number of claims that still have an allocation.
func (r Requests) held(ctx context.Context, claims []*resourceapi.ResourceClaim) (n int, err error) {
	for _, claim := range claims {
		now, err := r.Client.ResourceV1().ResourceClaims(claim.Namespace).Get(ctx, claim.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
		case err != nil:
			return n, r.Failed("get resourceclaims.resource.k8s.io", err)
		case now.UID == claim.UID && now.Status.Allocation != nil:
			n++
		}
	}
	return n, nil
}

// nominate has the scheduler try the node first, and count the pod's cpu and memory there for pods of the
// same or a lower priority. The pod gets its devices without that, too.
func (r Requests) nominate(ctx context.Context, pod *corev1.Pod, node string) {
	patch := fmt.Sprintf(`{"metadata":{"uid":%q},"status":{"nominatedNodeName":%q}}`, pod.UID, node)
	if _, err := r.Client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, "status"); err == nil {
		r.Say("node %s is nominated for pod %s", node, fleet.FullName(pod))
	}
}
