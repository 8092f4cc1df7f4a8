// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// mpsServer sends the given answers to the requests of one client, and returns a
// function that returns the requests.
func mpsServer(t *testing.T, r root, answers ...string) (asked func() []request) {
	t.Helper()
	directory := r.path("mps")
	if err := os.MkdirAll(directory, 0o755); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("unix", filepath.Join(directory, "control"))
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan []request, 1)
	go func() {
		defer listener.Close() //nolint:errcheck // the test is over
		var all []request
		defer func() { done <- all }()
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		defer conn.Close() //nolint:errcheck // the test is over
		decoder := json.NewDecoder(conn)
		for _, answer := range answers {
			var q request
			if decoder.Decode(&q) != nil {
				return
			}
			all = append(all, q)
			if _, err := conn.Write([]byte(answer)); err != nil {
				return
			}
		}
	}()
	return func() []request { return <-done }
}

// shortRoot is a root whose sockets have paths short enough for sockets.
func shortRoot(t *testing.T) root {
	t.Helper()
	dir, err := os.MkdirTemp("", "p") //nolint:usetesting // t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) }) //nolint:errcheck // it is temporary
	if err := os.MkdirAll(filepath.Join(dir, "dev/shm"), 0o755); err != nil {
		t.Fatal(err)
	}
	return root(dir)
}

func cuda(t *testing.T, r root, environ []string, o cudaOptions) (cudaReport, error) {
	t.Helper()
	var out bytes.Buffer
	err := runCUDA(t.Context(), r, environ, o, &out)
	var report cudaReport
	decoder := json.NewDecoder(&out)
	for decoder.More() {
		report = cudaReport{}
		if err := decoder.Decode(&report); err != nil {
			t.Fatal(err)
		}
	}
	return report, err
}

var environ = []string{"CUDA_MPS_PIPE_DIRECTORY=/mps", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=25", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=2048M", "HOME=/"}

func TestAClientReportsWhatItGot(t *testing.T) {
	r := shortRoot(t)
	if err := os.WriteFile(r.path("dev/shm/cuda.mps.7"), []byte("secret"), 0o644); err != nil {
		t.Fatal(err)
	}
	asked := mpsServer(t, r, `{"waiting":"server 6 of user 5 has clients"}{"server":7,"shm":"cuda.mps.7"}`,
		`{"client":{"server":7,"activeThreadPercentage":20,"devices":[{"ordinal":0,"uuid":"GPU-1","limitBytes":2147483648}]}}`,
		`{"usedBytes":1073741824}`)
	got, err := cuda(t, r, environ, cudaOptions{memory: 1 << 30, once: true})
	if err != nil {
		t.Fatal(err)
	}
	want := cudaReport{
		Hostname: got.Hostname,
		Env: map[string]string{
			"CUDA_MPS_PIPE_DIRECTORY": "/mps", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "25", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=2048M",
		},
		MPS: true, Waited: "server 6 of user 5 has clients",
		Client:         &granted{Server: 7, ActiveThreadPercentage: 20, Devices: []grantedDevice{{UUID: "GPU-1", LimitBytes: 2 << 30}}},
		AllocatedBytes: 1 << 30,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("report (-want +got):\n%s", diff)
	}
	wantAsked := []request{
		{Op: "connect", ActiveThreadPercentage: "25", PinnedDeviceMemLimit: "0=2048M"},
		{Op: "attach", Token: "secret"},
		{Op: "alloc", Bytes: 1 << 30},
	}
	if diff := cmp.Diff(wantAsked, asked()); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}

func TestARefusalEndsAClient(t *testing.T) {
	r := shortRoot(t)
	mpsServer(t, r, `{"server":7,"shm":"cuda.mps.7"}`, `{"error":{"name":"MPS_CONNECTION_FAILED","code":805,"message":"another /dev/shm"}}`)
	got, err := cuda(t, r, environ, cudaOptions{})
	if err == nil || got.Error == nil || got.Error.Code != 805 {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestAClientEndsWithItsServer(t *testing.T) {
	r := shortRoot(t)
	mpsServer(t, r, `{"server":7,"shm":"cuda.mps.7"}`, `{"client":{"server":7}}`)
	got, err := cuda(t, r, environ, cudaOptions{})
	if err == nil || got.Error == nil || got.Error.Name != "MPS_RPC_FAILURE" {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestAClientCanDropItsLimits(t *testing.T) {
	r := shortRoot(t)
	asked := mpsServer(t, r, `{"server":7,"shm":"cuda.mps.7"}`, `{"client":{"server":7}}`)
	if _, err := cuda(t, r, environ, cudaOptions{withoutLimits: true, once: true}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(request{Op: "connect"}, asked()[0]); diff != "" {
		t.Errorf("the first request (-want +got):\n%s", diff)
	}
}

// The real CUDA goes on without MPS, and so without limits.
func TestAProcessWithoutADaemonIsPlain(t *testing.T) {
	for name, tc := range map[string]struct {
		environ []string
		want    string
	}{
		"no variable":                  {nil, "CUDA_MPS_PIPE_DIRECTORY is not set"},
		"a directory without a daemon": {environ, "cannot connect to MPS"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := cuda(t, shortRoot(t), tc.environ, cudaOptions{memory: 1 << 30, once: true})
			if err != nil || got.MPS || !strings.Contains(got.Plain, tc.want) {
				t.Errorf("got %+v, %v", got, err)
			}
		})
	}
}

func TestSizesHaveKubernetesUnits(t *testing.T) {
	for text, want := range map[string]size{"12Gi": 12 << 30, "900Mi": 900 << 20, "4Ki": 4096, "17": 17, "0": 0} {
		o, err := parseCUDA([]string{"--memory", text}, &bytes.Buffer{})
		if err != nil || o.memory != want {
			t.Errorf("%s: got %d, %v", text, o.memory, err)
		}
	}
	for _, args := range [][]string{{"--memory", "12G"}, {"--memory", "-1"}, {"--memory", "99999999999Gi"}, {"now"}} {
		if o, err := parseCUDA(args, &bytes.Buffer{}); err == nil {
			t.Errorf("%v: got %+v", args, o)
		}
	}
}
