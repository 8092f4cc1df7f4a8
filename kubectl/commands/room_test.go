// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourceapi "k8s.io/api/resource/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"

	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet/fleettest"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

// crowded returns a cluster whose only node has all of its GPUs in use, by a pod with two priorities, and a pod
// that waits.
func crowded(t *testing.T) *fleettest.World {
	w := fleettest.New(t, "a=t4 share")
	w.Hold("a", "three", "count=3")
	w.Hold("a", "half", "class=mps.nvidia.com memory=7Gi")
	for i, pod := range w.Pods {
		pod.Spec.NodeName, pod.Spec.Priority = "a", ptr.To(int32(50-50*i))
		pod.Status.StartTime = &metav1.Time{Time: time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)} // the time of synctest
		pod.Labels = map[string]string{"app": pod.Name}
		w.Claims[i].OwnerReferences = []metav1.OwnerReference{{Kind: "Pod", Name: pod.Name, Controller: ptr.To(true)}}
	}
	controlled("ReplicaSet", w.Pods...)
	waiting := fleettest.Pod("high")
	waiting.Spec.Priority = ptr.To(int32(100))
	w.Pods, w.Claims = append(w.Pods, waiting), append(w.Claims, fleettest.Claim("high", "class=mps.nvidia.com memory=10Gi"))
	return w
}

// tolerant lets the claim of the waiting pod tolerate the taint of a room.
func tolerant(w *fleettest.World) {
	w.Claims[len(w.Claims)-1].Spec.Devices.Requests[0].Exactly.Tolerations = []resourceapi.DeviceToleration{{Key: "gpu.nvidia.com/room", Operator: resourceapi.DeviceTolerationOpExists}}
}

// evictable makes the API server evict pods, and the scheduler place the pod "high" some time after.
func evictable(t *testing.T, client *fake.Clientset, refusals int32, end time.Duration) {
	t.Helper()
	evictions(t, client, refusals, end)
	var tried atomic.Int32
	client.PrependReactor("create", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if action.GetSubresource() != "eviction" {
			return false, nil, nil
		}
		if isTry, _, _ := dryRuns(action); isTry {
			return tried.Add(1) > refusals, nil, nil
		}
		time.AfterFunc(end+3*time.Second, func() { place(t, client) })
		return false, nil, nil
	})
}

func place(t *testing.T, client *fake.Clientset) {
	pod, err := client.CoreV1().Pods("default").Get(context.WithoutCancel(t.Context()), "high", metav1.GetOptions{})
	if err != nil {
		return // the test has deleted it
	}
	pod = pod.DeepCopy()
	pod.Spec.NodeName = "a"
	require.NoError(t, client.Tracker().Update(corev1.SchemeGroupVersion.WithResource("pods"), pod, "default"))
}

func TestRoomNamesTheFewestPods(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(w *fleettest.World)
		args   string
		want   string
	}{
		"one pod": {nil, "high", `
pod default/high would run on node a after the end of 1 pod
default/half: priority 0, started 0s ago, has gpu-af-00; ReplicaSet web creates it again
What to do
kubectl gpu room high --namespace default --evict`},
		"without a controller": {func(w *fleettest.World) { w.Pods[1].OwnerReferences = nil }, "pod/high", `
pod default/high would run on node a after the end of 1 pod
default/half: priority 0, started 0s ago, has gpu-af-00; no controller creates it again
What to do
kubectl gpu room high --namespace default --evict`},
		"it ends already": {func(w *fleettest.World) {
			w.Pods[1].DeletionTimestamp = &metav1.Time{Time: time.Now()}
			w.Pods[1].Finalizers = []string{"x"}
		}, "high", `
pod default/high fits on node a after the end of 1 pod that ends already, and no other has to end
default/half ends already`},
		"only pods of its priority": {func(w *fleettest.World) { w.Pods[2].Spec.Priority = nil }, "high",
			"pod default/high: there is no room to be made: the pods of a lower priority than 0 do not suffice; with --any-priority, 1 pod does"},
		"any priority": {func(w *fleettest.World) { w.Pods[2].Spec.Priority = nil }, "high --any-priority", `
pod default/high would run on node a after the end of 1 pod
default/half: priority 0, started 0s ago, has gpu-af-00; ReplicaSet web creates it again
What to do
kubectl gpu room high --namespace default --evict`},
		"it never preempts": {func(w *fleettest.World) { w.Pods[2].Spec.PreemptionPolicy = ptr.To(corev1.PreemptNever) }, "high",
			"pod default/high: there is no room to be made: its preemptionPolicy is Never: no pods end for it (--any-priority overrides it)"},
		"a group": {func(w *fleettest.World) {
			w.Pods[2].Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: ptr.To("g")}
		}, "high",
			"pod default/high: there is no room to be made: it starts together with the pods of the group g, and room is made for one pod only"},
		"a DaemonSet and a higher priority": {func(w *fleettest.World) {
			controlled("DaemonSet", w.Pods[1])
			w.Pods[0].Spec.Priority = ptr.To(int32(100))
		}, "high --any-priority=false",
			"pod default/high: there is no room to be made: the pods of a lower priority than 100 do not suffice; with --any-priority, 1 pod does"},
		"too large": {func(w *fleettest.World) { w.Claims[2] = fleettest.Claim("high", "count=5") }, "high",
			"pod default/high: there is no room to be made: the end of pods does not help: nearest to fit is node a: it has too few devices"},
		"no claims": {func(w *fleettest.World) { w.Pods[2].Spec.ResourceClaims = nil }, "high",
			"pod default/high: there is no room to be made: it has no claims, and room is made on GPUs only"},
		"it fits":             {func(w *fleettest.World) { w.Pods, w.Claims = w.Pods[2:], w.Claims[2:] }, "high", "pod default/high fits on node a: no pod has to end"},
		"it has a node":       {func(w *fleettest.World) { w.Pods[2].Spec.NodeName = "a" }, "high", "pod default/high has its node: a"},
		"nothing of the name": {nil, "hi", "Error: pod default/hi: not found"},
	} {
		t.Run(name, func(t *testing.T) {
			w := crowded(t)
			if tc.change != nil {
				tc.change(w)
			}
			client := server(w)
			synctest.Test(t, func(t *testing.T) {
				out, problems := run(t, client, append([]string{"room"}, strings.Fields(tc.args)...)...)
				lines(t, strings.ReplaceAll(out, "\n\n", "\n")+problems, tc.want)
				if all := writes(client); len(all) > 0 {
					t.Errorf("it has changed something: %v", all)
				}
			})
		})
	}
}

func TestRoomRespectsBudgets(t *testing.T) {
	w := crowded(t)
	client := server(w)
	require.NoError(t, client.Tracker().Add(&policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
		Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{}},
	}))
	out, problems := run(t, client, "room", "high")
	lines(t, out+problems, "pod default/high: there is no room to be made: PodDisruptionBudgets do not admit the evictions now: default/web admits 0")
}

func TestRoomForAManifestHasThePriorityOfItsClass(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pod.yaml")
	require.NoError(t, os.WriteFile(file, []byte(`{apiVersion: v1, kind: Pod, metadata: {name: new}, spec: {priorityClassName: urgent,
  containers: [{name: main, resources: {claims: [{name: gpu}]}}], resourceClaims: [{name: gpu, resourceClaimName: high}]}}`), 0o600))
	for value, want := range map[int32]string{
		7: "pod default/new would run on node a after the end of 1 pod",
		0: "with --any-priority, 1 pod does",
	} {
		client := server(crowded(t))
		require.NoError(t, client.Tracker().Add(&schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "urgent"}, Value: value}))
		if out, problems := run(t, client, "room", "-f", file); !strings.Contains(out, want) || problems != "" || strings.Contains(out, "--evict") {
			t.Errorf("priority %d: got %s%s, want %q", value, out, problems, want)
		}
	}
	if _, problems := run(t, server(crowded(t)), "room", "-f", file); !strings.Contains(problems, "PriorityClass urgent: not found") {
		t.Errorf("without the class: %s", problems)
	}
}

func TestRoomEvictsAndWaits(t *testing.T) {
	w := crowded(t)
	client := server(w)
	synctest.Test(t, func(t *testing.T) {
		evictable(t, client, 0, 5*time.Second)
		out, problems := run(t, client, "room", "high", "--evict")
		lines(t, out+problems, `
pod default/high would run on node a after the end of 1 pod
default/half: priority 0, started 0s ago, has gpu-af-00; ReplicaSet web creates it again
the devices are not kept for pod default/high, whose claims do not tolerate the taint gpu.nvidia.com/room: it gets them first only if its priority is the highest of all pods that wait
pod default/half evicted
pod default/half has ended
node a is nominated for pod default/high
pod default/high has its node: a`)
		if _, err := client.CoreV1().Pods("default").Get(t.Context(), "three", metav1.GetOptions{}); err != nil {
			t.Errorf("a pod that need not end: %v", err)
		}
	})
}

func TestRoomKeepsTheDevicesForAPodThatToleratesIt(t *testing.T) {
	w := crowded(t)
	tolerant(w)
	client := server(w)
	synctest.Test(t, func(t *testing.T) {
		evictable(t, client, 0, 5*time.Second)
		time.AfterFunc(2*time.Second, func() {
			if rules := rulesOf(t, client); len(rules) != 3 {
				t.Errorf("the devices are kept by %v", rules)
			}
		})
		out, problems := run(t, client, "room", "high", "--evict")
		if want := "keep gpu-af-00, gpu-af-00-seat, gpu-af-00-ts of node a for pod default/high: taint gpu.nvidia.com/room\n"; problems != "" || !strings.Contains(out, want) {
			t.Errorf("got %s%s, want %s", out, problems, want)
		}
		if rules := rulesOf(t, client); len(rules) > 0 {
			t.Errorf("rules are left: %v", rules)
		}
	})
}

func TestRoomWaitsForABudgetBeforeItEndsAnything(t *testing.T) {
	w := crowded(t)
	tolerant(w)
	client := server(w)
	synctest.Test(t, func(t *testing.T) {
		evictable(t, client, 1000, 0)
		out, problems := run(t, client, "room", "high", "--evict", "--timeout", "1m")
		lines(t, problems, "Error: room for pod default/high: no pod was evicted: pod default/half is not evicted: Cannot evict pod as it would violate the pod's disruption budget. The disruption budget web needs 1 healthy pods and has 1 currently: timed out after 1m0s (--timeout)")
		if !strings.Contains(out, "pod default/half waits: Cannot evict pod") || len(rulesOf(t, client)) > 0 {
			t.Errorf("got %s, rules %v", out, rulesOf(t, client))
		}
	})
	synctest.Test(t, func(t *testing.T) {
		client := server(w)
		evictable(t, client, 3, time.Second)
		if out, problems := run(t, client, "room", "high", "--evict"); problems != "" || !strings.Contains(out, "pod default/high has its node: a") {
			t.Errorf("a budget that admits it later: %s%s", out, problems)
		}
	})
}

func TestRoomEndsNothingForAPodThatGotItsNodeMeanwhile(t *testing.T) {
	client := server(crowded(t))
	synctest.Test(t, func(t *testing.T) {
		evictable(t, client, 3, time.Second)
		time.AfterFunc(2*time.Second, func() { place(t, client) })
		out, problems := run(t, client, "room", "high", "--evict")
		if !strings.HasSuffix(out, "pod default/high has its node: a\n") || strings.Contains(out, "evicted") || problems != "" {
			t.Errorf("got %s%s", out, problems)
		}
	})
}

func TestRoomSaysWhatItEndedWhenItFails(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(t *testing.T, client *fake.Clientset)
		want   string
	}{
		"the pod does not end": {func(t *testing.T, client *fake.Clientset) {
			client.PrependReactor("create", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
				return action.GetSubresource() == "eviction", nil, nil
			})
		}, "pod default/half has not ended: timed out after 2m0s (--timeout); pods that were evicted: default/half"},
		"another takes the devices": {func(t *testing.T, client *fake.Clientset) {
			evictions(t, client, 0, time.Second)
			client.PrependReactor("create", "pods", dryRuns)
		}, "its devices are free, and the scheduler has not placed it: timed out after 2m0s (--timeout); pods that were evicted: default/half"},
		"the waiting pod is deleted": {func(t *testing.T, client *fake.Clientset) {
			evictable(t, client, 0, time.Second)
			time.AfterFunc(2*time.Second, func() {
				require.NoError(t, client.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("pods"), "default", "high"))
			})
		}, `pods "high" not found; pods that were evicted: default/half`},
		"no right": {func(t *testing.T, client *fake.Clientset) {
			client.PrependReactor("create", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
				return true, nil, apierrors.NewForbidden(corev1.Resource("pods"), "half", nil)
			})
		}, "no pod was evicted: pod default/half: permission denied: you have no right to create pods/eviction"},
	} {
		t.Run(name, func(t *testing.T) {
			w := crowded(t)
			tolerant(w)
			client := server(w)
			synctest.Test(t, func(t *testing.T) {
				tc.change(t, client)
				out, problems := run(t, client, "room", "high", "--evict")
				if !strings.Contains(problems, tc.want) || len(rulesOf(t, client)) > 0 {
					t.Errorf("got %s%s, rules %v; want %q", out, problems, rulesOf(t, client), tc.want)
				}
			})
		})
	}
}

// dryRuns answers evictions that only try.
func dryRuns(action clienttesting.Action) (bool, runtime.Object, error) {
	eviction, ok := action.(clienttesting.CreateAction).GetObject().(*policyv1.Eviction)
	return ok && len(eviction.DeleteOptions.DryRun) > 0, nil, nil
}

// The API server refuses the UID of a pod that another one has replaced: that pod is not ended.
func TestRoomEndsNoOtherPodOfTheName(t *testing.T) {
	w := crowded(t)
	client := server(w)
	synctest.Test(t, func(t *testing.T) {
		client.PrependReactor("create", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
			if action.GetSubresource() != "eviction" {
				return false, nil, nil
			}
			if uid := action.(clienttesting.CreateAction).GetObject().(*policyv1.Eviction).DeleteOptions.Preconditions.UID; uid == nil || *uid != "pod-half" {
				t.Errorf("an eviction of the UID %v", uid)
			}
			other := w.Pods[1].DeepCopy()
			other.UID = "other"
			require.NoError(t, client.Tracker().Update(action.GetResource(), other, "default"))
			return true, nil, apierrors.NewConflict(corev1.Resource("pods"), "half", nil)
		})
		_, problems := run(t, client, "room", "high", "--evict")
		if want := "no pod was evicted: 1 claim is not released yet: timed out after 2m0s (--timeout)"; !strings.Contains(problems, want) {
			t.Errorf("got %s, want %s", problems, want)
		}
		if _, err := client.CoreV1().Pods("default").Get(t.Context(), "half", metav1.GetOptions{}); err != nil {
			t.Error(err)
		}
	})
}

func TestAnInterruptEndsTheRoom(t *testing.T) {
	w := crowded(t)
	tolerant(w)
	client := server(w)
	t.Setenv("KUBECONFIG", kubeconfig(t))
	synctest.Test(t, func(t *testing.T) {
		evictable(t, client, 0, time.Minute)
		ctx, interrupt := context.WithCancel(t.Context())
		time.AfterFunc(10*time.Second, interrupt)
		streams, _, _, stderr := genericiooptions.NewTestIOStreams()
		cmd := newCommand(streams, func(clientcmd.ClientConfig) (kubernetes.Interface, error) { return client, nil })
		cmd.SetArgs([]string{"room", "high", "--evict"})
		execute(ctx, cmd, streams)
		if want := "pod default/half has not ended: context canceled; pods that were evicted: default/half"; !strings.Contains(stderr.String(), want) || len(rulesOf(t, client)) > 0 {
			t.Errorf("got %s, rules %v; want %s", stderr, rulesOf(t, client), want)
		}
		time.Sleep(2 * time.Minute) //nolint:forbidigo // of the bubble: until the timers have ended
	})
}

// A killed run leaves its rules. They would keep the devices from all others.
func TestRoomRemovesWhatAKilledOneLeft(t *testing.T) {
	rule := func(name, label, until string) *resourceapi.DeviceTaintRule {
		return &resourceapi.DeviceTaintRule{ObjectMeta: metav1.ObjectMeta{
			Name: name, Labels: map[string]string{"app.kubernetes.io/managed-by": "kubectl-gpu", label: "x"}, Annotations: map[string]string{"gpu.nvidia.com/room-until": until},
		}}
	}
	w := crowded(t)
	w.TaintRules = []*resourceapi.DeviceTaintRule{
		rule("left", "gpu.nvidia.com/room-for", "1999-12-31T23:59:00Z"), rule("of-another-room", "gpu.nvidia.com/room-for", "2000-01-01T00:01:00Z"), rule("cordon", "gpu.nvidia.com/cordon", ""),
	}
	client := server(w)
	synctest.Test(t, func(t *testing.T) {
		evictable(t, client, 0, time.Second)
		out, problems := run(t, client, "room", "high", "--evict")
		rules := rulesOf(t, client)
		_, other := rules["of-another-room"]
		_, cordon := rules["cordon"]
		if problems != "" || !strings.HasPrefix(out, "removed what an earlier run had left (DeviceTaintRules: 1)\n") || len(rules) != 2 || !other || !cordon {
			t.Errorf("got %s%s, rules %v", out, problems, rules)
		}
	})
}

// The first run's devices stay kept, also if the second one began before they were.
func TestASecondRoomForThePodLeavesTheRulesOfTheFirst(t *testing.T) {
	for name, want := range map[string]string{
		"gpu-room.x":           "Error: room for pod default/high: already in use: another run keeps devices for it until 2000-01-01T00:01:00Z\n",
		"gpu-room.gpu-af-00.a": "room for pod default/high: no pod was evicted: device gpu-af-00: already in use: another run keeps it",
	} {
		w := crowded(t)
		tolerant(w)
		client := server(w)
		first := &resourceapi.DeviceTaintRule{ObjectMeta: metav1.ObjectMeta{Name: name,
			Labels:      map[string]string{"app.kubernetes.io/managed-by": "kubectl-gpu", "gpu.nvidia.com/room-for": "pod-high"},
			Annotations: map[string]string{"gpu.nvidia.com/room-until": "2000-01-01T00:01:00Z"},
		}}
		if name == "gpu-room.x" {
			require.NoError(t, client.Tracker().Add(first))
		}
		synctest.Test(t, func(t *testing.T) {
			var once sync.Once
			client.PrependReactor("create", "devicetaintrules", func(clienttesting.Action) (bool, runtime.Object, error) {
				once.Do(func() { require.NoError(t, client.Tracker().Add(first)) })
				return false, nil, nil
			})
			evictable(t, client, 0, time.Second)
			_, problems := run(t, client, "room", "high", "--evict")
			if _, kept := rulesOf(t, client)[name]; !strings.Contains(problems, want) || !kept || len(rulesOf(t, client)) != 1 {
				t.Errorf("%s: got %s, rules %v, want %s", name, problems, rulesOf(t, client), want)
			}
		})
	}
}

func TestRoomAsksForTheFlagsOfADrain(t *testing.T) {
	w := crowded(t)
	w.Pods[1].OwnerReferences = nil
	client := server(w)
	synctest.Test(t, func(t *testing.T) {
		evictable(t, client, 0, time.Second)
		_, problems := run(t, client, "room", "high", "--evict")
		lines(t, problems, "Error: room for pod default/high: already in use: nothing is changed: pod default/half: no controller creates it again; --force evicts it")
		out, problems := run(t, client, "room", "high", "--evict", "--force", "--dry-run")
		if problems != "" || !strings.Contains(out, "has gpu-af-00; no controller creates it again (dry run)\n") || len(writes(client)) > 0 {
			t.Errorf("a dry run: %s%s, writes %v", out, problems, writes(client))
		}
		if out, problems = run(t, client, "room", "high", "--evict", "--force"); problems != "" || !strings.Contains(out, "pod default/high has its node: a") {
			t.Errorf("with --force: %s%s", out, problems)
		}
	})
}

// Without the pods and claims of others, an answer would be wrong.
func TestRoomNeedsTheWholeCluster(t *testing.T) {
	for resource, want := range map[string]string{"pods": "you have no right to list pods", "poddisruptionbudgets": "you have no right to list poddisruptionbudgets"} {
		client := server(crowded(t))
		client.PrependReactor("list", resource, func(action clienttesting.Action) (bool, runtime.Object, error) {
			return action.GetNamespace() == "", nil, apierrors.NewForbidden(corev1.Resource(resource), "", nil)
		})
		if out, problems := run(t, client, "room", "high"); out != "" || !strings.Contains(problems, want) {
			t.Errorf("got %s%s, want %s", out, problems, want)
		}
	}
}

func TestExplainNamesARoomThatIsProven(t *testing.T) {
	for priority, want := range map[int32]string{100: "kubectl gpu room high --namespace default shows 1 pod whose end lets it run", 0: "wait until enough of these claims end"} {
		w := crowded(t)
		w.Pods[2].Spec.Priority = &priority
		if out, problems := run(t, installed(t, w), "explain", "high"); !strings.Contains(out, "What to do\n  "+want) || problems != "" {
			t.Errorf("priority %d: got %s%s, want %s", priority, out, problems, want)
		}
	}
}

func TestRoomInJSON(t *testing.T) {
	out, problems := run(t, server(crowded(t)), "room", "high", "--output", "jsonpath={.kind} {.outcome} {.node} {.pods[*].pod} {.pods[*].uid} {.pods[*].devices}")
	lines(t, out+problems, `Room found a half pod-half ["gpu-af-00"]`)
}
