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

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpu-dra/gpu-dra-driver/test/internal/harness"
)

const (
	// pace is the time of a turn.
	pace = 600 * time.Millisecond
	// perMinute is the number of claims that are created while the API server answers.
	perMinute = 100
	// most pods at a time. The nodes have 24 GPUs.
	most = 40
	// stay is the number of turns that a pod runs.
	stay = 15
	// forgotten is the number of turns after which Kubernetes has forgotten a claim without a pod, see
	// docs/dev/upstream/allocator.md.
	forgotten = 100
	// patience is the age at which a claim counts as lost. The API server is away for some minutes of it.
	patience = 15 * time.Minute
)

// kinds of the claims of pods, in the order in which they are created.
var kinds = [][]string{{"whole"}, {"share", "mig"}, {"share", "mig"}}

// load creates claims with their pods, and ends them after some time. A pod that is evicted is followed by
// another one with the same claims.
type load struct {
	namespace string
	nodes     []*harness.Cluster
	paths     map[string]string // of GPUs in containers, by node and name, and the reverse
	claims    *rate.Limiter

	// failed is closed at the first finding.
	failed chan struct{}

	mu                      sync.Mutex // guards the rest
	open                    map[string]*unit
	stoppedAt               time.Time
	last                    time.Time            // turn
	answered                time.Duration        // by the API server
	units                   int                  // that were created
	created, ended, evicted int                  // claims, claims, pods
	refused                 int                  // pods, see isRefused
	reminded                int                  // claims, see forgotten
	compared                int                  // containers with record and allocation
	excused                 map[string]time.Time // pods that were created before may end, by node
	findings                []string
}

// unit is a pod with its claims, each in a container of its name.
type unit struct {
	name   string
	claims []string
	born   time.Time
	try    int // of the pod
	turns  int // in which the pod ran
	// ending is set when all are to be deleted, and gone counts the turns since the pod has gone.
	ending bool
	gone   int
}

func (u *unit) pod() string { return fmt.Sprintf("%s-%d", u.name, u.try) }

func newLoad(namespace string, nodes []*harness.Cluster) *load {
	return &load{
		namespace: namespace, nodes: nodes, paths: map[string]string{}, failed: make(chan struct{}),
		claims: rate.NewLimiter(perMinute/60., 2*len(kinds)),
		open:   map[string]*unit{}, excused: map[string]time.Time{}, last: time.Now(),
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
			l.find("claims %s are lost: they have not ended %s after their creation, their pod is %s", u.claims, age, seen.pods[u.pod()].Status.Phase)
		}
	}
	since := time.Since(l.last)
	l.last = time.Now()
	if seen.err != nil {
		return false // the API server is away
	}
	if l.stoppedAt.IsZero() {
		l.answered += since
	}
	for name, u := range l.open {
		if l.step(ctx, u, seen) {
			delete(l.open, name)
			l.ended += len(u.claims)
		}
	}
	for l.stoppedAt.IsZero() && len(l.open) < most && l.claims.AllowN(time.Now(), len(kinds[l.units%len(kinds)])) {
		l.create(ctx)
	}
	return !l.stoppedAt.IsZero() && len(l.open) == 0
}

// create creates the claims of another unit.
func (l *load) create(ctx context.Context) {
	u := &unit{name: fmt.Sprintf("pod-%d", l.units), born: time.Now()}
	for _, kind := range kinds[l.units%len(kinds)] {
		name := fmt.Sprintf("%s-%d", kind, l.units)
		if _, err := cluster.Client.ResourceV1().ResourceClaims(l.namespace).Create(ctx, newClaim(name, kind), metav1.CreateOptions{}); err == nil {
			u.claims = append(u.claims, name)
		}
	}
	l.units++
	l.created += len(u.claims)
	if len(u.claims) > 0 {
		l.open[u.name] = u
	}
}

// step takes a unit one step further, and reports whether it has ended. A request that fails is repeated in the next turn.
func (l *load) step(ctx context.Context, u *unit, seen sight) (ended bool) {
	pods := cluster.Client.CoreV1().Pods(l.namespace)
	pod, hasPod := seen.pods[u.pod()]
	switch {
	case u.ending:
		return l.end(ctx, u, seen)
	case !hasPod:
		if u.try > 0 {
			l.evicted++
		}
		u.try, u.turns = u.try+1, 0
		if _, err := pods.Create(ctx, newPod(u.pod(), u.claims), metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			u.try--
		}
	case pod.DeletionTimestamp != nil:
	case isRefused(pod):
		l.refused++
		_ = pods.Delete(ctx, pod.Name, metav1.DeleteOptions{}) // the next turn tries again
	case hasEnded(pod):
		if !pod.CreationTimestamp.Time.Before(l.excused[pod.Spec.NodeName]) {
			l.find("pod %s of node %s ended by itself: %+v", pod.Name, pod.Spec.NodeName, pod.Status)
		}
		_ = pods.Delete(ctx, pod.Name, metav1.DeleteOptions{}) // the next turn tries again
	case pod.Status.Phase == corev1.PodRunning:
		if u.turns++; u.turns >= stay {
			u.ending = true
			return l.end(ctx, u, seen)
		}
	}
	return false
}

// end deletes what is left of a unit, and reports whether nothing is. It reminds Kubernetes of claims that it has
// forgotten, whose controller looks for their pod again when they change.
func (l *load) end(ctx context.Context, u *unit, seen sight) bool {
	claims := cluster.Client.ResourceV1().ResourceClaims(l.namespace)
	pod, hasPod := seen.pods[u.pod()]
	if hasPod && pod.DeletionTimestamp == nil {
		_ = cluster.Client.CoreV1().Pods(l.namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{}) // the next turn tries again
	}
	if !hasPod {
		u.gone++
	}
	ended := !hasPod
	for _, name := range u.claims {
		claim, has := seen.claims[name]
		switch {
		case !has:
			continue
		case claim.DeletionTimestamp == nil:
			_ = claims.Delete(ctx, name, metav1.DeleteOptions{}) // the next turn tries again
		case u.gone > 0 && u.gone%forgotten == 0:
			patch := fmt.Appendf(nil, `{"metadata": {"annotations": {"reminded": %q}}}`, time.Now())
			if _, err := claims.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{}); err == nil {
				l.reminded++
			}
		}
		ended = false
	}
	return ended
}

// hasEnded reports whether a container of a pod has ended.
func hasEnded(pod corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded ||
		slices.ContainsFunc(pod.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool { return c.State.Terminated != nil })
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
	return fmt.Sprintf("%d claims created (%.0f a minute while the API server answered), %d ended, %d pods evicted, %d refused by runc, %d claims forgotten by Kubernetes, %d times a container was compared",
		l.created, float64(l.created)/l.answered.Minutes(), l.ended, l.evicted-l.refused, l.refused, l.reminded, l.compared)
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

// newPod returns a pod with a container for each claim.
func newPod(name string, claims []string) *corev1.Pod {
	grace := int64(1)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, TerminationGracePeriodSeconds: &grace},
	}
	for _, claim := range claims {
		pod.Spec.ResourceClaims = append(pod.Spec.ResourceClaims, corev1.PodResourceClaim{Name: claim, ResourceClaimName: &claim})
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{
			Name: claim, Image: "localhost/gpu-dra-driver/gpu-probe:demo", ImagePullPolicy: corev1.PullIfNotPresent,
			Resources: corev1.ResourceRequirements{Claims: []corev1.ResourceClaim{{Name: claim}}},
		})
	}
	return pod
}
