// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	authv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	fakediscovery "k8s.io/client-go/discovery/fake"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"

	agentv1 "github.com/gpu-dra/gpu-dra-driver/api/agent/v1"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet/fleettest"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

// proxied is a client whose requests to pods go to an HTTP server.
type proxied struct {
	*fake.Clientset
	rest rest.Interface
}

func (p proxied) CoreV1() corev1client.CoreV1Interface {
	return proxiedCore{p.Clientset.CoreV1(), p.rest}
}

type proxiedCore struct {
	corev1client.CoreV1Interface
	rest rest.Interface
}

func (p proxiedCore) RESTClient() rest.Interface { return p.rest }

// driven returns a client of a cluster with an agent and a supervisor on node "a". The
// API server passes requests to the agent on to handler.
func driven(t *testing.T, handler http.HandlerFunc) proxied {
	t.Helper()
	return drivenWorld(t, fleettest.New(t, "a=t4 share"), handler)
}

func drivenWorld(t *testing.T, w *fleettest.World, handler http.HandlerFunc) proxied {
	t.Helper()
	client := server(w)
	for component, args := range map[string][]string{"agent": {"--driver-name=gpu.nvidia.com", "--mps-supervisor=/run/s"}, "supervisor": nil} {
		set := daemonSet(component, args...)
		require.NoError(t, client.Tracker().Add(set))
		require.NoError(t, client.Tracker().Add(podOf(set, component+"-1", "a")))
	}
	for _, name := range []string{"x-own-slices", "x-own-claims", "x-own-events"} {
		p := policy(name)
		require.NoError(t, client.Tracker().Add(p))
		require.NoError(t, client.Tracker().Add(&admissionv1.ValidatingAdmissionPolicyBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: p.Labels},
			Spec:       admissionv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny}},
		}))
	}
	discovery, ok := client.Discovery().(*fakediscovery.FakeDiscovery)
	if !ok {
		t.Fatal("the fake has another discovery client")
	}
	discovery.FakedServerVersion = &version.Info{GitVersion: "v1.37.1"}
	resources := metav1.APIResourceList{GroupVersion: "resource.k8s.io/v1"}
	for _, name := range []string{"deviceclasses", "devicetaintrules", "resourceclaims", "resourceclaims/status", "resourceclaimtemplates", "resourceslices"} {
		resources.APIResources = append(resources.APIResources, metav1.APIResource{Name: name})
	}
	discovery.Resources = []*metav1.APIResourceList{&resources}
	client.PrependReactor("create", "serviceaccounts", func(action clienttesting.Action) (bool, runtime.Object, error) {
		request := action.(clienttesting.CreateAction).GetObject().(*authv1.TokenRequest)
		if action.GetSubresource() != "token" || action.GetNamespace() != "gpus" || request.Spec.Audiences[0] != "agent.gpu.nvidia.com/agent-uid" {
			t.Errorf("got %+v", action)
		}
		return true, &authv1.TokenRequest{Status: authv1.TokenRequestStatus{Token: "secret"}}, nil
	})
	s := httptest.NewServer(handler)
	t.Cleanup(s.Close)
	address, err := url.Parse(s.URL)
	require.NoError(t, err)
	requests, err := rest.NewRESTClient(address, "/api/v1", rest.ClientContentConfig{
		GroupVersion: corev1.SchemeGroupVersion, Negotiator: runtime.NewClientNegotiator(scheme.Codecs.WithoutConversion(), corev1.SchemeGroupVersion),
	}, nil, s.Client())
	require.NoError(t, err)
	return proxied{client, requests}
}

func factsWithSwap(swap string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"driverVersion": {"value": "570.1"}, "memlock": {"value": "unlimited"}, "cgroupControllers": {"value": ["misc"]}, "swapBytes": {"value": ` + swap + `}}`))
	}
}

func TestDoctorReadsFactsThroughTheAPIServer(t *testing.T) {
	out, problems := run(t, driven(t, func(w http.ResponseWriter, r *http.Request) {
		if got, want := r.URL.Path, "/api/v1/namespaces/gpus/pods/agent-1:9000/proxy/v1/node"; got != want {
			t.Errorf("requested %s, want %s", got, want)
		}
		if r.Header.Get(agentv1.TokenHeader) != "secret" || r.Header.Get("Authorization") != "" {
			t.Errorf("headers %v", r.Header)
		}
		factsWithSwap("1073741824")(w, r)
	}), "doctor")
	lines(t, out+problems, `
STATE CODE OBJECT FOUND
warning swap-on node a 1.0Gi of swap

swap-on: node a
meaning host memory of programs may be on disk when the GPU needs it, and the kubelet does not start with swap unless its configuration admits it
remedy run swapoff --all and remove swap from /etc/fstab, unless the kubelet's memorySwap is set on purpose
read https://github.com/gpu-dra/gpu-dra-driver/blob/main/docs/admin/findings.md#swap-on

problems: 0, warnings: 1, unknown: 0, ok: 43`)
}

func TestDoctorPrintsAllChecksOnRequest(t *testing.T) {
	client := driven(t, factsWithSwap("0"))
	if out, problems := run(t, client, "doctor"); strings.TrimSpace(out) != "problems: 0, warnings: 0, unknown: 0, ok: 44" || problems != "" {
		t.Errorf("got %q, %q", out, problems)
	}
	if out, _ := run(t, client, "doctor", "--all"); !strings.Contains(out, "1 agent ready") || !strings.Contains(out, "driver 570.1") {
		t.Errorf("--all: %s", out)
	}
	if out, _ := run(t, client, "doctor", "-o", "json"); !strings.Contains(out, `"state": "ok"`) {
		t.Errorf("json: %s", out)
	}
	client = drivenWorld(t, fleettest.New(t, "a=t4 share", "another=t4 share"), factsWithSwap("0"))
	if out, _ := run(t, client, "doctor", "another", "--all"); strings.Contains(out, "node a ") || !strings.Contains(out, "Kubernetes v1.37.1") || !strings.Contains(out, "not found: no agent runs on the node") {
		t.Errorf("another node: %s", out)
	}
}

func TestDoctorFailsIfItFindsAProblem(t *testing.T) {
	client := driven(t, factsWithSwap("0"))
	for _, pod := range []string{"agent-1", "supervisor-1"} {
		require.NoError(t, client.Tracker().Delete(schema.GroupVersionResource{Version: "v1", Resource: "pods"}, "gpus", pod))
	}
	out, problems := run(t, client, "doctor")
	if !strings.Contains(strings.Join(strings.Fields(out), " "), "problem agent-missing cluster no pod of an agent") || !strings.Contains(problems, "Error: doctor found problems: 2") {
		t.Errorf("got %s%s", out, problems)
	}
}

func TestDoctorWithoutRights(t *testing.T) {
	for name, tc := range map[string]struct {
		given func(proxied)
		agent http.HandlerFunc
		want  string
	}{
		"to create tokens": {func(client proxied) {
			client.PrependReactor("create", "serviceaccounts", func(clienttesting.Action) (bool, runtime.Object, error) {
				return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "serviceaccounts/token"}, "viewer", nil)
			})
		}, factsWithSwap("0"), "unknown facts-not-readable cluster permission denied: you have no right to create serviceaccounts/token of viewer in the namespace gpus"},
		"to the proxy": {func(proxied) {}, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusForbidden)
		}, "unknown agent-does-not-answer node a permission denied: you have no right to get pods/proxy in the namespace gpus"},
		"to policies":          {func(client proxied) { forbid(client.Clientset, "validatingadmissionpolicies", false) }, factsWithSwap("0"), "You have no right to list validatingadmissionpolicies.admissionregistration.k8s.io."},
		"to the driver's pods": {func(client proxied) { forbid(client.Clientset, "pods", false) }, factsWithSwap("0"), "You have no right to list pods of the driver in the namespace gpus."},
		"to slices":            {func(client proxied) { forbid(client.Clientset, "resourceslices", false) }, factsWithSwap("0"), "You have no right to list resourceslices.resource.k8s.io: ask an administrator for the ClusterRole gpu-dra-driver-devices."},
		"to DaemonSets":        {func(client proxied) { forbid(client.Clientset, "daemonsets", false) }, factsWithSwap("0"), "unknown list-not-readable cluster You have no right to list daemonsets.apps in the namespace gpus."},
		"to other namespaces":  {func(client proxied) { forbid(client.Clientset, "pods", true) }, factsWithSwap("0"), "list pods of all namespaces"},
		"and an agent that refuses": {func(proxied) {}, func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "too old", http.StatusNotFound)
		}, "unknown agent-does-not-answer node a agent agent-1: not ready"},
		"and an agent that answers nonsense": {func(proxied) {}, func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte("hello"))
		}, "unknown agent-does-not-answer node a agent agent-1: corrupt"},
	} {
		t.Run(name, func(t *testing.T) {
			client := driven(t, tc.agent)
			tc.given(client)
			out, problems := run(t, client, "doctor", "--driver-namespace", "gpus")
			out = strings.Join(strings.Fields(out), " ")
			if !strings.Contains(out, tc.want) || problems != "" {
				t.Errorf("want %q, got %s %s", tc.want, out, problems)
			}
		})
	}
}

func TestDoctorOfAnAPIServerWithoutDRA(t *testing.T) {
	client := driven(t, factsWithSwap("0"))
	client.PrependReactor("list", "resourceslices", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewNotFound(schema.GroupResource{Resource: "resourceslices"}, "")
	})
	client.Discovery().(*fakediscovery.FakeDiscovery).Resources = nil
	out, problems := run(t, client, "doctor")
	if !strings.Contains(strings.Join(strings.Fields(out), " "), "problem resources-missing cluster resource.k8s.io/v1 lacks") || !strings.Contains(problems, "doctor found problems") {
		t.Errorf("got %s%s", out, problems)
	}
}

func TestDoctorMutesCodes(t *testing.T) {
	client := driven(t, factsWithSwap("1073741824"))
	if out, problems := run(t, client, "doctor", "--ignore", "swap-on,xid-79"); strings.TrimSpace(out) != "problems: 0, warnings: 0, unknown: 0, ok: 43, muted: 1" || problems != "" {
		t.Errorf("got %q, %q", out, problems)
	}
	if out, _ := run(t, client, "doctor", "--ignore", "swap-on", "-o", "json"); !strings.Contains(out, `"code": "swap-on"`) || !strings.Contains(out, `"muted": true`) || !strings.Contains(out, `"read": "https://github.com/gpu-dra/gpu-dra-driver/blob/main/docs/admin/findings.md#swap-on"`) {
		t.Errorf("json: %s", out)
	}
	if out, problems := run(t, client, "doctor", "--ignore", "swap"); !strings.Contains(problems, `no finding has the code "swap"`) {
		t.Errorf("a code that does not exist: %s%s", out, problems)
	}
	for _, pod := range []string{"agent-1", "supervisor-1"} {
		require.NoError(t, client.Tracker().Delete(schema.GroupVersionResource{Version: "v1", Resource: "pods"}, "gpus", pod))
	}
	if out, problems := run(t, client, "doctor", "--ignore", "agent-missing,node-without-agent"); problems != "" {
		t.Errorf("problems that are muted change the exit status: %s%s", out, problems)
	}
}
