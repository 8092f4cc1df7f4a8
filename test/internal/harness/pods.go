// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/utils/ptr"
)

// patience is the limit of each wait for a cluster. It is long, because three clusters can
// share two processors; only a test that fails waits for its end.
const patience = 5 * time.Minute

// Until polls done until it returns true or an error, or until ctx or five minutes have
// ended. In the latter case the error has the reason that done returned last. An error of an
// API server without time for a request is such a reason.
func Until(ctx context.Context, done func(ctx context.Context) (ok bool, reason string, err error)) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var last string
	err := wait.PollUntilContextCancel(ctx, 200*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		ok, reason, err := done(ctx)
		if reason != "" {
			last = reason
		}
		if apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err) || apierrors.IsTooManyRequests(err) {
			last = err.Error()
			return false, nil
		}
		return ok, err
	})
	// A command that ctx ends says only that it was killed.
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("%w: %s", err, last)
	}
	return err
}

// CreateNamespace makes a namespace that is ready for pods. It waits for the end of
// one of that name that is being deleted.
func (c *Cluster) CreateNamespace(ctx context.Context, name string) error {
	namespaces := c.Client.CoreV1().Namespaces()
	return Until(ctx, func(ctx context.Context) (bool, string, error) {
		_, err := namespaces.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return false, "", err
		}
		found, err := namespaces.Get(ctx, name, metav1.GetOptions{})
		if err != nil || found.DeletionTimestamp != nil {
			return false, "the namespace " + name + " is being deleted", ignoreNotFound(err)
		}
		_, err = c.Client.CoreV1().ServiceAccounts(name).Get(ctx, "default", metav1.GetOptions{})
		return err == nil, "no default service account in " + name, ignoreNotFound(err)
	})
}

// DeleteNamespace deletes a namespace and waits until its pods and claims are gone.
// The namespace itself takes some seconds more, as its controller waits five before
// it begins.
func (c *Cluster) DeleteNamespace(ctx context.Context, name string) error {
	if err := c.EmptyNamespace(ctx, name); err != nil {
		return err
	}
	return ignoreNotFound(c.Client.CoreV1().Namespaces().Delete(ctx, name, metav1.DeleteOptions{}))
}

// EmptyNamespace deletes the pods and claims of a namespace, and waits until they
// are gone. It also deletes the objects that create them.
func (c *Cluster) EmptyNamespace(ctx context.Context, name string) error {
	options := metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationBackground)}
	apps := c.Client.AppsV1()
	for _, kind := range []interface {
		DeleteCollection(ctx context.Context, o metav1.DeleteOptions, l metav1.ListOptions) error
	}{
		apps.Deployments(name), apps.StatefulSets(name), apps.DaemonSets(name), apps.ReplicaSets(name),
		c.Client.BatchV1().Jobs(name),
		c.Client.ResourceV1().ResourceClaimTemplates(name), c.Client.ResourceV1().ResourceClaims(name),
	} {
		if err := kind.DeleteCollection(ctx, options, metav1.ListOptions{}); err != nil {
			return fmt.Errorf("empty the namespace %s: %w", name, err)
		}
	}
	err := Until(ctx, func(ctx context.Context) (bool, string, error) {
		// A deleted controller may create another pod before it stops.
		if err := c.Client.CoreV1().Pods(name).DeleteCollection(ctx, options, metav1.ListOptions{}); err != nil {
			return false, "", err
		}
		pods, err := c.Client.CoreV1().Pods(name).List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, "", err
		}
		claims, err := c.Client.ResourceV1().ResourceClaims(name).List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, "", err
		}
		return len(pods.Items)+len(claims.Items) == 0, fmt.Sprintf("%d pods and %d claims are left", len(pods.Items), len(claims.Items)), nil
	})
	if err != nil {
		return fmt.Errorf("empty the namespace %s: %w", name, err)
	}
	return nil
}

// WaitReady waits until all named pods are Ready and says otherwise why one is
// not.
func (c *Cluster) WaitReady(ctx context.Context, namespace string, pods ...string) error {
	for _, name := range pods {
		err := Until(ctx, func(ctx context.Context) (bool, string, error) {
			pod, err := c.Client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return false, err.Error(), ignoreNotFound(err)
			}
			if isReady(pod) {
				return true, "", nil
			}
			return false, c.why(ctx, pod), nil
		})
		if err != nil {
			return fmt.Errorf("pod %s/%s is not ready: %w", namespace, name, err)
		}
	}
	return nil
}

// WaitCount waits until a namespace has that many pods, all Ready, and says
// otherwise why one is not.
func (c *Cluster) WaitCount(ctx context.Context, namespace string, count int) error {
	err := Until(ctx, func(ctx context.Context) (bool, string, error) {
		pods, err := c.Client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, "", err
		}
		ready, reason := 0, "there are no others"
		for i := range pods.Items {
			if isReady(&pods.Items[i]) {
				ready++
			} else {
				reason = pods.Items[i].Name + ": " + c.why(ctx, &pods.Items[i])
			}
		}
		return ready == count && len(pods.Items) == count, fmt.Sprintf("%d of %d pods are ready, want %d; %s", ready, len(pods.Items), count, reason), nil
	})
	if err != nil {
		return fmt.Errorf("namespace %s: %w", namespace, err)
	}
	return nil
}

// Started waits until that many of the pods are ready, and returns them and the
// others. The scheduler chooses which.
func (c *Cluster) Started(ctx context.Context, namespace string, count int, pods ...string) (running, waiting []string, err error) {
	err = Until(ctx, func(ctx context.Context) (bool, string, error) {
		running, waiting = nil, nil
		for _, name := range pods {
			pod, err := c.Client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return false, "", err
			}
			if isReady(pod) {
				running = append(running, name)
			} else {
				waiting = append(waiting, name)
			}
		}
		return len(running) == count, fmt.Sprintf("ready are %v, want %d of them", running, count), nil
	})
	return running, waiting, err
}

func isReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// WaitGone waits until the named pods no longer exist.
func (c *Cluster) WaitGone(ctx context.Context, namespace string, pods ...string) error {
	for _, name := range pods {
		err := Until(ctx, func(ctx context.Context) (bool, string, error) {
			_, err := c.Client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
			return apierrors.IsNotFound(err), "it still exists", ignoreNotFound(err)
		})
		if err != nil {
			return fmt.Errorf("pod %s/%s is not gone: %w", namespace, name, err)
		}
	}
	return nil
}

// Unschedulable waits until the scheduler has given up on the pod and returns
// its reason.
func (c *Cluster) Unschedulable(ctx context.Context, namespace, name string) (string, error) {
	var message string
	err := Until(ctx, func(ctx context.Context) (refused bool, reason string, err error) {
		pod, err := c.Client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, err.Error(), ignoreNotFound(err)
		}
		message, refused = refusal(pod)
		return refused, "the scheduler has not refused it", nil
	})
	return message, err
}

// refusal returns the scheduler's reason if it has refused a pod.
func refusal(pod *corev1.Pod) (reason string, refused bool) {
	for _, cond := range pod.Status.Conditions {
		if cond.Type == corev1.PodScheduled && cond.Reason == corev1.PodReasonUnschedulable {
			return cond.Message, true
		}
	}
	return "", false
}

// WaitEvent waits for an event of the pod whose message contains text, and
// returns the message.
func (c *Cluster) WaitEvent(ctx context.Context, namespace, pod, text string) (string, error) {
	var message string
	err := Until(ctx, func(ctx context.Context) (bool, string, error) {
		events, err := c.events(ctx, namespace, pod)
		if err != nil {
			return false, "", err
		}
		for _, e := range events {
			if strings.Contains(e.Message, text) {
				message = e.Message
				return true, "", nil
			}
		}
		return false, fmt.Sprintf("no event of %s/%s contains %q; there are: %s", namespace, pod, text, messages(events)), nil
	})
	return message, err
}

func (c *Cluster) events(ctx context.Context, namespace, pod string) ([]corev1.Event, error) {
	list, err := c.Client.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=" + pod})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

func messages(events []corev1.Event) string {
	var texts []string
	for _, e := range events {
		texts = append(texts, e.Reason+": "+e.Message)
	}
	return strings.Join(texts, "; ")
}

func (c *Cluster) why(ctx context.Context, pod *corev1.Pod) string {
	events, err := c.events(ctx, pod.Namespace, pod.Name)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("phase %s; %s", pod.Status.Phase, messages(events))
}

// Claim returns the ResourceClaim behind a pod's entry in spec.resourceClaims.
func (c *Cluster) Claim(ctx context.Context, pod *corev1.Pod, entry string) (*resourceapi.ResourceClaim, error) {
	i := slices.IndexFunc(pod.Spec.ResourceClaims, func(c corev1.PodResourceClaim) bool { return c.Name == entry })
	if i < 0 {
		return nil, fmt.Errorf("pod %s/%s has no claim %q", pod.Namespace, pod.Name, entry)
	}
	name, _, err := resourceclaim.Name(pod, &pod.Spec.ResourceClaims[i])
	if err != nil {
		return nil, err
	}
	if name == nil {
		return nil, fmt.Errorf("pod %s/%s: no claim was generated for %q", pod.Namespace, pod.Name, entry)
	}
	return c.Client.ResourceV1().ResourceClaims(pod.Namespace).Get(ctx, *name, metav1.GetOptions{})
}

// Sight is what the probe finds inside its container; see simulator/cmd/probe.
type Sight struct {
	Devices []struct {
		Path string `json:"path"`
		Type string `json:"type"`
		Open string `json:"open"`
	} `json:"devices"`
	Env       map[string]string `json:"env"`
	Libraries []Library         `json:"libraries"`
	Metadata  []struct {
		Claim      string                                                    `json:"claim"`
		Request    string                                                    `json:"request"`
		Device     string                                                    `json:"device"`
		Attributes map[resourceapi.QualifiedName]resourceapi.DeviceAttribute `json:"attributes"`
	} `json:"metadata"`
}

// Library is a shared library of the driver.
type Library struct {
	Path string `json:"path"`
}

// Attributes returns the attributes of a device in the container's metadata files. It
// returns nil if the files do not name the device.
func (s Sight) Attributes(device string) map[resourceapi.QualifiedName]resourceapi.DeviceAttribute {
	for _, m := range s.Metadata {
		if m.Device == device {
			return m.Attributes
		}
	}
	return nil
}

// Capabilities lists the MIG capability nodes the container has.
func (s Sight) Capabilities() []string { return s.devicesBelow("/dev/nvidia-caps/") }

// Channels lists the IMEX channels the container has.
func (s Sight) Channels() []string { return s.devicesBelow("/dev/nvidia-caps-imex-channels/") }

func (s Sight) devicesBelow(folder string) []string {
	var paths []string
	for _, d := range s.Devices {
		if strings.HasPrefix(d.Path, folder) {
			paths = append(paths, d.Path)
		}
	}
	slices.Sort(paths)
	return paths
}

// GPUs lists the GPU device nodes the container has: "/dev/nvidia3".
func (s Sight) GPUs() []string {
	var paths []string
	for _, d := range s.Devices {
		if rest, ok := strings.CutPrefix(d.Path, "/dev/nvidia"); ok && rest != "" && strings.Trim(rest, "0123456789") == "" {
			paths = append(paths, d.Path)
		}
	}
	slices.Sort(paths)
	return paths
}

// Sight has the probe look around in a container.
func (c *Cluster) Sight(ctx context.Context, namespace, pod, container string) (Sight, error) {
	var sight Sight
	// A kubelet that has just started does not know its pods yet.
	err := Until(ctx, func(ctx context.Context) (bool, string, error) {
		out, err := c.Kubectl(ctx, "exec", "-n", namespace, pod, "-c", container, "--", "probe", "once")
		if err != nil {
			return false, err.Error(), nil //nolint:nilerr // it is the reason for another try
		}
		return true, "", json.Unmarshal([]byte(out), &sight)
	})
	if err != nil {
		return sight, fmt.Errorf("look around in %s of %s/%s: %w", container, namespace, pod, err)
	}
	return sight, nil
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
