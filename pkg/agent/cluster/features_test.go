// SPDX-License-Identifier: Apache-2.0

package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	fakediscovery "k8s.io/client-go/discovery/fake"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/dynamic-resource-allocation/resourceslice"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/cluster"
	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/state"
	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog"
)

// learnt returns the features of a cluster whose API server reports the version or the error.
func learnt(t *testing.T, reported string, failure error) (*cluster.Features, *state.State) {
	t.Helper()
	client := fake.NewClientset()
	discovery, ok := client.Discovery().(*fakediscovery.FakeDiscovery)
	if !ok {
		t.Fatalf("the discovery client is a %T", client.Discovery())
	}
	discovery.FakedServerVersion = &version.Info{GitVersion: reported}
	client.PrependReactor("get", "version", func(clienttesting.Action) (bool, runtime.Object, error) { return failure != nil, nil, failure })
	s := state.New(state.Fixed{})
	f := cluster.NewFeatures(cluster.ServerVersion(client), &s.Features)
	if s.Features.Get().Known {
		t.Error("the features are known before the version is requested")
	}
	f.Run(t.Context())
	return f, s
}

func TestCountersAreUsedFromKubernetes1362On(t *testing.T) {
	for reported, counted := range map[string]bool{
		"v1.34.9": false, "v1.36.1": false, "v1.36.2": true, "v1.37.1": true, "v2.0.0": true,
		"v1.36.1-gke.100": false, "v1.36.2-gke.100": true, "v1.36.2+k3s1": true, "of our own": false, "": false,
	} {
		_, s := learnt(t, reported, nil)
		if now := s.Features.Get(); !now.Known || now.Err != nil || now.NoCounters == counted || now.Exclusive || (now.OldVersion == "") != counted {
			t.Errorf("%q: %+v, want counters: %t", reported, now, counted)
		}
	}
	_, s := learnt(t, "", apierrors.NewForbidden(schema.GroupResource{}, "/version", errors.New("no rights")))
	if now := s.Features.Get(); now.Err != nil || now.OldVersion != "forbidden" {
		t.Errorf("an API server that refuses to tell: %+v", now)
	}
}

func TestTheVersionIsRequestedUntilTheAPIServerAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, requests := state.New(state.Fixed{}), 0
		f := cluster.NewFeatures(func(context.Context) (string, error) {
			if requests++; requests < 3 {
				return "", errors.New("connection refused")
			}
			return "v1.37.1", nil
		}, &s.Features)
		done := make(chan struct{})
		go func() { defer close(done); f.Run(t.Context()) }()
		synctest.Wait()
		if now := s.Features.Get(); !now.Known || now.Err == nil {
			t.Errorf("without an answer: %+v", now)
		}
		<-done
		if now := s.Features.Get(); now.Err != nil || now.NoCounters || requests != 3 {
			t.Errorf("%+v after %d requests", now, requests)
		}
	})
}

// dropping returns the error of the slice controller if the API server drops fields of a device.
func dropping(drop func(*resourceapi.Device)) error {
	desired := &resourceapi.ResourceSlice{Spec: resourceapi.ResourceSliceSpec{Devices: []resourceapi.Device{{
		Name: "gpu-01-00", AllowMultipleAllocations: new(bool), Taints: []resourceapi.DeviceTaint{{Key: "example.com/a"}},
		ConsumesCounters: []resourceapi.DeviceCounterConsumption{{CounterSet: "01-00"}},
	}}}}
	actual := desired.DeepCopy()
	drop(&actual.Spec.Devices[0])
	return fmt.Errorf("wrapped: %w", &resourceslice.DroppedFieldsError{PoolName: "node-1", DesiredSlice: desired, ActualSlice: actual})
}

func TestAClusterThatDropsFeaturesIsRememberedToLackThem(t *testing.T) {
	f, s := learnt(t, "v1.37.1", nil)
	logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true)))
	ctx := klog.NewContext(t.Context(), logger)
	for _, step := range []struct {
		err  error
		want catalog.Restrictions
		log  string
	}{
		{errors.New("no API server"), catalog.Restrictions{}, "no API server"},
		{dropping(func(d *resourceapi.Device) { d.Taints = nil }), catalog.Restrictions{}, "DRADeviceTaints"},
		{dropping(func(d *resourceapi.Device) { d.AllowMultipleAllocations = nil }), catalog.Restrictions{Exclusive: true}, "DRAConsumableCapacity"},
		{dropping(func(d *resourceapi.Device) { d.ConsumesCounters = nil }), catalog.Restrictions{Exclusive: true, NoCounters: true}, "DRAPartitionableDevices"},
	} {
		before := logger.GetSink().(ktesting.Underlier).GetBuffer().String()
		for range 3 {
			f.HandleError(ctx, step.err, "create ResourceSlice")
		}
		if got := s.Features.Get(); got.Restrictions != step.want || got.OldVersion != "" {
			t.Errorf("after %v: %+v, want %+v", step.err, got, step.want)
		}
		log := strings.TrimPrefix(logger.GetSink().(ktesting.Underlier).GetBuffer().String(), before)
		if strings.Count(log, "\n") != 1 || !strings.Contains(log, step.log) {
			t.Errorf("want one line with %s, got:\n%s", step.log, log)
		}
	}
}
