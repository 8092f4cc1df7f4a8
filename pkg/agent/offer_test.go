// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	ktesting "k8s.io/client-go/testing"
)

// offers waits until the node's pool is complete and its devices are as wanted.
func (n *node) offers(t *testing.T, wanted func(devices []string) bool) {
	t.Helper()
	n.shows(t, func(devices map[string]resourceapi.Device) bool {
		return wanted(slices.Collect(maps.Keys(devices)))
	})
}

// shows waits until the node's pool is complete and its devices, by name, are as wanted.
func (n *node) shows(t *testing.T, wanted func(devices map[string]resourceapi.Device) bool) {
	t.Helper()
	watcher, err := n.client.ResourceV1().ResourceSlices().Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer watcher.Stop()
	giveUp := time.After(time.Minute)
	for {
		devices := map[string]resourceapi.Device{}
		for _, slice := range n.published(t) {
			for _, device := range slice.Spec.Devices {
				devices[device.Name] = device
			}
		}
		if wanted(devices) {
			return
		}
		select {
		case <-watcher.ResultChan():
		case <-giveUp:
			t.Fatalf("published: %v", devices)
		}
	}
}

func (n *node) setLabels(t *testing.T, labels map[string]string) {
	t.Helper()
	object, err := n.client.CoreV1().Nodes().Get(t.Context(), n.NodeName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	object.Labels = labels
	if _, err := n.client.CoreV1().Nodes().Update(t.Context(), object, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// nameSlices names slices, because the fake API server does not generate names.
func (n *node) nameSlices(t *testing.T) {
	t.Helper()
	client, ok := n.client.(*fake.Clientset)
	if !ok {
		t.Fatalf("the client is a %T", n.client)
	}
	var named atomic.Int32
	client.PrependReactor("create", "resourceslices", func(action ktesting.Action) (bool, runtime.Object, error) {
		if create, ok := action.(ktesting.CreateAction); ok {
			if slice, ok := create.GetObject().(*resourceapi.ResourceSlice); ok {
				slice.Name = fmt.Sprintf("%s%d", slice.GenerateName, named.Add(1))
			}
		}
		return false, nil, nil
	})
}
