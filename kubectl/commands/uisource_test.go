// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// watched watches a cluster. The channel has an item for each reported change.
func followChanges(t *testing.T, client kubernetes.Interface) (changes <-chan struct{}, ended <-chan error) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	seen, end := make(chan struct{}, 1000), make(chan error, 1)
	s := uiSource{reader{client, "default", v1alpha1.DriverName}, &options{driver: v1alpha1.DriverName}}
	var running sync.WaitGroup
	running.Go(func() { end <- s.Watch(ctx, func() { seen <- struct{}{} }) })
	t.Cleanup(func() { stop(); running.Wait() })
	return seen, end
}

// The pages know the agents, or say that the user may not.
func TestTheSourceReadsTheAgents(t *testing.T) {
	client := drivenWorld(t, shared(t), func(http.ResponseWriter, *http.Request) {})
	s := uiSource{reader{client, "default", v1alpha1.DriverName}, &options{driver: v1alpha1.DriverName}}
	c, err := s.Read(t.Context())
	must(t, err)
	if len(c.Agents) == 0 || len(c.Sentences()) > 0 {
		t.Errorf("agents %+v, %q", c.Agents, c.Sentences())
	}
	forbid(client.Clientset, "daemonsets", false)
	c, err = s.Read(t.Context())
	must(t, err)
	if all := strings.Join(c.Sentences(), " "); c.Agents != nil || !strings.Contains(all, "daemonsets") || !strings.Contains(all, "Whether the agents run is not known") {
		t.Errorf("without the right: agents %+v, %q", c.Agents, all)
	}
}

// receive waits for an item, and drops the further ones that have come.
func receive(t *testing.T, changes <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-changes:
	case <-time.After(time.Minute):
		t.Fatalf("%s is not reported", what)
	}
	for len(changes) > 0 {
		<-changes
	}
}

func TestTheSourceWatchesTheCluster(t *testing.T) {
	client := server(shared(t))
	changes, _ := followChanges(t, client)
	receive(t, changes, "the begin of the watch")
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "other", Name: "new"}}
	_, err := client.CoreV1().Pods("other").Create(t.Context(), pod, metav1.CreateOptions{})
	must(t, err)
	receive(t, changes, "a new pod")
	must(t, client.ResourceV1().ResourceClaims("default").Delete(t.Context(), "half", metav1.DeleteOptions{}))
	receive(t, changes, "a deleted claim")
}

// A watch that breaks begins again, and the break is a change: events may be lost.
func TestABrokenWatchBeginsAgain(t *testing.T) {
	client := server(shared(t))
	broken := watch.NewFake()
	var once sync.Once
	client.PrependWatchReactor("resourceslices", func(clienttesting.Action) (bool, watch.Interface, error) {
		first := false
		once.Do(func() { first = true })
		return first, broken, nil
	})
	changes, _ := followChanges(t, client)
	receive(t, changes, "the begin of the watch")
	broken.Error(&metav1.Status{Status: metav1.StatusFailure, Code: http.StatusGone, Reason: metav1.StatusReasonExpired})
	receive(t, changes, "the break")
	receive(t, changes, "the new begin")
}

// forbidWatch refuses to watch a resource.
func forbidWatch(client *fake.Clientset, resource string) {
	client.PrependWatchReactor(resource, func(clienttesting.Action) (bool, watch.Interface, error) {
		return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: resource}, "", nil)
	})
}

func TestAUserWhoMayNotWatch(t *testing.T) {
	client := server(shared(t))
	forbidWatch(client, "pods")
	_, ended := followChanges(t, client)
	select {
	case err := <-ended:
		if !errors.Is(err, gpu.ErrPermission) {
			t.Errorf("got %v", err)
		}
	case <-time.After(time.Minute):
		t.Error("the watch does not end")
	}
}

// Objects that the user may not list need no watch, and pods of the own namespace suffice.
func TestAUserWhoMayListLess(t *testing.T) {
	client := server(shared(t))
	forbid(client, "pods", true)
	forbid(client, "nodes", false)
	client.PrependReactor("list", "devicetaintrules", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewNotFound(schema.GroupResource{Resource: "devicetaintrules"}, "")
	})
	changes, _ := followChanges(t, client)
	receive(t, changes, "the begin of the watch")
	pods := client.CoreV1().Pods("default")
	_, err := pods.Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "new"}}, metav1.CreateOptions{})
	must(t, err)
	receive(t, changes, "a new pod of the namespace")
}

func TestTheSourceInspectsTheCluster(t *testing.T) {
	client := drivenWorld(t, shared(t), func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/api/v1/namespaces/gpus/pods/agent-1:9000/proxy/v1/claims" {
			_, _ = w.Write([]byte(used))
			return
		}
		factsWithSwap("0")(w, r)
	})
	s := uiSource{reader{client, "default", v1alpha1.DriverName}, &options{driver: v1alpha1.DriverName}}
	c, err := s.Read(t.Context())
	must(t, err)
	found, err := s.Inspect(t.Context(), c)
	must(t, err)
	if len(found.Findings) < 10 || len(found.Uses["a"].Rows) != 4 || found.Problems != nil {
		t.Errorf("got %d findings, %+v, %q", len(found.Findings), found.Uses, found.Problems)
	}
	// Agents that do not answer are named.
	client = drivenWorld(t, shared(t), func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusServiceUnavailable) })
	s.client = client
	if found, err = s.Inspect(t.Context(), c); err != nil || len(found.Uses) != 0 || len(found.Problems) != 1 {
		t.Errorf("got %+v, %v", found, err)
	}
}
