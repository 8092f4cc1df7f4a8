// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	agentv1 "github.com/gpu-dra/gpu-dra-driver/api/agent/v1"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet/fleettest"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

// agentOf returns the agent's pod and its DaemonSet in the cluster of [driven].
func agentOf(t *testing.T, client proxied) (*corev1.Pod, *appsv1.DaemonSet) {
	t.Helper()
	pod, err := client.Clientset.CoreV1().Pods("gpus").Get(t.Context(), "agent-1", metav1.GetOptions{})
	require.NoError(t, err)
	set, err := client.Clientset.AppsV1().DaemonSets("gpus").Get(t.Context(), "agent", metav1.GetOptions{})
	require.NoError(t, err)
	return pod, set
}

// A tenant can create everything in its namespace, and copies the agent. It does so to get
// a token of the viewers and to answer for a node.
func TestPodsOfTenantsAreNotAgents(t *testing.T) {
	for name, change := range map[string]func(pod *corev1.Pod, set *appsv1.DaemonSet){
		"a pod with the labels": func(pod *corev1.Pod, set *appsv1.DaemonSet) {
			pod.OwnerReferences, set.Labels = nil, nil
		},
		"a DaemonSet with the labels": func(*corev1.Pod, *appsv1.DaemonSet) {},
		"a pod that names the driver's DaemonSet as its owner": func(pod *corev1.Pod, _ *appsv1.DaemonSet) {
			pod.OwnerReferences[0].UID = "agent"
		},
		"a pod in the driver's namespace without an owner": func(pod *corev1.Pod, set *appsv1.DaemonSet) {
			pod.Namespace, pod.OwnerReferences, set.Labels = "gpus", nil, nil
		},
		"a pod in the driver's namespace with another account": func(pod *corev1.Pod, set *appsv1.DaemonSet) {
			pod.Namespace, pod.OwnerReferences[0].UID, pod.Spec.ServiceAccountName, set.Labels = "gpus", "agent", "default", nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			client := driven(t, func(w http.ResponseWriter, r *http.Request) {
				if !strings.Contains(r.URL.Path, "/namespaces/gpus/pods/agent-1:9000/") {
					t.Errorf("%s is requested, with the token %q", r.URL.Path, r.Header.Get(agentv1.TokenHeader))
				}
				factsWithSwap("0")(w, r)
			})
			pod, set := agentOf(t, client)
			pod, set = pod.DeepCopy(), set.DeepCopy()
			set.Namespace, set.UID = "tenant", "of-tenant"
			pod.Namespace, pod.Name, pod.UID, pod.OwnerReferences[0].UID = "tenant", "evil", "of-evil", "of-tenant"
			pod.Annotations = map[string]string{"gpu.nvidia.com/viewer-account": "evil"}
			change(pod, set)
			for _, o := range []runtime.Object{pod, set} {
				require.NoError(t, client.Tracker().Add(o))
			}
			if out, problems := run(t, client, "doctor", "--all"); !strings.Contains(out, "1 agent ready") || !strings.Contains(out, "1 agent answered") {
				t.Errorf("got %s%s", out, problems)
			}
			if out, problems := run(t, client, "--used"); problems != "" {
				t.Errorf("got %s%s", out, problems)
			}
			for _, a := range client.Actions() {
				if a.GetNamespace() == "tenant" {
					t.Errorf("in the tenant's namespace: %s %s/%s", a.GetVerb(), a.GetResource().Resource, a.GetSubresource())
				}
			}
		})
	}
}

// A pod that tolerates everything may be on any node: it speaks for its own one.
func TestAnAgentSpeaksForItsOwnNode(t *testing.T) {
	client := drivenWorld(t, fleettest.New(t, "a=t4 share"), func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"nodeName": "b", "swapBytes": {"value": 1073741824}}`))
	})
	if out, _ := run(t, client, "doctor", "-o", "json"); !strings.Contains(out, `"object": "node a"`) || strings.Contains(out, "node b") {
		t.Errorf("got %s", out)
	}
}

func TestTheDriversNamespaceIsTheOneOfItsPolicies(t *testing.T) {
	policies := schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingadmissionpolicies"}
	client := driven(t, factsWithSwap("0"))
	for _, name := range []string{"x-own-slices", "x-own-claims", "x-own-events"} {
		require.NoError(t, client.Tracker().Delete(policies, "", name))
	}
	if out, _ := run(t, client, "doctor"); !strings.Contains(out, "no pod of an agent") || !strings.Contains(out, "--driver-namespace") {
		t.Errorf("without the policies: %s", out)
	}
	if out, _ := run(t, client, "doctor", "--all", "--driver-namespace", "gpus"); !strings.Contains(out, "1 agent answered") {
		t.Errorf("with the flag: %s", out)
	}
	forbid(client.Clientset, "validatingadmissionpolicies", false)
	const lacking = "You have no right to list validatingadmissionpolicies.admissionregistration.k8s.io. They name the namespace of the driver; --driver-namespace does, too."
	if out, _ := run(t, client, "doctor"); !strings.Contains(out, lacking) {
		t.Errorf("without the right: %s", out)
	}
	if _, problems := run(t, client, "--used"); !strings.Contains(problems, lacking) {
		t.Errorf("--used without the right: %s", problems)
	}
	if out, _ := run(t, client, "doctor", "--all", "--driver-namespace", "gpus"); !strings.Contains(out, "1 agent answered") {
		t.Errorf("with the flag: %s", out)
	}
}

// An agent of another driver of the same chart is none of this one.
func TestAgentsOfAnotherDriver(t *testing.T) {
	client := driven(t, func(_ http.ResponseWriter, r *http.Request) { t.Errorf("%s is requested", r.URL.Path) })
	if out, _ := run(t, client, "doctor", "--driver-name", "gpu.example.com"); !strings.Contains(out, "no pod of an agent for the driver gpu.example.com") {
		t.Errorf("got %s", out)
	}
}

func TestAnAnswerWithoutAnEndIsCut(t *testing.T) {
	for _, status := range []int{http.StatusOK, http.StatusInternalServerError} {
		var sent atomic.Int64
		client := driven(t, func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(status)
			chunk := bytes.Repeat([]byte(" "), 1<<16)
			for r.Context().Err() == nil {
				n, err := w.Write(chunk)
				if sent.Add(int64(n)); err != nil {
					return
				}
			}
		})
		out, _ := run(t, client, "doctor", "-o", "json")
		if !strings.Contains(out, "agent agent-1: not ready: invalid: the answer is longer than 4194304 bytes") {
			t.Errorf("status %d: %s", status, out)
		}
		// The kernel's buffers take some MB more.
		if got := sent.Load(); got > 8*mostAnswerBytes {
			t.Errorf("status %d: %d bytes are read", status, got)
		}
	}
	// The longest answer that is read.
	client := driven(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write(bytes.Repeat([]byte(" "), mostAnswerBytes-2))
		_, _ = w.Write([]byte("{}"))
	})
	if out, _ := run(t, client, "doctor", "--all"); !strings.Contains(out, "1 agent answered") {
		t.Errorf("an answer of 4 MiB: %s", out)
	}
}

func TestATokenIsNotSentToAnotherAddress(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("got a request with the token %q", r.Header.Get(agentv1.TokenHeader))
	}))
	t.Cleanup(other.Close)
	client := driven(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, other.URL, http.StatusFound) })
	if out, _ := run(t, client, "doctor", "-o", "json"); !strings.Contains(out, "the answer leads to another address") {
		t.Errorf("got %s", out)
	}
}
