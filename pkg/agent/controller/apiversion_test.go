// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

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
	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog"
)

// apiServer reports the version, or returns the error if there is one, and counts the
// requests.
type apiServer struct {
	version string

	mu    sync.Mutex
	err   error
	asked int
}

// ask is one asked through client-go.
func (s *apiServer) ask(t *testing.T) cluster.VersionFunc {
	client := fake.NewClientset()
	discovery, ok := client.Discovery().(*fakediscovery.FakeDiscovery)
	if !ok {
		t.Fatalf("the discovery client is a %T", client.Discovery())
	}
	discovery.FakedServerVersion = &version.Info{GitVersion: s.version}
	client.PrependReactor("get", "version", func(clienttesting.Action) (bool, runtime.Object, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.asked++
		return s.err != nil, nil, s.err
	})
	return cluster.ServerVersion(client)
}

// startOn runs a controller in a cluster with the API server, with the offer. log
// returns its log.
func startOn(t *testing.T, server *apiServer, offer catalog.Offer) (c *labelledNode, log func() string) {
	hw := &hardware{node: halves(1)}
	c = &labelledNode{rig: &rig{t: t, hw: hw}}
	c.node = newNode(parts{
		Hardware: hw,
		Publish: func(_ context.Context, resources resourceslice.DriverResources) error {
			c.rig.mu.Lock()
			defer c.rig.mu.Unlock()
			c.published = append(c.published, *resources.DeepCopy())
			return nil
		},
		Version: server.ask(t),
		Catalog: catalog.Inputs{Settings: catalog.Settings{Pool: "node-1"}, NodeConfig: catalog.NodeConfig{Offer: offer}},
	})
	logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true)))
	run(klog.NewContext(t.Context(), logger), t, c.node)
	return c, func() string { return logger.GetSink().(ktesting.Underlier).GetBuffer().String() }
}

func TestWhatTakesCountersIsOfferedFromKubernetes1362On(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{}, "/version", errors.New("no rights"))
	for _, tc := range []struct {
		server  *apiServer
		counted bool
	}{
		{&apiServer{version: "v1.34.9"}, false},
		{&apiServer{version: "v1.36.1"}, false},
		{&apiServer{version: "v1.36.2"}, true},
		{&apiServer{version: "v1.37.1"}, true},
		{&apiServer{version: "v2.0.0"}, true},
		{&apiServer{version: "v1.36.1-gke.100"}, false},
		{&apiServer{version: "v1.36.2-gke.100"}, true},
		{&apiServer{version: "v1.36.2+k3s1"}, true},
		{&apiServer{version: "of our own"}, false},
		{&apiServer{version: ""}, false},
		{&apiServer{err: forbidden}, false},
	} {
		name := fmt.Sprintf("API server %q", tc.server.version)
		if tc.server.err != nil {
			name = "API server that refuses to tell"
		}
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, log := startOn(t, tc.server, "share,mig,timeslice")
				want, warnings := "gpu-01-00", 1
				if tc.counted {
					want, warnings = "gpu-01-00, gpu-01-00-ts, gpu-01-00-mig-3g-40gb-0, gpu-01-00-mig-3g-40gb-4", 0
				}
				c.wantNames(want)
				c.want(c.shown(), fmt.Sprintf("Published: %d of %[1]d devices healthy", 1+strings.Count(want, ",")))
				if strings.Contains(c.shown(), "exclusive") && !tc.counted {
					t.Errorf("shares need no counters, and there are none: %s", c.shown())
				}
				if c.times() == 0 {
					t.Fatal("nothing is published")
				}
				for _, slice := range c.published[0].Pools["node-1"].Slices {
					if !tc.counted && len(slice.SharedCounters) > 0 {
						t.Errorf("counters are published: %v", slice.SharedCounters)
					}
				}
				for range 3 {
					c.Inventory.RequestScan()
					c.pass(time.Minute)
				}
				tc.server.mu.Lock()
				defer tc.server.mu.Unlock()
				if tc.server.asked != 1 {
					t.Errorf("asked %d times, want once per start", tc.server.asked)
				}
				if got := log(); strings.Count(got, "API server is too old") != warnings || warnings > 0 && !strings.Contains(got, "1.36.2") {
					t.Errorf("want %d warnings that name 1.36.2, got:\n%s", warnings, got)
				}
			})
		})
	}
}

// A node that offers only shares is published in full on an older cluster.
func TestAnOldSchedulerIsNotLoggedForOffersWithoutCounters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, log := startOn(t, &apiServer{version: "v1.36.1"}, "share,monitor")
		c.wantNames("gpu-01-00, node-gpus")
		if strings.Contains(log(), "API server is too old") {
			t.Errorf("warned of nothing:\n%s", log())
		}
	})
}

// An API server that does not answer takes no slices either. The slices of an
// earlier agent must not change because of it.
func TestNothingIsPublishedBeforeTheAPIServerHasToldItsVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &apiServer{version: "v1.37.1", err: errors.New("connection refused")}
		c, _ := startOn(t, server, "share,timeslice")
		c.want("nothing", "Looking; ask the API server for its version: connection refused")
		if !c.State().Unpublished {
			t.Error("an agent that has published nothing looks ready")
		}
		c.pass(time.Hour)
		c.want("nothing", "Looking; ask the API server for its version: connection refused")
		server.mu.Lock()
		server.err = nil
		server.mu.Unlock()
		c.pass(2 * time.Minute)
		c.wantNames("gpu-01-00, gpu-01-00-ts")
		if c.State().Unpublished {
			t.Error("still unpublished")
		}
	})
}
