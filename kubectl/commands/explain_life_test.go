// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	k8sresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet/fleettest"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

// explain runs "explain" in the namespace default, and returns the output and the exit status.
func explain(t *testing.T, client kubernetes.Interface, args ...string) (out string, status int) {
	t.Helper()
	out, problems, status := runBy(t, kubeconfig(t), to(client), append([]string{"explain", "-n", "default"}, args...)...)
	out += problems
	for _, word := range []string{"| kubectl", "--force", "replace", "sed '", "helm upgrade"} {
		if strings.Contains(out, word) {
			t.Errorf("advice may destroy what it does not name: %q in\n%s", word, out)
		}
	}
	return out, status
}

// contains checks that the first ten lines of an output have the texts.
func contains(t *testing.T, out string, texts ...string) {
	t.Helper()
	first := strings.Join(strings.SplitN(out, "\n", 11)[:min(10, strings.Count(out, "\n"))], "\n")
	for _, text := range texts {
		if !strings.Contains(first, text) {
			t.Errorf("no %q in the first ten lines of:\n%s", text, out)
		}
	}
}

// running returns a cluster with the pods "whole", which has a GPU, and "half", which has a
// share of another one.
func running(t *testing.T) *fleettest.World {
	w := shared(t)
	for i, pod := range w.Pods {
		pod.Spec.NodeName, pod.Status.Phase = "a", corev1.PodRunning
		var limits *v1alpha1.ShareData
		if pod.Name == "half" {
			limits = &v1alpha1.ShareData{
				Strategy: v1alpha1.StrategyMPS, Memory: ptr.To(k8sresource.MustParse("7Gi")), MemoryLimit: ptr.To(k8sresource.MustParse("6656Mi")), ThreadPercentage: 50, Compute: 50,
			}
		}
		report(t, w.Claims[i], limits)
	}
	return w
}

// report adds the data of the agent to the status of a claim: it is prepared.
func report(t *testing.T, claim *resourceapi.ResourceClaim, share *v1alpha1.ShareData) {
	t.Helper()
	fleettest.Report(t, claim, share)
	claim.Status.Devices[0].Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Message: "the device is prepared"}}
}

// taint adds a taint of a device, which it has had for twelve minutes.
func taint(w *fleettest.World, device string, added resourceapi.DeviceTaint) {
	added.TimeAdded, added.Effect = ptr.To(metav1.NewTime(time.Now().Add(-12*time.Minute))), resourceapi.DeviceTaintEffectNoSchedule
	w.AddTaint(device, added)
}

func TestExplainSaysThatAShareReplacesAVolumeAtDevShm(t *testing.T) {
	w := running(t)
	for _, pod := range w.Pods {
		pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "cache", MountPath: "/dev/shm/"}}
	}
	client := server(w)
	const fact = "does not see its volume at /dev/shm"
	if out, status := explain(t, client, "half"); status != 0 || !strings.Contains(out, fact) {
		t.Errorf("a share, status %d:\n%s", status, out)
	}
	if out, _ := explain(t, client, "whole"); strings.Contains(out, fact) {
		t.Errorf("a GPU of its own:\n%s", out)
	}
}

// A share computes through a daemon that can end, and that serves one user at a time.
func TestExplainSaysWhatKeepsTheProgramsOfAShareFromComputing(t *testing.T) {
	w := running(t)
	half := w.Pods[slices.IndexFunc(w.Pods, func(p *corev1.Pod) bool { return p.Name == "half" })]
	claim := w.Claims[slices.IndexFunc(w.Claims, func(c *resourceapi.ResourceClaim) bool { return c.Name == "half" })]
	now := time.Now()
	started := func(ago time.Duration) {
		half.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(now.Add(-ago))}}}}
	}
	conditions := claim.Status.Devices[0].Conditions
	for _, c := range []struct {
		kind, reason string
		started      time.Duration
		status       int
		want         []string
	}{
		{v1alpha1.ConditionShareInterrupted, v1alpha1.ReasonMPSEnded, time.Hour, 3, []string{
			"the MPS daemon of the share or its server ended (mps-interrupted, for 12m)", "for the program: the programs of the share that ran then fail at their next CUDA call", "kubectl delete pod half --namespace default",
		}},
		// In the second of the end.
		{v1alpha1.ConditionShareInterrupted, v1alpha1.ReasonMPSEnded, 12 * time.Minute, 3, []string{"(mps-interrupted, for 12m)"}},
		{v1alpha1.ConditionShareInterrupted, v1alpha1.ReasonMPSEnded, time.Minute, 0, nil},
		{v1alpha1.ConditionShareUnserved, v1alpha1.ReasonMPSNotRunning, time.Minute, 3, []string{"the MPS daemon of the share does not run, and cannot be started (mps-not-running, for 12m)"}},
		{v1alpha1.ConditionShareWaits, v1alpha1.ReasonOtherUser, time.Minute, 2, []string{"a program waits for shares of another user of this GPU (mps-other-user, for 12m)", "run the pods that share the GPU as one user (runAsUser)"}},
	} {
		started(c.started)
		claim.Status.Devices[0].Conditions = append(slices.Clone(conditions), metav1.Condition{
			Type: c.kind, Reason: c.reason, Status: metav1.ConditionTrue, Message: "the agent's sentence", LastTransitionTime: metav1.NewTime(now.Add(-12 * time.Minute)),
		})
		out, status := explain(t, server(w), "half")
		contains(t, out, c.want...)
		if said := strings.Contains(out, "the agent's sentence"); status != c.status || said != (c.want == nil) {
			t.Errorf("%s, started %s ago: status %d, want %d:\n%s", c.kind, c.started, status, c.status, out)
		}
	}
}

// A pod on a GPU that has fallen off the bus is not ready first. The other pod of a second claim of it is
// well, so the remedy does not end it.
func TestExplainBeginsWithTheHealthOfDevices(t *testing.T) {
	w := running(t)
	w.Pods[0].Spec.ResourceClaims = append(w.Pods[0].Spec.ResourceClaims, corev1.PodResourceClaim{Name: "second", ResourceClaimName: ptr.To("half")})
	w.Pods[0].Spec.Containers[0].Resources.Claims = append(w.Pods[0].Spec.Containers[0].Resources.Claims, corev1.ResourceClaim{Name: "second"})
	w.Claims[1].Status.ReservedFor = append(w.Claims[1].Status.ReservedFor, w.Claims[0].Status.ReservedFor...)
	taint(w, "gpu-18-00", resourceapi.DeviceTaint{Key: v1alpha1.TaintUnhealthy, Value: "xid-79"})
	client := server(w)
	out, status := explain(t, client, "whole")
	contains(t, out, "gpu-18-00 of node a has failed: the GPU has fallen off the bus (xid-79, for 12m)",
		"for the program: the programs on the GPU have failed or will fail",
		"delete the pod, so that its controller starts it on another GPU", ": kubectl delete pod whole --namespace default\n")
	if status != 3 || strings.Contains(out, "Ready is True") || strings.Contains(out, "tolerate") || strings.Contains(out, "restart the node") {
		t.Errorf("status %d:\n%s", status, out)
	}
	const repair = "move its pods (kubectl gpu drain a/gpu-18-00), then restart the node"
	if out, _ := explain(t, client, "whole", "-o", "wide"); !strings.Contains(out, repair) {
		t.Errorf("wide: no remedy for the administrator:\n%s", out)
	}
	client.PrependReactor("create", "selfsubjectaccessreviews", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, &authorizationv1.SelfSubjectAccessReview{Status: authorizationv1.SubjectAccessReviewStatus{Allowed: true}}, nil
	})
	if out, _ := explain(t, client, "whole"); !strings.Contains(out, repair) {
		t.Errorf("an administrator gets no remedy:\n%s", out)
	}
	if out, status := explain(t, client, "whole", "-o", "json"); status != 3 || !strings.Contains(out, `"code": "xid-79"`) || !strings.Contains(out, `"outcome": "fault"`) {
		t.Errorf("json, status %d: %s", status, out)
	}
	if out, status := explain(t, client, "claim/whole"); status != 3 || !strings.Contains(out, "kubectl delete pod whole --namespace default") {
		t.Errorf("claim, status %d: %s", status, out)
	}
	if out, status := explain(t, client, "half"); status != 0 || strings.Contains(out, "xid") {
		t.Errorf("another pod, status %d: %s", status, out)
	}
}

func TestExplainOfTaintsBesidesFaults(t *testing.T) {
	for name, tc := range map[string]struct {
		taint resourceapi.DeviceTaint
		want  string
	}{
		"a cordon":         {resourceapi.DeviceTaint{Key: "gpu.nvidia.com/cordoned"}, "an administrator took the GPU out of use (cordoned, for 12m)"},
		"a foreign one":    {resourceapi.DeviceTaint{Key: "example.com/old", Value: "yes"}, "another party has set the taint example.com/old=yes:NoSchedule"},
		"a withdrawn part": {resourceapi.DeviceTaint{Key: v1alpha1.TaintWithdrawn, Value: "share"}, "the node no longer offers the device, and claims still hold it (withdrawn, for 12m)"},
	} {
		w := running(t)
		taint(w, "gpu-18-00", tc.taint)
		out, status := explain(t, server(w), "whole")
		if contains(t, out, tc.want); status != 0 || strings.Contains(out, "tolerate") {
			t.Errorf("%s: status %d:\n%s", name, status, out)
		}
	}
}

// The kubelet keeps the agent's reports in the status of the pod, which its owner may read.
func TestExplainOfTheHealthThatTheKubeletReports(t *testing.T) {
	for health, want := range map[corev1.ResourceHealthStatus]struct {
		text   string
		status int
	}{
		corev1.ResourceHealthStatusHealthy:   {"", 0},
		corev1.ResourceHealthStatusUnhealthy: {"the kubelet reports gpu-18-00 as Unhealthy: XID 79", 3},
		corev1.ResourceHealthStatusUnknown:   {"the kubelet reports gpu-18-00 as Unknown", 5},
	} {
		w := running(t)
		pod := w.Pods[0]
		resource := corev1.ResourceHealth{ResourceID: "gpu.nvidia.com/a/gpu-18-00", Health: health}
		if health == corev1.ResourceHealthStatusUnhealthy {
			resource.Message = ptr.To("XID 79")
		}
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", AllocatedResourcesStatus: []corev1.ResourceStatus{{Name: "claim:gpu", Resources: []corev1.ResourceHealth{resource}}}}}
		client := server(w)
		for _, list := range []string{"resourceslices", "deviceclasses", "devicetaintrules"} {
			forbid(client, list, false)
		}
		out, status := explain(t, client, "whole")
		if contains(t, out, want.text); status != want.status {
			t.Errorf("%s: status %d:\n%s", health, status, out)
		}
	}
}

// A claim can have several devices, and several shares of one.
func TestExplainOfTheHealthOfAnotherDeviceOfTheClaim(t *testing.T) {
	health := func(id string, health corev1.ResourceHealthStatus) corev1.ResourceHealth {
		return corev1.ResourceHealth{ResourceID: corev1.ResourceID(id), Health: health}
	}
	for name, tc := range map[string]struct {
		pod      string
		reported []corev1.ResourceStatus
		status   int
	}{
		"of another request": {"whole", []corev1.ResourceStatus{
			{Name: "claim:gpu/gpu", Resources: []corev1.ResourceHealth{health("gpu-18-00", corev1.ResourceHealthStatusHealthy)}},
			{Name: "claim:gpu/other", Resources: []corev1.ResourceHealth{health("nic-1", corev1.ResourceHealthStatusUnhealthy)}},
		}, 0},
		"of a share": {"half", []corev1.ResourceStatus{{Name: "claim:gpu", Resources: []corev1.ResourceHealth{
			health("nvidia.com/gpu=half-gpu-18-00", corev1.ResourceHealthStatusHealthy),
			health("nvidia.com/gpu=half-gpu-3b-00_6f1c", corev1.ResourceHealthStatusUnhealthy),
		}}}, 3},
	} {
		w := running(t)
		for _, pod := range w.Pods {
			pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", AllocatedResourcesStatus: tc.reported}}
		}
		if out, status := explain(t, server(w), tc.pod); status != tc.status {
			t.Errorf("%s: status %d:\n%s", name, status, out)
		}
	}
}

func TestExplainOfADeviceThatTheNodeDoesNotPublish(t *testing.T) {
	w := running(t)
	w.Slices[0].Spec.Devices = w.Slices[0].Spec.Devices[1:]
	out, status := explain(t, server(w), "whole")
	if contains(t, out, "a/gpu-18-00: the node does not publish it now, so its health is not known"); status != 5 {
		t.Errorf("status %d", status)
	}
}

func TestExplainOfThePodsOfANodeWithoutAnAgent(t *testing.T) {
	client := drivenWorld(t, running(t), func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusForbidden) })
	for _, name := range []string{"whole", "claim/whole"} {
		if out, status := explain(t, client, name); status != 0 || strings.Contains(out, "agent") {
			t.Errorf("%s with an agent: status %d:\n%s", name, status, out)
		}
	}
	require.NoError(t, client.Clientset.CoreV1().Pods("gpus").Delete(t.Context(), "agent-1", metav1.DeleteOptions{}))
	for _, name := range []string{"whole", "claim/whole"} {
		out, status := explain(t, client, name)
		if contains(t, out, "no agent is ready on node a: the health of its GPUs is not watched", "kubectl gpu doctor a"); status != 5 {
			t.Errorf("%s: status %d:\n%s", name, status, out)
		}
	}
}

func TestExplainHasTheLimitsInTheWordsOfAProgram(t *testing.T) {
	client := drivenWorld(t, running(t), func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(used)) })
	out, status := explain(t, client, "half")
	contains(t, out, "main: gpu-3b-00 of node a, claim half",
		"a process may use 6.5Gi, its context included", "a process uses at most 50% of the SMs",
		"uses 3.0Gi of memory now", "runs kernels for 25% of the time")
	if status != 0 {
		t.Errorf("status %d", status)
	}
	out, _ = explain(t, client, "whole")
	contains(t, out, "it has the device alone: 14916Mi of memory, and all SMs of the device")
}

func TestExplainNamesNeighboursAboveTheirPromise(t *testing.T) {
	w := running(t)
	w.Hold("a", "greedy", "class=mps.nvidia.com memory=2Gi")
	w.Claims[2].Namespace, w.Pods[2].Namespace = "secret", "secret"
	const rows = `{"rows": [
  {"namespace": "secret", "claim": "greedy", "device": "gpu-3b-00", "memoryPromisedBytes": 2147483648},
  {"namespace": "secret", "claim": "greedy", "pod": "p", "container": "c", "device": "gpu-3b-00", "memoryUsedBytes": 4294967296}]}`
	client := drivenWorld(t, w, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(rows)) })
	out, _ := explain(t, client, "half")
	contains(t, out, "claim secret/greedy on the GPU of gpu-3b-00 uses 4.0Gi, more than the 2.0Gi that it was promised")
	forbid(client.Clientset, "resourceclaims", true)
	out, _ = explain(t, client, "half")
	if contains(t, out, "a claim of another namespace on the GPU of gpu-3b-00 uses 4.0Gi"); strings.Contains(out, "secret") {
		t.Errorf("a tenant reads the names of another:\n%s", out)
	}
}

func TestExplainOfAClaimThatNoContainerNames(t *testing.T) {
	w := running(t)
	w.Pods[0].Spec.Containers[0].Resources.Claims = nil
	out, _ := explain(t, server(w), "whole")
	contains(t, out, "no container of the pod names the claim whole, so no program gets its devices", "add resources.claims: [{name: gpu}] to the container that computes")
}

func TestExplainOfThePlaceOfDevices(t *testing.T) {
	w := fleettest.New(t, "a=dgx1-v100 share")
	w.Hold("a", "near", "count=2")
	w.Hold("a", "far", "count=4")
	for _, pod := range w.Pods {
		pod.Spec.NodeName, pod.Status.Phase = "a", corev1.PodRunning
	}
	if out, _ := explain(t, server(w), "near"); strings.Contains(out, "placement") {
		t.Errorf("near: %s", out)
	}
	out, status := explain(t, server(w), "far")
	if !strings.Contains(out, "placement: its 4 GPUs span the NUMA nodes 0, 1 of node a") || status != 0 {
		t.Errorf("far: %s", out)
	}
}

// event adds a warning about a pod.
func event(t *testing.T, client kubernetes.Interface, name, reason, message string) {
	t.Helper()
	_, err := client.CoreV1().Events("default").Create(t.Context(), &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Type: corev1.EventTypeWarning, Reason: reason, Message: message,
	}, metav1.CreateOptions{})
	require.NoError(t, err)
}

func TestExplainOfARefusalHasItOnceAndWhetherWaitingHelps(t *testing.T) {
	const sentence = "request gpu, device gpu-18-00: already in use: process 4711 computes on it"
	w := running(t)
	w.Pods[0].Status.Phase = corev1.PodPending
	w.Claims[0].Status.Devices[0].Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: "AlreadyInUse", Message: sentence}}
	client := drivenWorld(t, w, func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusForbidden) })
	event(t, client, "e", "FailedPrepareDynamicResources", "Failed to prepare dynamic resources: prepare dynamic resources: NodePrepareResources failed for ResourceClaim default/whole: claim default/whole: "+sentence)
	out, status := explain(t, client, "whole")
	contains(t, out, "pod default/whole: ContainerCreating", "the agent of node a refuses claim whole: "+sentence, "waiting helps: until the claim, process or pod that the cause names has ended")
	if n := strings.Count(out, "4711"); n != 1 || status != 2 || strings.Contains(out, "NodePrepareResources") {
		t.Errorf("status %d, the sentence is there %d times:\n%s", status, n, out)
	}
	if !strings.Contains(out, "agent of node a: pod agent-1 is ready") {
		t.Errorf("no agent:\n%s", out)
	}
}

// Its container runs, and would not start again.
func TestExplainOfAPodThatRunsWhoseClaimLacksItsFiles(t *testing.T) {
	const sentence = "verify: WriteCDI: write CDI spec: rename /var/run/cdi/one.json: read-only file system"
	w := running(t)
	w.Claims[0].Status.Devices[0].Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: "PrepareFailed", Message: sentence}}
	out, status := explain(t, drivenWorld(t, w, func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusForbidden) }), "whole")
	contains(t, out, "pod default/whole: Running", "no container of the pod starts again: the agent of node a cannot prepare claim whole again: "+sentence)
	if status == 0 {
		t.Errorf("status %d:\n%s", status, out)
	}
	// The agent speaks for devices of its driver only.
	w.Claims[0].Status.Devices[0].Driver = "nic.example.com"
	if out, status := explain(t, server(w), "whole"); status != 0 || strings.Contains(out, "the agent of node a") {
		t.Errorf("another driver: status %d:\n%s", status, out)
	}
}

func TestExplainOfAPodThatWaitsForTheDriver(t *testing.T) {
	for name, tc := range map[string]struct {
		pod   string
		lacks string
		state corev1.PodPhase
		want  string
	}{
		"no agent":                        {"whole", "agent-1", corev1.PodPending, "no agent of the driver runs on node a: nothing prepares or releases claims there"},
		"no supervisor for MPS":           {"half", "supervisor-1", corev1.PodPending, "no supervisor of the driver runs on node a: MPS shares do not start or end there"},
		"a whole GPU needs none":          {"whole", "supervisor-1", corev1.PodPending, ""},
		"no agent, a pod that is deleted": {"whole", "agent-1", corev1.PodRunning, "no agent of the driver runs on node a"},
	} {
		t.Run(name, func(t *testing.T) {
			w := running(t)
			for _, pod := range w.Pods {
				if pod.Status.Phase = tc.state; tc.state == corev1.PodRunning {
					pod.DeletionTimestamp, pod.Finalizers = ptr.To(metav1.Now()), []string{"example.com/wait"}
				}
			}
			client := drivenWorld(t, w, func(http.ResponseWriter, *http.Request) {})
			require.NoError(t, client.Clientset.CoreV1().Pods("gpus").Delete(t.Context(), tc.lacks, metav1.DeleteOptions{}))
			out, status := explain(t, client, tc.pod)
			if contains(t, out, tc.want); status != 2 || tc.want == "" && strings.Contains(out, "no supervisor") {
				t.Errorf("status %d:\n%s", status, out)
			}
			if tc.want != "" {
				contains(t, out, "the administrator finds the reason: kubectl gpu doctor a")
			}
		})
	}
}

func TestExplainOfAnAgentThatIsNotReady(t *testing.T) {
	w := running(t)
	w.Pods[0].Status.Phase = corev1.PodPending
	client := drivenWorld(t, w, func(http.ResponseWriter, *http.Request) {})
	agent, _ := agentOf(t, client)
	agent.Status = corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}}}}
	agent.CreationTimestamp = metav1.NewTime(time.Now().Add(-3 * time.Hour))
	_, err := client.Clientset.CoreV1().Pods("gpus").UpdateStatus(t.Context(), agent, metav1.UpdateOptions{})
	require.NoError(t, err)
	out, _ := explain(t, client, "whole")
	contains(t, out, "the agent of node a is not ready: pod agent-1: CrashLoopBackOff (age 3h)", "kubectl gpu doctor a")
}

func TestExplainOfAPodThatHasFailed(t *testing.T) {
	memory := corev1.ResourceList{corev1.ResourceMemory: k8sresource.MustParse("4Gi")}
	for name, tc := range map[string]struct {
		ended corev1.ContainerStateTerminated
		want  []string
	}{
		"memory of the container": {corev1.ContainerStateTerminated{ExitCode: 137, Reason: "OOMKilled"},
			[]string{"container main failed 4d4h ago: exit code 137, OOMKilled", "not of the GPU, was used up: raise resources.limits.memory of container main (resources.limits.memory is 4Gi)"}},
		"memory of the GPU, and more output": {
			corev1.ContainerStateTerminated{ExitCode: 1, Reason: "Error", Message: "{\nCUDA_ERROR_OUT_OF_MEMORY: 20 MiB\n}\n"},
			[]string{"exit code 1: CUDA_ERROR_OUT_OF_MEMORY: 20 MiB\n", "the memory of the GPU within the limits was used up"},
		},
		"memory of the GPU": {corev1.ContainerStateTerminated{ExitCode: 1, Reason: "Error", Message: "Traceback\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20 MiB\n"},
			[]string{"exit code 1: torch.OutOfMemoryError: CUDA out of memory", "claim more memory\n"}},
		"a signal": {corev1.ContainerStateTerminated{ExitCode: 137, Reason: "Error"}, []string{"a signal ended it (SIGKILL)"}},
		"an error without a message": {corev1.ContainerStateTerminated{ExitCode: 3, Reason: "Error"},
			[]string{"exit code 3", "kubectl logs half --namespace default --container main"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := running(t)
			pod := w.Pods[1]
			tc.ended.FinishedAt = metav1.NewTime(time.Now().Add(-100 * time.Hour))
			pod.Status.Phase, pod.Spec.Containers[0].Resources.Limits = corev1.PodFailed, memory
			pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", State: corev1.ContainerState{Terminated: &tc.ended}}}
			out, status := explain(t, server(w), "half")
			if contains(t, out, tc.want...); status != 4 {
				t.Errorf("status %d", status)
			}
			if !strings.Contains(out, "claim half has gpu-3b-00 of node a") {
				t.Errorf("no claim: %s", out)
			}
			// The same after a restart: the container waits for the next one.
			pod.Status.Phase = corev1.PodRunning
			pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", RestartCount: 7, LastTerminationState: corev1.ContainerState{Terminated: &tc.ended},
				State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}}}
			out, status = explain(t, server(w), "half")
			if contains(t, out, "container main does not run: CrashLoopBackOff, after 7 restarts"); status != 4 {
				t.Errorf("status %d", status)
			}
		})
	}
}

// A program that is meant to end, in a Deployment.
func TestExplainOfAProgramThatEndsAtOnce(t *testing.T) {
	w := running(t)
	w.Pods[1].Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", RestartCount: 7,
		LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}},
		State:                corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}}}
	out, status := explain(t, server(w), "half")
	contains(t, out, "container main does not run: its program has ended without an error, at an unknown time, after 7 restarts", "give the container a program that continues, or run it in a Job")
	if status != 4 {
		t.Errorf("status %d", status)
	}
}

func TestExplainWithoutTheRightToListNodes(t *testing.T) {
	client := server(waiting(t))
	forbid(client, "nodes", false)
	out, _ := explain(t, client, "pending")
	if contains(t, out, "without the right to list nodes, their taints, labels, cpu and memory are not known"); strings.Contains(out, "may be in use") {
		t.Errorf("the claims are known:\n%s", out)
	}
}

// The event is the first cause, and an older one about the same is a fact.
func TestExplainOfAPodThatAFaultEnded(t *testing.T) {
	w := running(t)
	pod := w.Pods[1]
	pod.Status.Phase = corev1.PodFailed
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 11}}}}
	client := server(w)
	for i, e := range []struct{ reason, message string }{
		{"SharedFault", "A fault of another program on gpu-3b-00 of node a (XID 31 at 13:00:00 UTC) ended the programs of all its MPS shares. What to do: start the program again."},
		{"ProgramFault", "XID 31 at 13:55:08 UTC on gpu-3b-00 of node a: the program wrote; the GPU is well. What to do: correct the program."},
	} {
		require.NoError(t, client.Tracker().Add(&corev1.Event{
			ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: e.reason}, Reason: e.reason, Message: e.message, Type: corev1.EventTypeWarning,
			InvolvedObject: corev1.ObjectReference{UID: pod.UID}, LastTimestamp: metav1.NewTime(time.Now().Add(time.Duration(i-2) * time.Hour)),
		}))
	}
	out, status := explain(t, client, "half")
	contains(t, out, "pod default/half: Failed\n  XID 31 at 13:55:08 UTC on gpu-3b-00 of node a: the program wrote; the GPU is well (60m ago)\n  container main failed",
		"What to do\n  correct the program\n")
	if status != 4 || !strings.Contains(out, "event SharedFault, 120m ago: A fault of another program") {
		t.Errorf("status %d:\n%s", status, out)
	}
}

func TestExplainOfAPodThatHasEnded(t *testing.T) {
	w := running(t)
	pod := w.Pods[0]
	pod.Status.Phase = corev1.PodSucceeded
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}}}
	w.Claims = w.Claims[1:]
	out, status := explain(t, server(w), "whole")
	if contains(t, out, "pod default/whole: Succeeded", "container main has ended without an error"); status != 0 {
		t.Errorf("status %d", status)
	}
}

// A user with the role view in one namespace reads neither slices nor classes.
func TestExplainWithTheRightsToOneNamespace(t *testing.T) {
	restricted := func(w *fleettest.World) *fake.Clientset {
		client := server(w)
		for _, list := range []string{"resourceslices", "deviceclasses", "devicetaintrules", "nodes"} {
			forbid(client, list, false)
		}
		for _, list := range []string{"pods", "resourceclaims"} {
			forbid(client, list, true)
		}
		return client
	}
	client := restricted(running(t))
	out, status := explain(t, client, "half")
	contains(t, out, "the health of a/gpu-3b-00 is not known", "you have no right to list resourceslices, deviceclasses, devicetaintrules", "ask an administrator for the ClusterRole gpu-dra-driver-devices",
		"a process may use 6.5Gi, its context included")
	if status != 5 || strings.Count(out, "no right") != 1 {
		t.Errorf("status %d:\n%s", status, out)
	}
	if out, _ := explain(t, client, "whole"); !strings.Contains(out, "it has the device alone: ") {
		t.Errorf("a claim that has its GPU alone:\n%s", out)
	}
	w := waiting(t)
	client = restricted(w)
	event(t, client, "e", "FailedResourceClaimCreation", "exceeded quota: gpus, requested: 1")
	out, status = explain(t, client, "pending")
	// The claim exists: the event is history, and no advice follows from it.
	if contains(t, out, "scheduler: no node", "ask an administrator for the ClusterRole gpu-dra-driver-devices", "event FailedResourceClaimCreation, "); status != 2 || strings.Contains(out, "raise the quota") {
		t.Errorf("status %d:\n%s", status, out)
	}
}

func TestExitStatusOfExplain(t *testing.T) {
	w := waiting(t)
	w.Claims = append(w.Claims, fleettest.Claim("fits", "class=gpu.nvidia.com"))
	for want, name := range map[int]string{0: "claim/held", 1: "none", 2: "pending"} {
		if out, status := explain(t, server(w), name); status != want {
			t.Errorf("%s: status %d, want %d:\n%s", name, status, want, out)
		}
	}
	if out, status := explain(t, server(w), "claim/fits"); status != 2 {
		t.Errorf("a claim without a place: status %d:\n%s", status, out)
	}
	w.Claims = w.Claims[len(w.Claims)-1:]
	if out, status := explain(t, server(w), "claim/fits"); status != 0 {
		t.Errorf("a claim that fits: status %d:\n%s", status, out)
	}
	w.Claims[0].DeletionTimestamp = &metav1.Time{Time: time.Date(2026, 11, 29, 18, 59, 33, 0, time.UTC)}
	w.Claims[0].Finalizers = []string{resourceapi.Finalizer}
	if out, status := explain(t, server(w), "claim/fits"); status != 2 || !strings.Contains(out, "the deletion of the claim began at 2026-11-29T18:59:33Z") {
		t.Errorf("a claim that is deleted: status %d:\n%s", status, out)
	}
}

// What programs and kubelets write is text of others.
func TestControlCharactersOfPodsDoNotReachTheTerminal(t *testing.T) {
	w := running(t)
	w.Pods[0].Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: "main", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, Message: hostile, Reason: hostile}},
		AllocatedResourcesStatus: []corev1.ResourceStatus{{Name: "claim:gpu", Resources: []corev1.ResourceHealth{{ResourceID: "x", Health: "Unhealthy", Message: ptr.To(hostile)}}}},
	}, {Name: "other", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: hostile}}}}
	for _, phase := range []corev1.PodPhase{corev1.PodRunning, corev1.PodFailed, corev1.PodPending} {
		w.Pods[0].Status.Phase = phase
		out, _ := explain(t, server(w), "whole")
		if bad := control(out); len(bad) > 0 || strings.Contains(out, "\nNode a: all is well") {
			t.Errorf("%s: %q in %q", phase, string(bad), out)
		}
	}
}

func TestExplainNamesTheProcessThatKeepsADevice(t *testing.T) {
	w := running(t)
	pod := w.Pods[1]
	pod.DeletionTimestamp, pod.Finalizers = ptr.To(metav1.Now()), []string{"example.com/wait"}
	for _, claim := range w.Claims {
		if claim.Name == pod.Name {
			claim.Status.Devices[0].Conditions = []metav1.Condition{{
				Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonUnprepareRetried,
				Message: "undo CreatePartition: destroy 1g.10gb@2: already in use: it is open in process 17 of another pod",
			}}
		}
	}
	out, _ := explain(t, server(w), pod.Name)
	contains(t, out, "the agent of node a cannot release claim "+pod.Name+": ", "it is open in process 17 of another pod", "waiting helps: until the claim, process or pod")
}
