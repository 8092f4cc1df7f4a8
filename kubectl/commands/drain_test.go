// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet/fleettest"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

// evictions makes the API server evict pods as a cluster does: the pod ends after some time, and
// its claim is deleted. It refuses the first times, for a PodDisruptionBudget.
func evictions(t *testing.T, client *fake.Clientset, refusals int32, end time.Duration) {
	t.Helper()
	var refused atomic.Int32
	client.PrependReactor("create", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if action.GetSubresource() != "eviction" {
			return false, nil, nil
		}
		if refused.Add(1) <= refusals {
			err := apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", 0)
			err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: "DisruptionBudget", Message: "The disruption budget web needs 1 healthy pods and has 1 currently"}}
			return true, nil, err
		}
		eviction := action.(clienttesting.CreateAction).GetObject().(*policyv1.Eviction)
		time.AfterFunc(end, func() {
			for _, of := range []schema.GroupVersionResource{corev1.SchemeGroupVersion.WithResource("pods"), resourceapi.SchemeGroupVersion.WithResource("resourceclaims")} {
				if err := client.Tracker().Delete(of, eviction.Namespace, eviction.Name); err != nil {
					t.Error(err)
				}
			}
		})
		return true, nil, nil
	})
}

// controlled sets a controller of a kind on each pod.
func controlled(kind string, pods ...*corev1.Pod) {
	for _, pod := range pods {
		pod.OwnerReferences = []metav1.OwnerReference{{Kind: kind, Name: "web", Controller: ptr.To(true)}}
	}
}

func TestDrainWaitsForABudgetAndForTheClaims(t *testing.T) {
	w := shared(t)
	controlled("ReplicaSet", w.Pods...)
	client := server(w)
	// The cache of an API server can be older than the claims.
	client.PrependReactor("list", "resourceclaims", func(action clienttesting.Action) (bool, runtime.Object, error) {
		return action.(clienttesting.ListActionImpl).ListOptions.ResourceVersion == "0", &resourceapi.ResourceClaimList{}, nil
	})
	synctest.Test(t, func(t *testing.T) {
		evictions(t, client, 3, 20*time.Second)
		start := time.Now()
		out, problems := run(t, client, "drain", "a/gpu-3b-00", "--reason", "broken fan")
		lines(t, out+problems, `
annotate node a: gpu.nvidia.com/cordoned=gpu-3b-00
cordon a/gpu-3b-00: taint gpu.nvidia.com/cordoned on gpu-3b-00, gpu-3b-00-seat, gpu-3b-00-ts
a/gpu-3b-00 is cordoned (DeviceTaintRules: 3 created, 0 kept)
evict pod default/half: it has the claim half
pod default/half waits: Cannot evict pod as it would violate the pod's disruption budget. The disruption budget web needs 1 healthy pods and has 1 currently
pod default/half evicted
pod default/half has ended
a/gpu-3b-00 is drained: no claim has it`)
		if took := time.Since(start); took < 24*time.Second || took > 30*time.Second {
			t.Errorf("the drain took %s", took)
		}
		if len(rulesOf(t, client)) != 3 {
			t.Error("the GPU is not cordoned afterwards")
		}
		if _, err := client.CoreV1().Pods("default").Get(t.Context(), "whole", metav1.GetOptions{}); err != nil {
			t.Errorf("a pod of another GPU: %v", err)
		}
		out, problems = run(t, client, "drain", "a/gpu-3b-00")
		lines(t, out+problems, "a/gpu-3b-00 is cordoned already (DeviceTaintRules: 3)\na/gpu-3b-00 is drained: no claim has it")
	})
}

func TestDrainGivesUpAfterItsTimeout(t *testing.T) {
	w := shared(t)
	controlled("ReplicaSet", w.Pods...)
	client := server(w)
	synctest.Test(t, func(t *testing.T) {
		evictions(t, client, 1000, 0)
		start := time.Now()
		_, problems := run(t, client, "drain", "a/gpu-3b-00", "--timeout", "1m")
		lines(t, problems, "Error: drain a/gpu-3b-00: pod default/half is not evicted: Cannot evict pod as it would violate the pod's disruption budget. The disruption budget web needs 1 healthy pods and has 1 currently: timed out after 1m0s (--timeout); the GPU stays cordoned until kubectl gpu uncordon a/gpu-3b-00")
		if took := time.Since(start); took != time.Minute {
			t.Errorf("it gave up after %s", took)
		}
		// The API server gets no request each second.
		if n := strings.Count(strings.Join(writes(client), " "), "create pods"); n < 6 || n > 15 {
			t.Errorf("%d evictions were tried in a minute", n)
		}
	})
}

func TestDrainRefusesPodsWithoutTheirFlagsAndChangesNothing(t *testing.T) {
	for name, tc := range map[string]struct {
		change     func(pod *corev1.Pod)
		want, flag string
	}{
		"no controller": {func(pod *corev1.Pod) { pod.OwnerReferences = nil }, "no controller creates it again; --force evicts it", "--force"},
		"DaemonSet":     {func(pod *corev1.Pod) { controlled("DaemonSet", pod) }, "the DaemonSet web would create it again; --ignore-daemonsets leaves it", ""},
		"emptyDir": {func(pod *corev1.Pod) {
			pod.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
		}, "it has an emptyDir volume, whose data would be lost; --delete-emptydir-data evicts it", "--delete-emptydir-data"},
	} {
		t.Run(name, func(t *testing.T) {
			w := shared(t)
			controlled("ReplicaSet", w.Pods...)
			tc.change(w.Pods[1])
			client := server(w)
			synctest.Test(t, func(t *testing.T) {
				evictions(t, client, 0, time.Second)
				out, problems := run(t, client, "drain", "a/gpu-3b-00")
				if !strings.Contains(problems, "nothing is changed: pod default/half: "+tc.want) || out != "" || len(writes(client)) > 0 {
					t.Errorf("got %s%s, writes %v", out, problems, writes(client))
				}
				if tc.flag == "" {
					return
				}
				out, problems = run(t, client, "drain", "a/gpu-3b-00", tc.flag)
				if problems != "" || !strings.Contains(out, "a/gpu-3b-00 is drained: no claim has it") {
					t.Errorf("with %s: got %s%s", tc.flag, out, problems)
				}
			})
		})
	}
}

func TestDrainLeavesDaemonSetsAndMirrorPodsAndNamesThem(t *testing.T) {
	w := shared(t)
	controlled("DaemonSet", w.Pods[1])
	w.Hold("a", "static", "class=mps.nvidia.com memory=2Gi")
	if got := w.Claims[2].Status.Allocation.Devices.Results[0].Device; got != "gpu-3b-00" {
		t.Fatalf("the third claim is on %s", got)
	}
	w.Pods[2].Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
	client := server(w)
	out, problems := run(t, client, "drain", "a/gpu-3b-00", "--ignore-daemonsets")
	for _, want := range []string{
		"leave pod default/half: the DaemonSet web would create it again\n",
		"leave pod default/static: its node runs it from a file, so it cannot be evicted\n",
		"a/gpu-3b-00 is drained, but for claims of pods that were left: default/half, default/static\n",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in %s%s", want, out, problems)
		}
	}
	for _, write := range writes(client) {
		if write != "create devicetaintrules" && write != "patch nodes" {
			t.Errorf("the drain did %s", write)
		}
	}
}

// A claim by name is not deleted with its pod, and its controller's next pod uses it again.
func TestDrainEndsIfTheClaimIsUsedAgain(t *testing.T) {
	w := shared(t)
	controlled("ReplicaSet", w.Pods...)
	client := server(w)
	synctest.Test(t, func(t *testing.T) {
		client.PrependReactor("create", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
			if action.GetSubresource() != "eviction" {
				return false, nil, nil
			}
			require.NoError(t, client.Tracker().Delete(action.GetResource(), "default", "half"))
			next := fleettest.Pod("half")
			next.Name, next.UID = "half-2", "pod-half-2"
			controlled("ReplicaSet", next)
			require.NoError(t, client.Tracker().Add(next))
			claim := w.Claims[1].DeepCopy()
			claim.Status.ReservedFor[0].Name, claim.Status.ReservedFor[0].UID = next.Name, next.UID
			require.NoError(t, client.Tracker().Update(resourceapi.SchemeGroupVersion.WithResource("resourceclaims"), claim, "default"))
			return true, nil, nil
		})
		_, problems := run(t, client, "drain", "a/gpu-3b-00", "--timeout", "1m")
		if want := "pod default/half-2 uses the claim half of an evicted pod again: already in use: scale its controller to 0"; !strings.Contains(problems, want) {
			t.Errorf("got %q, want %q", problems, want)
		}
	})
}

// The scheduler can give the GPU to a pod while the drain cordons it.
func TestDrainRefusesAPodThatCameBeforeTheCordon(t *testing.T) {
	w := shared(t)
	controlled("ReplicaSet", w.Pods...)
	client := server(w)
	late := fleettest.Pod("late")
	claim := w.Claims[1].DeepCopy()
	claim.Name, claim.UID = late.Name, "late"
	claim.Status.ReservedFor[0].Name, claim.Status.ReservedFor[0].UID = late.Name, late.UID
	var once sync.Once
	client.PrependReactor("create", "devicetaintrules", func(clienttesting.Action) (bool, runtime.Object, error) {
		once.Do(func() {
			require.NoError(t, client.Tracker().Add(late))
			require.NoError(t, client.Tracker().Add(claim))
		})
		return false, nil, nil
	})
	_, problems := run(t, client, "drain", "a/gpu-3b-00", "--timeout", "1m")
	want := "already in use: pod default/late: no controller creates it again; --force evicts it; the GPU stays cordoned until kubectl gpu uncordon a/gpu-3b-00"
	if !strings.Contains(problems, want) || strings.Contains(strings.Join(writes(client), " "), "create pods") {
		t.Errorf("got %q and %v, want %q", problems, writes(client), want)
	}
}

func TestDrainNamesClaimsThatKeepTheirDevices(t *testing.T) {
	w := fleettest.New(t, "a=t4 share")
	w.HoldForGroup("a", "gang", "class=mps.nvidia.com memory=7Gi")
	client := server(w)
	synctest.Test(t, func(t *testing.T) {
		out, problems := run(t, client, "drain", "a/gpu-18-00", "--timeout", "1m")
		if want := "wait for claim default/gang: it is reserved for the PodGroup gang until that is deleted"; !strings.Contains(out, want) || !strings.Contains(problems, "claim default/gang has not released the GPU: timed out") {
			t.Errorf("got %s%s", out, problems)
		}
	})
}

func TestDrainEndsWhileTheNodeReplacesItsSlices(t *testing.T) {
	w := shared(t)
	controlled("ReplicaSet", w.Pods...)
	client := server(w)
	synctest.Test(t, func(t *testing.T) {
		evictions(t, client, 0, time.Second)
		client.PrependReactor("create", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
			return false, nil, client.Tracker().Delete(resourceapi.SchemeGroupVersion.WithResource("resourceslices"), "", w.Slices[0].Name)
		})
		if out, problems := run(t, client, "drain", "a/gpu-3b-00"); problems != "" || !strings.HasSuffix(out, "a/gpu-3b-00 is drained: no claim has it\n") {
			t.Errorf("got %s%s", out, problems)
		}
	})
}

// The claim stays reserved until a controller of the cluster notices that the pod is gone.
func TestDrainOfAClaimOfAPodThatIsGoneReadsTheClusterOnceASecond(t *testing.T) {
	w := shared(t)
	w.Pods = w.Pods[:1]
	client := server(w)
	var lists atomic.Int32
	client.PrependReactor("list", "resourceclaims", func(clienttesting.Action) (bool, runtime.Object, error) {
		return lists.Add(1) > 15, nil, apierrors.NewInternalError(errors.New("too many lists"))
	})
	synctest.Test(t, func(t *testing.T) {
		if _, problems := run(t, client, "drain", "a/gpu-3b-00", "--timeout", "10500ms"); !strings.Contains(problems, "timed out after 10.5s (--timeout); the GPU stays cordoned") {
			t.Errorf("after %d lists: %s", lists.Load(), problems)
		}
	})
}

func TestDrainNamesMonitors(t *testing.T) {
	w := shared(t)
	w.Hold("a", "dcgm", "class=mps.nvidia.com memory=2Gi")
	w.Claims[2].Status.Allocation.Devices.Results[0].AdminAccess = ptr.To(true)
	w.Claims[2].Status.Allocation.Devices.Results[0].Device = "node-gpus"
	out, problems := run(t, server(w), "drain", "a/gpu-86-00")
	if want := "pods with admin access keep reading it: default/dcgm; a reset of the GPU is refused until they end"; problems != "" || !strings.Contains(out, want) {
		t.Errorf("got %s%s", out, problems)
	}
}

func TestRepairedKeepsTheEntriesOfOtherGPUs(t *testing.T) {
	for name, tc := range map[string]struct{ before, want string }{
		"none":                  {"", "gpu-18-00@"},
		"of another GPU":        {"gpu-3b-00@2026-01-31T12:00:00Z", "gpu-3b-00@2026-01-31T12:00:00Z,gpu-18-00@"},
		"of this GPU":           {"gpu-18-00@2026-01-31T12:00:00Z, all@2026-01-31T12:00:00Z", "all@2026-01-31T12:00:00Z,gpu-18-00@"},
		"one that is not valid": {"gpu-3b-00,gpu-af-00@2026-01-31T12:00:00Z", "gpu-af-00@2026-01-31T12:00:00Z,gpu-18-00@"},
	} {
		t.Run(name, func(t *testing.T) {
			w := shared(t)
			w.Taint("gpu-18-00", "xid-79")
			w.Nodes[0].Annotations = map[string]string{"gpu.nvidia.com/repaired": tc.before}
			client := server(w)
			synctest.Test(t, func(t *testing.T) {
				out, problems := run(t, client, "repaired", "a/gpu-18-00")
				node, err := client.CoreV1().Nodes().Get(t.Context(), "a", metav1.GetOptions{})
				require.NoError(t, err)
				want := tc.want + time.Now().UTC().Format(time.RFC3339)
				if got := node.Annotations["gpu.nvidia.com/repaired"]; got != want || problems != "" {
					t.Errorf("annotation %q, want %q; %s%s", got, want, out, problems)
				}
				if !strings.Contains(out, "a/gpu-18-00 has the fault xid-79\n") || !strings.Contains(out, "its agent ends the fault within a minute") {
					t.Errorf("printed %s", out)
				}
				if dropped := strings.Contains(out, `dropped the entry "gpu-3b-00"`); dropped != strings.HasPrefix(tc.before, "gpu-3b-00,") {
					t.Errorf("printed %s", out)
				}
			})
		})
	}
}

// A laptop that is ahead would end faults that come later.
func TestRepairedNamesTheFaultByTheNodesTime(t *testing.T) {
	w := shared(t)
	w.Taint("gpu-18-00", "xid-79")
	w.SetTaintTimes(metav1.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC))
	out, problems := run(t, server(w), "repaired", "a/gpu-18-00")
	if want := "annotate node a: gpu.nvidia.com/repaired=gpu-18-00@2026-01-31T12:00:00Z\n"; problems != "" || !strings.Contains(out, want) {
		t.Errorf("printed %s%s, want %s", out, problems, want)
	}
}

func TestRepairedRefusesFaultsThatEndByThemselves(t *testing.T) {
	for fault, want := range map[string]string{
		"lost":               "it ends when the GPU answers",
		"recovery-gpu-reset": "it ends when the driver no longer requests the recovery",
		"fabric-not-ready":   "start nvidia-fabricmanager",
	} {
		w := shared(t)
		w.Taint("gpu-18-00", fault)
		client := server(w)
		if _, problems := run(t, client, "repaired", "a/gpu-18-00"); !strings.Contains(problems, want) || len(writes(client)) > 0 {
			t.Errorf("%s: got %q, want %q", fault, problems, want)
		}
	}
	client := server(shared(t))
	out, problems := run(t, client, "repaired", "a/gpu-18-00")
	lines(t, out+problems, "a/gpu-18-00 has no fault: nothing to declare")
}

func TestWithoutItsAgentAGPUStaysOutOfUse(t *testing.T) {
	w := shared(t)
	w.Taint("gpu-18-00", "xid-79")
	client := installed(t, w)
	require.NoError(t, client.CoreV1().Pods("gpus").Delete(t.Context(), "agent-a", metav1.DeleteOptions{}))
	run(t, client, "cordon", "a/gpu-18-00")
	if out, problems := run(t, client, "uncordon", "a/gpu-18-00"); !strings.Contains(out, "the agent of node a is not ready: a taint that it has set stays until it is") {
		t.Errorf("uncordon: %s%s", out, problems)
	}
	if out, problems := run(t, client, "repaired", "a/gpu-18-00"); !strings.Contains(out, "ends the fault once it is ready, which it is not") || strings.Contains(out, "within a minute") {
		t.Errorf("repaired: %s%s", out, problems)
	}
	w.Slices = nil
	if out, problems := run(t, server(w), "repaired", "a/gpu-18-00"); out != "" || !strings.Contains(problems, "its node does not publish it, so its faults are not known") {
		t.Errorf("repaired without slices: %s%s", out, problems)
	}
}
