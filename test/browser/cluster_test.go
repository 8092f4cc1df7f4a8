// SPDX-License-Identifier: Apache-2.0

package browser

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/commands"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet/fleettest"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

// cluster is an API server that serves the lists of objects in memory.
type cluster struct {
	*fleettest.World
	t *testing.T

	mu      sync.Mutex
	failing bool
	events  []corev1.Event
}

// change changes the objects between two requests.
func (c *cluster) change(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
}

func (c *cluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failing {
		http.Error(w, "the API server is overloaded", http.StatusInternalServerError)
		return
	}
	if serveDriver(w, r, c.Nodes) {
		return
	}
	kind, version, items := "", "resource.k8s.io/v1", any(nil)
	switch path := r.URL.Path; {
	case path == "/api/v1/nodes":
		kind, version, items = "NodeList", "v1", c.Nodes
	case path == "/api/v1/pods":
		kind, version, items = "PodList", "v1", c.Pods
	case strings.HasSuffix(path, "/events"):
		kind, version, items = "EventList", "v1", c.events
	case strings.HasSuffix(path, "/resourceclaims"):
		kind, items = "ResourceClaimList", c.Claims
	case strings.HasSuffix(path, "/resourceslices"):
		kind, items = "ResourceSliceList", c.Slices
	case strings.HasSuffix(path, "/deviceclasses"):
		kind, items = "DeviceClassList", c.Classes
	case strings.HasSuffix(path, "/devicetaintrules"):
		kind, items = "DeviceTaintRuleList", c.TaintRules
	default:
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(map[string]any{"kind": kind, "apiVersion": version, "metadata": map[string]any{"resourceVersion": "1"}, "items": items}); err != nil && r.Context().Err() == nil && !errors.Is(err, syscall.EPIPE) && !errors.Is(err, syscall.ECONNRESET) {
		c.t.Error(err)
	}
}

// hold allocates devices to the claim of a running pod.
func (c *cluster) hold(node, namespace, name, words string) {
	c.t.Helper()
	c.Hold(node, name, words)
	claim, pod := c.Claims[len(c.Claims)-1], c.Pods[len(c.Pods)-1]
	claim.Namespace, pod.Namespace = namespace, namespace
	pod.Spec.NodeName, pod.Status.Phase = node, corev1.PodRunning
	since := ago(time.Duration(len(c.Claims)) * 3 * time.Hour)
	claim.CreationTimestamp, claim.Status.Allocation.AllocationTimestamp = since, &since
}

// ago returns a time before now.
func ago(d time.Duration) metav1.Time { return metav1.NewTime(time.Now().Add(-d)) }

// wait adds a pod whose claim has no devices.
func (c *cluster) wait(namespace, name, words string) {
	claim, pod := fleettest.Claim(name, words), fleettest.Pod(name)
	claim.Namespace, pod.Namespace = namespace, namespace
	pod.Status.Phase = corev1.PodPending
	pod.Status.Conditions = []corev1.PodCondition{{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable,
		Message: fmt.Sprintf("0/%d nodes are available: %d cannot allocate all claims. still not schedulable, preemption: 0/%d nodes are available", len(c.Nodes), len(c.Nodes), len(c.Nodes)),
	}}
	pod.CreationTimestamp = ago(time.Duration(len(c.Pods)) * time.Minute)
	claim.CreationTimestamp = pod.CreationTimestamp
	c.Claims, c.Pods = append(c.Claims, claim), append(c.Pods, pod)
}

// share has the agent report what holds the last claim's share.
func (c *cluster) share(memory string) {
	c.t.Helper()
	claim := c.Claims[len(c.Claims)-1]
	result := claim.Status.Allocation.Devices.Results[0]
	raw := fmt.Sprintf(`{"share": {"strategy": "MPS", "memoryEnforcement": "cgroup", "computeEnforcement": "cooperative", "memoryLimit": %q, "containerMemoryLimit": %q}}`, memory, memory)
	data := resourceapi.AllocatedDeviceStatus{Driver: result.Driver, Pool: result.Pool, Device: result.Device}
	if result.ShareID != nil {
		id := string(*result.ShareID)
		data.ShareID = &id
	}
	must(c.t, json.Unmarshal([]byte(`{"data": `+raw+`}`), &data))
	data.Conditions = []metav1.Condition{{Type: "Ready", Status: metav1.ConditionTrue, Message: "prepared"}}
	claim.Status.Devices = append(claim.Status.Devices, data)
}

// taint marks a device as unhealthy since a while.
func (c *cluster) taint(device, cause string, since time.Duration) {
	c.t.Helper()
	c.Taint(device, cause)
	added := ago(since)
	for _, slice := range c.Slices {
		for i := range slice.Spec.Devices {
			for j := range slice.Spec.Devices[i].Taints {
				if t := &slice.Spec.Devices[i].Taints[j]; t.TimeAdded == nil {
					t.TimeAdded = &added
				}
			}
		}
	}
}

// busy returns a cluster with whole GPUs, shares, MIG devices, time slices, a taint and pods
// that wait.
func busy(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{t: t, World: fleettest.New(t, "dgx-01=dgx-h100 share.mig.timeslice", "dgx-02=dgx-a100 share", "edge-01=t4 share.timeslice")}
	c.hold("dgx-01", "research", "training", "count=2")
	for i, memory := range []string{"30Gi", "20Gi", "10Gi"} {
		c.hold("dgx-01", "team-a", fmt.Sprintf("notebook-%d", i), "class=mps.nvidia.com compute=20 memory="+memory)
		c.share(memory)
	}
	c.hold("dgx-01", "team-b", "inference", "class=mig-1g.10gb")
	c.hold("dgx-01", "team-b", "nightly", "class=timeslice.nvidia.com")
	c.hold("dgx-02", "research", "pretraining", "count=6")
	c.hold("edge-01", "shop", "camera", "class=mps.nvidia.com memory=7Gi compute=50")
	c.taint("gpu-d1-00", "xid-79", 12*time.Minute)
	c.wait("research", "finetuning", "class=mps.nvidia.com memory=100Gi")
	c.wait("team-a", "notebook-3", "class=mps.nvidia.com memory=10Gi cel=device.attributes['gpu.nvidia.com'].architecture == 'Blackwell'")
	return c
}

// serve runs "kubectl gpu ui" for the cluster, and returns the address that it prints.
func serve(t *testing.T, c *cluster) string {
	t.Helper()
	server := httptest.NewServer(c)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	must(t, os.WriteFile(kubeconfig, fmt.Appendf(nil, `{apiVersion: v1, kind: Config, current-context: test,
  clusters: [{name: test, cluster: {server: %q}}], contexts: [{name: test, context: {cluster: test}}]}`, server.URL), 0o600))
	out, in := io.Pipe()
	cmd := commands.New(genericiooptions.IOStreams{In: strings.NewReader(""), Out: in, ErrOut: t.Output()})
	cmd.SetArgs([]string{"ui", "--kubeconfig", kubeconfig, "--driver-name", v1alpha1.DriverName, "--refresh", "1s"})
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		err := cmd.ExecuteContext(ctx)
		in.CloseWithError(err)
		ended <- err
	}()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("kubectl gpu ui ends with: %v", err)
		}
		server.Close()
	})
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "http://") {
			go io.Copy(io.Discard, out) //nolint:errcheck // ends with the command
			return lines.Text()
		}
	}
	t.Fatalf("no address is printed: %v", lines.Err())
	return ""
}

var must = require.NoError
