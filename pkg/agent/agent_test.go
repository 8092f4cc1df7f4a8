// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/version"
	fakediscovery "k8s.io/client-go/discovery/fake"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	draapi "k8s.io/kubelet/pkg/apis/dra/v1"

	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/kubelet/kubelettest"
	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog"
	"github.com/gpu-dra/gpu-dra-driver/simulator/nvmlsim"
	"github.com/gpu-dra/gpu-dra-driver/test/files"
)

// node is a machine with simulated GPUs on which agents come and go.
type node struct {
	*Config
	// SimState is the folder of the simulated node.
	SimState string
	client   kubernetes.Interface
}

// testConfig returns the defaults of the agent's flags, for simulated GPUs and
// without folders.
func testConfig() *Config {
	return &Config{
		DriverRoot: "/", DevRoot: "/",
		NodeConfig: catalog.NodeConfig{
			Offer:  "share",
			Shares: catalog.ShareOffer{ComputeOvercommit: 1, Smallest: 1 << 30, ServerMemory: catalog.DefaultServerMemory},
		},
		DriverName: "gpu.nvidia.com", NodeName: "node-1", ReconcileInterval: 5 * time.Minute,
	}
}

func newNode(t *testing.T, objects ...runtime.Object) *node {
	t.Helper()
	dir := files.ShortDir(t)
	hook := filepath.Join(dir, "nvidia-cdi-hook")
	if err := os.WriteFile(hook, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, sub := range []string{"plugins", "registry"} {
		if err := os.Mkdir(filepath.Join(dir, sub), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	c := testConfig()
	c.CDIHook, c.CDIDir = hook, filepath.Join(dir, "cdi")
	c.KubeletPluginsDir, c.KubeletRegistryDir = filepath.Join(dir, "plugins"), filepath.Join(dir, "registry")
	c.Supervisor, c.PodResources = filepath.Join(dir, "mps.sock"), filepath.Join(dir, "kubelet.sock")
	objects = append(objects, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1", UID: "node-uid"}})
	n := &node{Config: c, SimState: filepath.Join(dir, "sim"), client: fake.NewClientset(objects...)}
	n.serverIs(t, "v1.37.1")
	return n
}

// serverIs sets the version that the API server reports.
func (n *node) serverIs(t *testing.T, told string) {
	t.Helper()
	discovery, ok := n.client.Discovery().(*fakediscovery.FakeDiscovery)
	if !ok {
		t.Fatalf("the discovery client is a %T", n.client.Discovery())
	}
	discovery.FakedServerVersion = &version.Info{GitVersion: told}
}

// running is an agent and the kubelet that it has registered with.
type running struct {
	*agent
	hw      *hardware
	kubelet *kubelettest.Plugin
	// stop ends the agent as SIGTERM does and returns its error.
	stop func() error
}

// start runs an agent until the kubelet knows it.
func (n *node) start(t *testing.T) *running {
	t.Helper()
	hw := n.hardware(t)
	a, err := newAgent(t.Context(), n.Config, hw, n.client)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- errors.Join(a.run(ctx), hw.close()) }()
	r := &running{agent: a, hw: hw}
	stopped := false
	r.stop = func() error {
		if stopped {
			return nil
		}
		stopped = true
		cancel()
		return <-ended
	}
	t.Cleanup(func() {
		if err := r.stop(); err != nil {
			t.Errorf("the agent ended with %v", err)
		}
	})
	<-a.serving.plugin.started
	if r.kubelet, err = kubelettest.Register(t.Context(), n.KubeletRegistryDir); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.kubelet.Close() })
	return r
}

// slices waits until the node's pool is complete.
func (n *node) published(t *testing.T) []resourceapi.ResourceSlice {
	t.Helper()
	watcher, err := n.client.ResourceV1().ResourceSlices().Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer watcher.Stop()
	for {
		list, err := n.client.ResourceV1().ResourceSlices().List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if len(list.Items) > 0 && len(list.Items) == int(list.Items[0].Spec.Pool.ResourceSliceCount) {
			return list.Items
		}
		<-watcher.ResultChan()
	}
}

// claimFor is a claim to which devices of the node are allocated.
func claimFor(name string, devices ...string) *resourceapi.ResourceClaim {
	claim := &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, UID: types.UID("uid-" + name)},
		Status:     resourceapi.ResourceClaimStatus{Allocation: &resourceapi.AllocationResult{}},
	}
	for _, device := range devices {
		claim.Status.Allocation.Devices.Results = append(claim.Status.Allocation.Devices.Results,
			resourceapi.DeviceRequestAllocationResult{Request: "gpu", Driver: "gpu.nvidia.com", Pool: "node-1", Device: device})
	}
	return claim
}

func (r *running) prepare(t *testing.T, claims ...*resourceapi.ResourceClaim) map[string]*draapi.NodePrepareResourceResponse {
	t.Helper()
	results, err := r.kubelet.Prepare(t.Context(), claims...)
	if err != nil {
		t.Fatal(err)
	}
	return results
}

// mustPrepare prepares claims, all of which must succeed.
func (r *running) mustPrepare(t *testing.T, claims ...*resourceapi.ResourceClaim) {
	t.Helper()
	for uid, result := range r.prepare(t, claims...) {
		if result.Error != "" {
			t.Fatalf("%s: %s", uid, result.Error)
		}
	}
}

func (r *running) unprepare(t *testing.T, claims ...*resourceapi.ResourceClaim) {
	t.Helper()
	if err := r.kubelet.Unprepare(t.Context(), claims...); err != nil {
		t.Error(err)
	}
}

// sim returns the simulated hardware of the node.
func (n *node) sim(t *testing.T) *nvmlsim.Sim {
	t.Helper()
	sim, err := nvmlsim.Open(n.SimState)
	if err != nil {
		t.Fatal(err)
	}
	return sim
}

// left are the CDI specs and records of claims.
func (n *node) left(t *testing.T) []string {
	t.Helper()
	names := append(files.List(t, n.CDIDir), files.List(t, filepath.Join(n.driverDir(), "agent/claims"))...)
	return slices.DeleteFunc(names, func(name string) bool { return name == "quarantine" })
}

func TestAgentServesAClaimFromPublishingToUnprepare(t *testing.T) {
	t.Parallel()
	claim := claimFor("one", "gpu-1b-00")
	n := newNode(t, claim)
	a := n.start(t)
	if got := len(n.published(t)[0].Spec.Devices); got != 8 {
		t.Errorf("%d devices published, want 8", got)
	}
	if diff := cmp.Diff([]string{"v1.DRAPlugin", "v1beta1.DRAPlugin", "v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth"}, a.kubelet.Info.SupportedVersions); diff != "" {
		t.Errorf("services (-want +got):\n%s", diff)
	}

	result := a.prepare(t, claim)["uid-one"]
	if result.Error != "" || len(result.Devices) != 1 {
		t.Fatalf("prepare = %v, want one device", result)
	}
	device := result.Devices[0]
	if diff := cmp.Diff([]string{
		"gpu.nvidia.com/claim=uid-one-gpu-1b-00",
		"gpu.nvidia.com/metadata=uid-one_gpu",
	}, device.CdiDeviceIds); diff != "" {
		t.Errorf("CDI devices (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"gpu.nvidia.com-claim-uid-one.json", "gpu.nvidia.com_metadata_uid-one_gpu.json"}, files.List(t, n.CDIDir)); diff != "" {
		t.Errorf("CDI directory (-want +got):\n%s", diff)
	}
	metadata, err := os.ReadFile(filepath.Join(n.KubeletPluginsDir, "gpu.nvidia.com/dra-device-metadata/team_one/gpu/metadata.json"))
	if err != nil || !bytes.Contains(metadata, []byte(`"uuid"`)) || !bytes.Contains(metadata, []byte(`"productName"`)) {
		t.Errorf("device metadata %s (%v), want the published attributes", metadata, err)
	}

	a.unprepare(t, claim)
	if err := a.kubelet.Unprepare(t.Context(), claim); err != nil {
		t.Errorf("unprepare once more: %v", err)
	}
	if left := n.left(t); len(left) != 0 {
		t.Errorf("left behind: %q", left)
	}
}

func TestAgentReportsTheHealthOfAllDevicesToTheKubelet(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	a := n.start(t)
	n.published(t)
	stream, err := a.kubelet.Health(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for {
		report, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if len(report.Devices) < 8 {
			continue // sent before the first scan of the GPUs
		}
		for _, d := range report.Devices {
			if d.Device.PoolName != "node-1" || d.Health.String() != "HEALTHY" {
				t.Errorf("device %v", d)
			}
		}
		return
	}
}

// unloadDriver takes the driver of the node's GPUs away.
func (n *node) unloadDriver(t *testing.T) {
	t.Helper()
	sim := n.sim(t)
	if err := sim.UnloadDriver(); err != nil {
		t.Fatal(err)
	}
}

// get is what the agent answers over HTTP.
func get(t *testing.T, a *agent, path string) (code int, body string) {
	t.Helper()
	recorder := httptest.NewRecorder()
	a.handler().ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
	return recorder.Code, recorder.Body.String()
}

func TestAgentSaysWhatItsReadinessLacks(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	hw := n.hardware(t)
	before, err := newAgent(t.Context(), n.Config, hw, n.client)
	if err != nil {
		t.Fatal(err)
	}
	if code, body := get(t, before, "/readyz"); code != http.StatusServiceUnavailable || !strings.Contains(body, "not ok  gpus: Looking") || !strings.Contains(body, "not ok  serving: ") {
		t.Errorf("/readyz before the start = %d:\n%s", code, body)
	}
	a := n.start(t)
	n.published(t)
	for code, body := get(t, a.agent, "/readyz"); code != http.StatusOK; code, body = get(t, a.agent, "/readyz") {
		if t.Context().Err() != nil {
			t.Fatalf("/readyz = %d:\n%s", code, body)
		}
	}
	if code, body := get(t, a.agent, "/metrics"); code != http.StatusOK || !strings.Contains(body, `gpu_dra_devices{state="healthy"} 8`) {
		t.Errorf("/metrics = %d, without 8 healthy devices", code)
	}
	if code, body := get(t, a.agent, "/devices"); code != http.StatusOK || !strings.Contains(body, `"gpu-1b-00": {`) || !strings.Contains(body, `"persistenceMode": {`) {
		t.Errorf("/devices = %d, without a GPU and an attribute that is not published:\n%s", code, body)
	}
}

// A rolling update waits for every agent: one of a node whose driver is missing
// must not keep the others from theirs.
func TestAgentIsReadyWithoutADriverAndSaysSo(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	hw := n.hardware(t)
	if err := hw.close(); err != nil {
		t.Fatal(err)
	}
	n.unloadDriver(t)
	a := n.start(t)
	for code, body := get(t, a.agent, "/readyz"); code != http.StatusOK; code, body = get(t, a.agent, "/readyz") {
		if t.Context().Err() != nil || strings.Contains(body, "NoDriver") {
			t.Fatalf("/readyz = %d:\n%s", code, body)
		}
	}
	_, body := get(t, a.agent, "/metrics")
	for _, want := range []string{`gpu_dra_node_phase{phase="NoDriver"} 1`, `gpu_dra_node_phase{phase="Published"} 0`} {
		if !strings.Contains(body, want) {
			t.Errorf("/metrics lacks %s", want)
		}
	}
}

// A wrong driver root must not go round the cluster with an update.
func TestAnAgentThatLosesTheDriverUnderPreparedClaimsIsNotReady(t *testing.T) {
	t.Parallel()
	claim := claimFor("one", "gpu-1b-00")
	n := newNode(t, claim)
	a := n.start(t)
	a.mustPrepare(t, claim)
	if err := a.stop(); err != nil {
		t.Fatal(err)
	}
	n.unloadDriver(t)
	next := n.start(t)
	for code, body := get(t, next.agent, "/readyz"); !strings.Contains(body, "1 claims are prepared"); code, body = get(t, next.agent, "/readyz") {
		if t.Context().Err() != nil || code == http.StatusOK {
			t.Fatalf("/readyz = %d:\n%s", code, body)
		}
	}
	// Records that cannot be read are not the same as none.
	records := filepath.Join(n.driverDir(), "agent", "claims")
	if err := errors.Join(os.Rename(records, records+".old"), os.WriteFile(records, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if code, body := get(t, next.agent, "/readyz"); code == http.StatusOK || !strings.Contains(body, "the claims on this node cannot be read") {
		t.Errorf("/readyz without records = %d:\n%s", code, body)
	}
	if _, body := get(t, next.agent, "/metrics"); !strings.Contains(body, "gpu_dra_node_phase{") || strings.Contains(body, "gpu_dra_claims_held ") {
		t.Errorf("/metrics counts claims without records:\n%s", body)
	}
}

func TestPublishedSlicesAreTheOnesThatArePrinted(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.start(t)
	published := n.published(t)
	var printed bytes.Buffer
	if err := n.print(t, &printed, t.Output()); err != nil {
		t.Fatal(err)
	}
	var list struct{ Items []resourceapi.ResourceSlice }
	if err := json.Unmarshal(printed.Bytes(), &list); err != nil {
		t.Fatal(err)
	}
	if len(list.Items) != len(published) {
		t.Fatalf("%d slices printed, %d published", len(list.Items), len(published))
	}
	for i := range published {
		if diff := cmp.Diff(list.Items[i].Spec, published[i].Spec); diff != "" {
			t.Errorf("slice %d (-printed +published):\n%s", i, diff)
		}
		if list.Items[i].GenerateName != published[i].GenerateName {
			t.Errorf("slice %d is named %q, printed as %q", i, published[i].GenerateName, list.Items[i].GenerateName)
		}
	}
}
