// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	authv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	agentv1 "github.com/gpu-dra/gpu-dra-driver/api/agent/v1"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/doctor"
	"github.com/gpu-dra/gpu-dra-driver/test/internal/harness"
)

// examine returns the findings of a user by their checks.
func examine(t *testing.T, user ...string) map[string]doctor.Finding {
	t.Helper()
	out, status := cluster.GPU(t.Context(), append([]string{"doctor", "--output", "json"}, user...)...)
	// With a problem the exit status is 1, and the output is complete.
	var list struct{ Items []doctor.Finding }
	if err := json.NewDecoder(strings.NewReader(out)).Decode(&list); err != nil {
		t.Fatalf("%v: %v: %s", status, err, out)
	}
	by := map[string]doctor.Finding{}
	for _, f := range list.Items {
		by[f.Check] = f
	}
	return by
}

func TestDoctorReadsTheNodeOnlyWithTheRolesOfViewers(t *testing.T) {
	got := examine(t, "--as", "jane", "--as-group", "e2e-viewers")
	if f := got["agents"]; f.State != doctor.Unknown || !strings.Contains(f.Found, "no right to list") {
		t.Errorf("without roles: %+v", f)
	}
	bind := func(kind, role string, namespaced ...string) {
		kubectl(t, append([]string{"create", kind, "e2e-viewers", "--group", "e2e-viewers", role}, namespaced...)...)
		t.Cleanup(func() {
			kubectl(t, append([]string{"delete", kind, "e2e-viewers"}, namespaced...)...)
		})
	}
	bind("clusterrolebinding", "--clusterrole=gpu-dra-driver-viewer")
	got = examine(t, "--as", "jane", "--as-group", "e2e-viewers")
	if f := got["policies"]; f.State != doctor.OK {
		t.Errorf("with the ClusterRole: %+v", f)
	}
	if f := got["agents"]; f.State != doctor.Unknown || !strings.Contains(f.Found, "no right to list daemonsets.apps in the namespace "+harness.Namespace) {
		t.Errorf("with the ClusterRole: %+v", f)
	}
	bind("rolebinding", "--role=gpu-dra-driver-viewer", "--namespace", harness.Namespace)
	got = examine(t, "--as", "jane", "--as-group", "e2e-viewers")
	for check, want := range map[string]string{"facts": "1 agent answered", "driver": "driver 5", "pcie": "16 lanes", "fabric": "registered"} {
		if f := got[check]; f.State != doctor.OK || !strings.Contains(f.Found, want) {
			t.Errorf("with both roles: %+v, want %s", f, want)
		}
	}
}

func TestTheAgentRefusesFactsToOtherTokens(t *testing.T) {
	_, pod := agentOn(t)
	const account = "gpu-dra-driver-viewer"
	facts := func(token string) error {
		return cluster.Client.CoreV1().RESTClient().Get().AbsPath("/api/v1/namespaces", harness.Namespace, "pods", pod+":8080", "proxy", agentv1.PathNode).
			SetHeader(agentv1.TokenHeader, token).Do(t.Context()).Error()
	}
	token := func(account string, audiences ...string) string {
		request, err := cluster.Client.CoreV1().ServiceAccounts(harness.Namespace).CreateToken(t.Context(), account, &authv1.TokenRequest{
			Spec: authv1.TokenRequestSpec{Audiences: audiences},
		}, metav1.CreateOptions{})
		must(t, err)
		return request.Status.Token
	}
	running, err := cluster.Client.CoreV1().Pods(harness.Namespace).Get(t.Context(), pod, metav1.GetOptions{})
	must(t, err)
	audience := agentv1.Audience(harness.DriverName, string(running.UID))
	must(t, facts(token(account, audience)))
	for name, wrong := range map[string]string{
		"no token":                        "",
		"a token that is made up":         "a.b.c",
		"a token for the API server":      token(account),
		"a token for all agents":          token(account, "agent."+harness.DriverName),
		"a token for another agent":       token(account, agentv1.Audience(harness.DriverName, "11111111-2222-3333-4444-555555555555")),
		"a token of the agent's account":  token("gpu-kubelet-plugin", audience),
		"a token of another account here": token("default", audience),
	} {
		if err := facts(wrong); !apierrors.IsUnauthorized(err) {
			t.Errorf("%s: %v, want a refusal", name, err)
		}
	}
}

// A tenant copies the agents' DaemonSet into its namespace. Its pods have the node's network, so
// that the test can answer for them.
func TestAPodOfATenantGetsNoTokenAndNoRequest(t *testing.T) {
	listener, err := cluster.ListenOnNode()
	must(t, err)
	var requests atomic.Int32
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		t.Errorf("the tenant's pod gets %s with the token %.10q", r.URL.Path, r.Header.Get(agentv1.TokenHeader))
	})}
	go func() { _ = server.Serve(listener) }() // ends with the server
	t.Cleanup(func() { must(t, server.Close()) })
	_, port, err := net.SplitHostPort(listener.Addr().String())
	must(t, err)
	namespace := namespaceFor(t, "impostor")
	apply(t, namespace, fmt.Sprintf(`
apiVersion: v1
kind: ServiceAccount
metadata: {name: gpu-dra-driver-viewer}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: gpu-kubelet-plugin}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent, labels: {app.kubernetes.io/name: gpu-dra-driver, app.kubernetes.io/component: agent}}
spec:
  selector: {matchLabels: {app.kubernetes.io/component: agent}}
  template:
    metadata:
      labels: {app.kubernetes.io/name: gpu-dra-driver, app.kubernetes.io/component: agent}
      annotations: {gpu.nvidia.com/viewer-account: gpu-dra-driver-viewer}
    spec:
      serviceAccountName: gpu-kubelet-plugin
      hostNetwork: true
      terminationGracePeriodSeconds: 0
      # The agent's container never starts: the probe does not know its flag.
      initContainers:
      - name: wait
        image: localhost/gpu-dra-driver/gpu-probe:demo
        imagePullPolicy: IfNotPresent
      containers:
      - name: agent
        image: localhost/gpu-dra-driver/gpu-probe:demo
        imagePullPolicy: IfNotPresent
        args: [--driver-name=%s]
        ports: [{name: http, containerPort: %s}]
`, harness.DriverName, port))
	must(t, harness.Until(t.Context(), func(ctx context.Context) (bool, string, error) {
		pods, err := cluster.Client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
		return err == nil && len(pods.Items) == 1 && pods.Items[0].Status.PodIP == cluster.NodeIP, "the tenant's pod has no address", err
	}))
	got := examine(t)
	for check, want := range map[string]string{"agents": "1 agent ready", "facts": "1 agent answered"} {
		if f := got[check]; f.State != doctor.OK || f.Found != want {
			t.Errorf("got %+v, want %s", f, want)
		}
	}
	if out, err := cluster.GPU(t.Context(), "get", "--used"); err != nil {
		t.Errorf("get --used: %v: %s", err, out)
	}
	if n := requests.Load(); n > 0 {
		t.Errorf("the tenant's pod gets %d requests", n)
	}
}
