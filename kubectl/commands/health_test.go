// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func podResource() schema.GroupVersionResource {
	return schema.GroupVersionResource{Version: "v1", Resource: "pods"}
}

func TestTheTaintOfAGPUIsAWordWithAnAge(t *testing.T) {
	w := shared(t)
	w.Taint("gpu-3b-00", "xid-79")
	since := metav1.NewTime(time.Now().Add(-12*time.Minute - time.Second))
	for i := range w.Slices[0].Spec.Devices {
		for j := range w.Slices[0].Spec.Devices[i].Taints {
			w.Slices[0].Spec.Devices[i].Taints[j].TimeAdded = &since
		}
	}
	const taint = "gpu.nvidia.com/unhealthy=xid-79:NoSchedule"
	for _, args := range [][]string{{}, {"who", "-A"}} {
		if out, _ := run(t, installed(t, w), args...); !strings.Contains(out, "xid-79, 12m") || strings.Contains(out, taint) {
			t.Errorf("%v: got %s", args, out)
		}
	}
	if out, _ := run(t, installed(t, w), "-o", "wide"); !strings.Contains(out, taint) {
		t.Errorf("wide: got %s", out)
	}
}

func TestAGPUWhoseAgentIsNotReadyIsNotOK(t *testing.T) {
	client := drivenWorld(t, shared(t), func(http.ResponseWriter, *http.Request) {})
	pod, _ := agentOf(t, client)
	pod = pod.DeepCopy()
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse, LastTransitionTime: metav1.NewTime(time.Now().Add(-100 * time.Hour))}}
	must(t, client.Tracker().Update(podResource(), pod, "gpus"))
	for _, args := range [][]string{{}, {"who", "-A"}, {"free"}} {
		out, problems := run(t, client, args...)
		if !strings.Contains(out+problems, "agent not ready since 4d4h ago") || strings.Contains(out, " ok") {
			t.Errorf("%v: got %s%s", args, out, problems)
		}
	}
	must(t, client.Tracker().Delete(podResource(), "gpus", "agent-1"))
	if out, _ := run(t, client); strings.Count(out, "unknown: no agent") != 4 {
		t.Errorf("without the pod: got %s", out)
	}
	// The user may not know.
	forbid(client.Clientset, "daemonsets", false)
	if out, problems := run(t, client); strings.Count(out, " ok") != 4 || problems != "" {
		t.Errorf("without the right: got %s%s", out, problems)
	}
}
