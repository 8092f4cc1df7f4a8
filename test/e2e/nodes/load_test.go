// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpu-dra/gpu-dra-driver/test/internal/harness"
)

const (
	// pace is the time of a turn, in which at most one claim is created: at most 100 a minute.
	pace = 600 * time.Millisecond
	// most claims at a time. The nodes have 24 GPUs.
	most = 60
	// stay is the number of turns that a pod runs.
	stay = 15
	// patience is the age at which a claim counts as lost. The API server is away for some minutes of it.
	patience = 15 * time.Minute
)

// kinds of claims, in the order in which they are created.
var kinds = []string{"whole", "share", "mig", "share", "mig"}

// load creates claims, each with a pod, and ends them after some time. A pod that is evicted is followed by
// another one with the same claim.
type load struct {
	namespace string
	nodes     []*harness.Cluster
	paths     map[string]string // of GPUs in containers, by node and name, and the reverse

	// failed is closed at the first finding.
	failed chan struct{}

	mu                      sync.Mutex // guards the rest
	open                    map[string]*unit
	began, stoppedAt        time.Time
	created, ended, evicted int
	refused                 int                  // pods, see isRefused
	compared                int                  // containers with record and allocation
	excused                 map[string]time.Time // pods that were created before may end, by node
	findings                []string
}

// unit is a claim and its pod.
type unit struct {
	claim *resourceapi.ResourceClaim
	born  time.Time
	try   int // of the pod
	turns int // in which the pod ran
	// ending is set when both were deleted.
	ending bool
}

func (u *unit) pod() string { return fmt.Sprintf("%s-%d", u.claim.Name, u.try) }

func newLoad(namespace string, nodes []*harness.Cluster) *load {
	return &load{
		namespace: namespace, nodes: nodes, paths: map[string]string{}, failed: make(chan struct{}),
		open: map[string]*unit{}, excused: map[string]time.Time{}, began: time.Now(),
	}
}

// run creates claims until stop, and returns when all have ended, or with ctx.
func (l *load) run(ctx context.Context) {
	ticker := time.NewTicker(pace)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if l.turn(ctx) {
			return
		}
	}
}

// turn compares, and takes each claim one step further. It reports whether the load is over.
func (l *load) turn(ctx context.Context) (over bool) {
	seen := look(ctx, l.namespace, l.nodes)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.compare(seen)
	for _, u := range l.open {
		if age := time.Since(u.born); age > patience {
			l.find("claim %s is lost: it has not ended %s after its creation, its pod is %s", u.claim.Name, age, seen.pods[u.pod()].Status.Phase)
		}
	}
	if seen.err != nil {
		return false // the API server is away
	}
	for name, u := range l.open {
		if l.step(ctx, u, seen) {
			delete(l.open, name)
			l.ended++
		}
	}
	if l.stoppedAt.IsZero() && len(l.open) < most {
		l.create(ctx)
	}
	return !l.stoppedAt.IsZero() && len(l.open) == 0
}

func (l *load) create(ctx context.Context) {
	kind := kinds[l.created%len(kinds)]
	claim, err := cluster.Client.ResourceV1().ResourceClaims(l.namespace).Create(ctx, newClaim(fmt.Sprintf("%s-%d", kind, l.created), kind), metav1.CreateOptions{})
	if err != nil {
		return // the next turn tries again
	}
	l.created++
	l.open[claim.Name] = &unit{claim: claim, born: time.Now()}
}

// step takes a claim one step further, and reports whether it has ended. A request that fails is repeated in the next turn.
func (l *load) step(ctx context.Context, u *unit, seen sight) (ended bool) {
	pods := cluster.Client.CoreV1().Pods(l.namespace)
	pod, hasPod := seen.pods[u.pod()]
	_, hasClaim := seen.claims[u.claim.Name]
	switch {
	case u.ending:
		return !hasPod && !hasClaim
	case !hasPod:
		if u.try > 0 {
			l.evicted++
		}
		u.try, u.turns = u.try+1, 0
		if _, err := pods.Create(ctx, newPod(u.pod(), u.claim.Name), metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			u.try--
		}
	case pod.DeletionTimestamp != nil, pod.Status.Phase == corev1.PodPending:
	case pod.Status.Phase == corev1.PodRunning:
		if u.turns++; u.turns < stay {
			return false
		}
		gone := func(err error) bool { return err == nil || apierrors.IsNotFound(err) }
		u.ending = gone(pods.Delete(ctx, pod.Name, metav1.DeleteOptions{})) &&
			gone(cluster.Client.ResourceV1().ResourceClaims(l.namespace).Delete(ctx, u.claim.Name, metav1.DeleteOptions{}))
	case isRefused(pod):
		l.refused++
		_ = pods.Delete(ctx, pod.Name, metav1.DeleteOptions{}) // the next turn tries again
	default:
		if !pod.CreationTimestamp.Time.Before(l.excused[pod.Spec.NodeName]) {
			l.find("pod %s of node %s ended by itself: %+v", pod.Name, pod.Spec.NodeName, pod.Status)
		}
		_ = pods.Delete(ctx, pod.Name, metav1.DeleteOptions{}) // the next turn tries again
	}
	return false
}

// isRefused reports whether runc has refused to start a container, because the simulator replaced a file while
// runc mounted it. A real driver does not replace its firmware.
func isRefused(pod corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool {
		end := c.State.Terminated
		return end != nil && end.Reason == "StartError" && strings.Contains(end.Message, "/gsp_ga10x.bin (deleted)")
	})
}

// find adds a finding once.
func (l *load) find(format string, args ...any) {
	if finding := fmt.Sprintf(format, args...); !slices.Contains(l.findings, finding) {
		l.findings = append(l.findings, finding)
	}
	select {
	case <-l.failed:
	default:
		close(l.failed)
	}
}

func (l *load) found() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.findings
}

// stop ends the creation of claims.
func (l *load) stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stoppedAt = time.Now()
}

// excuse lets pods of a node end that are created before something has happened.
func (l *load) excuse(node string, happens func() error) error {
	set := func(before time.Time) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.excused[node] = before
	}
	set(time.Now().Add(time.Hour))
	err := happens()
	set(time.Now().Add(time.Second)) // the API server has whole seconds
	return err
}

func (l *load) summary() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	until := l.stoppedAt
	if until.IsZero() {
		until = time.Now()
	}
	return fmt.Sprintf("%d claims created (%.0f a minute), %d ended, %d pods evicted, %d refused by runc, %d times a container was compared",
		l.created, float64(l.created)/until.Sub(l.began).Minutes(), l.ended, l.evicted-l.refused, l.refused, l.compared)
}

// wait lets the load run for some time. It ends the test at a finding.
func (l *load) wait(t *testing.T, d time.Duration) {
	t.Helper()
	select {
	case <-l.failed:
		t.FailNow()
	case <-time.After(d):
	}
}

func kindOf(claim string) string { return strings.Split(claim, "-")[0] }

func newClaim(name, kind string) *resourceapi.ResourceClaim {
	request := &resourceapi.ExactDeviceRequest{DeviceClassName: "gpu.nvidia.com"}
	switch kind {
	case "share":
		request.DeviceClassName = "mps.nvidia.com"
		request.Capacity = &resourceapi.CapacityRequirements{Requests: map[resourceapi.QualifiedName]resource.Quantity{"memory": resource.MustParse("10Gi")}}
	case "mig":
		request.DeviceClassName = "mig.nvidia.com"
		request.Selectors = []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{
			Expression: "device.attributes['" + harness.DriverName + "'].profile == '1g.10gb'",
		}}}
	}
	claim := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: name}}
	claim.Spec.Devices.Requests = []resourceapi.DeviceRequest{{Name: "gpu", Exactly: request}}
	return claim
}

func newPod(name, claim string) *corev1.Pod {
	grace := int64(1)
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{
			RestartPolicy:                 corev1.RestartPolicyNever,
			TerminationGracePeriodSeconds: &grace,
			ResourceClaims:                []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: &claim}},
			Containers: []corev1.Container{{
				Name: "main", Image: "localhost/gpu-dra-driver/gpu-probe:demo", ImagePullPolicy: corev1.PullIfNotPresent,
				Resources: corev1.ResourceRequirements{Claims: []corev1.ResourceClaim{{Name: "gpu"}}},
			}},
		},
	}
}
