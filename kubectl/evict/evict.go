// SPDX-License-Identifier: Apache-2.0

// Package evict ends pods by the eviction API, and keeps devices for a pod meanwhile. Package cordon
// decides which ones. Commands and the controller of package roomer share the steps.
package evict

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet"
)

const (
	// PollTime is the time between reads of pods and claims that end.
	PollTime = time.Second
	// requestsAtATime is the most requests to the API server at a time.
	requestsAtATime = 8
)

// Requests sends the requests to the API server.
type Requests struct {
	Client kubernetes.Interface
	// Say reports a step.
	Say func(format string, args ...any)
	// Failed returns the error of a request that failed.
	Failed func(request string, err error) error
	// GracePeriod is the seconds for each pod to end; negative for the pod's own time.
	GracePeriod int64
}

// Evict evicts a pod, and reports whether it did: the pod can have ended before. It repeats the request while a
// PodDisruptionBudget refuses it. With tryOnly, the API server only checks whether it would.
func (r Requests) Evict(ctx context.Context, pod *corev1.Pod, tryOnly bool) (evicted bool, err error) {
	name := fleet.FullName(pod)
	options := &metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(pod.UID))}
	if tryOnly {
		options.DryRun = []string{metav1.DryRunAll}
	}
	if r.GracePeriod >= 0 {
		options.GracePeriodSeconds = &r.GracePeriod
	}
	eviction := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}, DeleteOptions: options}
	pause := wait.Backoff{Duration: time.Second, Factor: 1.5, Steps: 100, Cap: 10 * time.Second}
	for said := ""; ; {
		err := r.Client.PolicyV1().Evictions(pod.Namespace).Evict(ctx, eviction)
		switch {
		case err == nil:
			if !tryOnly {
				r.Say("pod %s evicted", name)
			}
			return !tryOnly, nil
		case apierrors.IsNotFound(err), apierrors.IsConflict(err): // it is gone, and another may have its name
			return false, nil
		case ctx.Err() != nil:
			return false, fmt.Errorf("pod %s is not evicted: %w", name, context.Cause(ctx))
		case apierrors.IsTooManyRequests(err), apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		default:
			return false, fmt.Errorf("pod %s: %w", name, r.Failed("create pods/eviction", err))
		}
		if why := messages(err); why != said {
			said = why
			r.Say("pod %s waits: %s", name, why)
		}
		select {
		case <-ctx.Done():
			return false, fmt.Errorf("pod %s is not evicted: %s: %w", name, said, context.Cause(ctx))
		case <-time.After(pause.Step()):
		}
	}
}

// messages returns the message of an API server's refusal with those of its causes.
func messages(err error) string {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return err.Error()
	}
	all := []string{status.Status().Message}
	if details := status.Status().Details; details != nil {
		for _, cause := range details.Causes {
			all = append(all, cause.Message)
		}
	}
	return strings.Join(all, " ")
}

// WaitForPod waits until the pod is gone, or has ended.
func (r Requests) WaitForPod(ctx context.Context, pod *corev1.Pod) error {
	err := Until(ctx, func() (bool, error) {
		now, err := r.Client.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
		if err != nil {
			return apierrors.IsNotFound(err), r.Failed("get pods", err)
		}
		return now.UID != pod.UID || fleet.HasEnded(now), nil
	})
	if err != nil {
		return fmt.Errorf("pod %s has not ended: %w", fleet.FullName(pod), err)
	}
	r.Say("pod %s has ended", fleet.FullName(pod))
	return nil
}

// Until polls done until it returns true, or an error, or until ctx expires.
func Until(ctx context.Context, done func() (bool, error)) error {
	err := wait.PollUntilContextCancel(ctx, PollTime, true, func(context.Context) (bool, error) {
		ok, err := done()
		if ok {
			return true, nil
		}
		return false, err
	})
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// ForEach sends a request for each rule. It returns the first error.
func ForEach(ctx context.Context, rules []*resourceapi.DeviceTaintRule, request func(context.Context, *resourceapi.DeviceTaintRule) error) error {
	requests, ctx := errgroup.WithContext(ctx)
	requests.SetLimit(requestsAtATime)
	for _, rule := range rules {
		requests.Go(func() error { return request(ctx, rule) })
	}
	return requests.Wait()
}
