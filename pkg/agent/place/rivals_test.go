// SPDX-License-Identifier: Apache-2.0

package place

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// registrar is a plugin that registers with the kubelet.
type registrar struct {
	registerapi.UnimplementedRegistrationServer
	info *registerapi.PluginInfo
}

func (r registrar) GetInfo(context.Context, *registerapi.InfoRequest) (*registerapi.PluginInfo, error) {
	return r.info, nil
}

// register serves a registration socket until the returned function is called.
func register(t *testing.T, socket string, info *registerapi.PluginInfo) (end func()) {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", socket)
	must(t, err)
	server := grpc.NewServer()
	registerapi.RegisterRegistrationServer(server, registrar{info: info})
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	return func() {
		server.Stop()
		if err := <-served; err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			t.Error(err)
		}
	}
}

// registry returns a folder whose name is short enough for sockets.
func registry(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "r") //nolint:usetesting // a socket's path holds 107 bytes
	must(t, err)
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func TestWhichRegistrationIsAnotherDriverOfTheName(t *testing.T) {
	const plugins = "/var/lib/kubelet/plugins/gpu.nvidia.com/"
	for name, c := range map[string]struct {
		socket string
		info   *registerapi.PluginInfo
		rival  bool
	}{
		"NVIDIA's driver, with the UID of its pod": {
			"gpu.nvidia.com-0f7a1c1e-6b0e-4a53-9d1c-0d6a2f0c9b11-reg.sock",
			&registerapi.PluginInfo{Type: registerapi.DRAPlugin, Name: "gpu.nvidia.com", Endpoint: plugins + "dra-0f7a1c1e-6b0e-4a53-9d1c-0d6a2f0c9b11.sock"}, true,
		},
		"a driver without a pod, and a socket of any name": {
			"other.sock", &registerapi.PluginInfo{Type: registerapi.DRAPlugin, Name: "gpu.nvidia.com", Endpoint: plugins + "dra.sock"}, true,
		},
		"an agent of this driver, during an update": {
			"gpu.nvidia.com-22222222-reg.sock", &registerapi.PluginInfo{Type: registerapi.DRAPlugin, Name: "gpu.nvidia.com", Endpoint: plugins + "dra-22222222.sock"}, false,
		},
		"an agent's name in the folder of another driver": {
			"gpu.nvidia.com-22222222-reg.sock", &registerapi.PluginInfo{Type: registerapi.DRAPlugin, Name: "gpu.nvidia.com", Endpoint: "/var/lib/kubelet/plugins/x/dra-22222222.sock"}, true,
		},
		"this agent": {
			"gpu.nvidia.com-11111111-reg.sock", &registerapi.PluginInfo{Type: registerapi.DRAPlugin, Name: "gpu.nvidia.com", Endpoint: plugins + "dra-11111111.sock"}, false,
		},
		"a driver of another name": {
			"nic-reg.sock", &registerapi.PluginInfo{Type: registerapi.DRAPlugin, Name: "nic.example.com", Endpoint: "/x/dra.sock"}, false,
		},
		"a storage driver of the name": {
			"csi-reg.sock", &registerapi.PluginInfo{Type: registerapi.CSIPlugin, Name: "gpu.nvidia.com", Endpoint: "/x/csi.sock"}, false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := registry(t)
			defer register(t, filepath.Join(dir, c.socket), c.info)()
			r := newRivals(dir)
			r.read(t.Context())
			err := r.Err()
			if (err != nil) != c.rival || c.rival && (!errors.Is(err, gpu.ErrInUse) || !strings.Contains(err.Error(), c.socket)) {
				t.Errorf("error %v, want one that names the socket: %t", err, c.rival)
			}
			if got := *r.observer.(*drivers); got != 0 && !c.rival || got != 1 && c.rival {
				t.Errorf("gpu_dra_other_drivers is %v", got)
			}
		})
	}
}

// drivers is an [Observer].
type drivers int

func (d *drivers) OtherDrivers(n int) { *d = drivers(n) }

func newRivals(dir string) *Rivals {
	place := Place{DriverName: "gpu.nvidia.com", PodUID: "11111111-2222", DataDir: "/var/lib/kubelet/plugins/gpu.nvidia.com", RegistryDir: dir}
	return NewRivals(place, new(drivers), testingclock.NewFakeClock(time.Unix(1000, 0)))
}

func TestAnAgentWaitsUntilAnotherDriverOfTheNameHasEnded(t *testing.T) {
	dir := registry(t)
	other := &registerapi.PluginInfo{Type: registerapi.DRAPlugin, Name: "gpu.nvidia.com", Endpoint: "/x/dra.sock"}
	// The socket of a driver that was killed does not count.
	register(t, filepath.Join(dir, "killed-reg.sock"), other)()
	end := register(t, filepath.Join(dir, "other-reg.sock"), other)
	r := newRivals(dir)
	now := r.clock.(*testingclock.FakeClock)
	waited := make(chan struct{})
	go func() {
		defer close(waited)
		r.Wait(t.Context())
	}()
	for !now.HasWaiters() || r.Err() == nil {
		select {
		case <-waited:
			t.Fatal("it does not wait")
		case <-time.After(time.Millisecond):
		}
	}
	end()
	for stepped := false; !stepped; {
		now.Step(rivalsTime)
		select {
		case <-waited:
			stepped = true
		case <-time.After(time.Millisecond):
		}
	}
	if err := r.Err(); err != nil {
		t.Error(err)
	}
}
