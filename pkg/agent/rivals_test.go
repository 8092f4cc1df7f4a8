// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/report"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind/kindtest"
)

// otherDriver registers with the kubelet under the driver's name.
type otherDriver struct {
	registerapi.UnimplementedRegistrationServer
	name string
}

func (d otherDriver) GetInfo(context.Context, *registerapi.InfoRequest) (*registerapi.PluginInfo, error) {
	return &registerapi.PluginInfo{Type: registerapi.DRAPlugin, Name: d.name, Endpoint: "/elsewhere/dra.sock"}, nil
}

func (n *node) registerOther(t *testing.T) (end func()) {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", filepath.Join(n.KubeletRegistryDir, "other-reg.sock"))
	if err != nil {
		t.Fatal(err)
	}
	server, served := grpc.NewServer(), make(chan error, 1)
	registerapi.RegisterRegistrationServer(server, otherDriver{name: n.DriverName})
	go func() { served <- server.Serve(listener) }()
	return func() {
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}
}

// runs runs an agent until the test ends. It does not wait until the agent serves.
func (n *node) runs(t *testing.T) *agent {
	t.Helper()
	hw := n.hardware(t)
	a, err := newAgent(t.Context(), n.Config, hw, n.client)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- errors.Join(a.run(ctx), hw.close()) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the agent ended with %v", err)
		}
	})
	return a
}

func TestAnAgentServesNoNodeOfAnotherDriverOfItsName(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	end := n.registerOther(t)
	a := n.runs(t)
	code, body := get(t, a, "/readyz")
	for ; !strings.Contains(body, "another driver serves the kubelet"); code, body = get(t, a, "/readyz") {
		if t.Context().Err() != nil {
			t.Fatalf("the agent does not say why it waits: %s", body)
		}
	}
	if code == http.StatusOK {
		t.Errorf("an agent that waits is ready: %s", body)
	}
	if code, body := get(t, a, "/healthz"); code != http.StatusOK {
		t.Errorf("an agent that waits is restarted: %s", body)
	}
	sockets, err := filepath.Glob(filepath.Join(n.KubeletRegistryDir, n.DriverName+"*"))
	if err != nil || len(sockets) > 0 {
		t.Errorf("%v, the agent has registered: %v", err, sockets)
	}
	slices, err := n.client.ResourceV1().ResourceSlices().List(t.Context(), metav1.ListOptions{})
	if err != nil || len(slices.Items) > 0 {
		t.Errorf("%v, the agent has published %d slices", err, len(slices.Items))
	}
	end()
	<-a.serving.plugin.started
}

func TestTheFlagMakesAnAgentTakeANodeOver(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.TakeOver = true
	defer n.registerOther(t)()
	a := n.runs(t)
	<-a.serving.plugin.started
	retry := time.NewTicker(10 * time.Millisecond)
	defer retry.Stop()
	for !slices.Equal(a.conflicts(t.Context(), kindtest.Name("gpu-1b-00")), []report.Conflict{report.ConflictOtherDriver}) {
		select {
		case <-retry.C:
		case <-t.Context().Done():
			t.Fatal("the agent does not know that another driver serves the node")
		}
	}
}
