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

	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

func podResource() schema.GroupVersionResource {
	return schema.GroupVersionResource{Version: "v1", Resource: "pods"}
}

func TestTaintsAndUUIDsAreInWideOutput(t *testing.T) {
	w := shared(t)
	w.Taint("gpu-3b-00", "xid-79")
	const taint = "gpu.nvidia.com/unhealthy=xid-79:NoSchedule"
	client := installed(t, w)
	if out, _ := run(t, client); !strings.Contains(out, "xid-79") || strings.Contains(out, taint) || strings.Contains(out, "GPU-") {
		t.Errorf("got %s", out)
	}
	if out, _ := run(t, client, "-o", "wide"); !strings.Contains(out, taint) || !strings.Contains(out, "GPU-") {
		t.Errorf("wide: got %s", out)
	}
}

func TestAGPUWhoseAgentIsNotReadyIsNotOK(t *testing.T) {
	client := drivenWorld(t, shared(t), func(http.ResponseWriter, *http.Request) {})
	pod, _ := agentOf(t, client)
	pod = pod.DeepCopy()
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse, LastTransitionTime: metav1.NewTime(time.Now().Add(-100 * time.Hour))}}
	require.NoError(t, client.Tracker().Update(podResource(), pod, "gpus"))
	for _, args := range [][]string{{}, {"who", "-A"}, {"free"}, {"usage"}} {
		out, problems := run(t, client, args...)
		if !strings.Contains(out+problems, "agent not ready since 4d4h ago") || strings.Contains(out, " ok") {
			t.Errorf("%v: got %s%s", args, out, problems)
		}
	}
	require.NoError(t, client.Tracker().Delete(podResource(), "gpus", "agent-1"))
	if out, _ := run(t, client); strings.Count(out, "unknown: no agent") != 4 {
		t.Errorf("without the pod: got %s", out)
	}
	// The user may not know.
	forbid(client.Clientset, "daemonsets", false)
	if out, problems := run(t, client); strings.Count(out, " ok") != 4 || problems != "" {
		t.Errorf("without the right: got %s%s", out, problems)
	}
}
