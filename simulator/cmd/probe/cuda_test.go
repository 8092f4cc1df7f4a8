// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// mpsServer sends the given answers to the requests of one client. The returned
// function returns the requests.
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

// TestMain lets the test binary be the probe, for processes that start others.
func TestMain(m *testing.M) {
	if os.Getenv("BE_PROBE") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// driver is a simulated driver with some memory for all processes.
func driver(t *testing.T, socket string, total uint64) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(socket), 0o755); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var sum uint64
	var serving sync.WaitGroup
	serve := func(conn net.Conn) {
		defer conn.Close() //nolint:errcheck // the test is over
		decoder, encoder := json.NewDecoder(conn), json.NewEncoder(conn)
		var mine uint64
		for {
			var q request
			if decoder.Decode(&q) != nil {
				mu.Lock()
				sum -= mine
				mu.Unlock()
				return
			}
			r := map[string]any{}
			mu.Lock()
			switch {
			case q.Op == "init":
				r["devices"] = []grantedDevice{{UUID: "GPU-1"}}
			case q.Op == "info":
				r["memory"] = cudaMemory{TotalBytes: total, FreeBytes: total - sum}
			case sum+q.Bytes > total:
				r["error"] = cudaError{Name: "OUT_OF_MEMORY", Code: outOfMemory, Message: "the cgroup is full"}
			default:
				sum, mine = sum+q.Bytes, mine+q.Bytes
				r["usedBytes"] = mine
			}
			mu.Unlock()
			if encoder.Encode(r) != nil {
				return
			}
		}
	}
	serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { serve(conn) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		serving.Wait()
	})
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

func TestAProcessChangesItsEnvironment(t *testing.T) {
	o, err := parseCUDA([]string{"--drop-env", memoryLimit, "--set-env", threadLimit + "=100", "--set-env", "CUDA_NEW=a=b"}, &bytes.Buffer{})
	if err != nil {
		t.Fatal(err)
	}
	got := o.environ(environ)
	want := []string{"CUDA_MPS_PIPE_DIRECTORY=/mps", "HOME=/", threadLimit + "=100", "CUDA_NEW=a=b"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("environment (-want +got):\n%s", diff)
	}
}

func TestAProcessCanIgnoreMPS(t *testing.T) {
	r := shortRoot(t)
	driver(t, r.path(driverSocket), 3<<30)
	got, err := cuda(t, r, environ, cudaOptions{noMPS: true, memory: 1 << 30, once: true, processes: 1})
	if err != nil {
		t.Fatal(err)
	}
	got.Hostname, got.Env = "", nil
	want := cudaReport{
		Plain: "a plain process on purpose", Devices: []grantedDevice{{UUID: "GPU-1"}},
		Memory: &cudaMemory{TotalBytes: 3 << 30, FreeBytes: 3 << 30}, AllocatedBytes: 1 << 30,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("report (-want +got):\n%s", diff)
	}
	if got, err := cuda(t, r, nil, cudaOptions{memory: 4 << 30, once: true}); err == nil || got.Error == nil || got.Error.Name != "OUT_OF_MEMORY" {
		t.Errorf("more than there is: %+v, %v", got, err)
	}
}

// A test would otherwise take the missing driver for a limit.
func TestAProcessThatIgnoresMPSNeedsADriver(t *testing.T) {
	for _, o := range []cudaOptions{{noMPS: true}, {greedy: true}} {
		if got, err := cuda(t, shortRoot(t), nil, o); err == nil || got.Error == nil || got.Error.Name != "NO_DEVICE" {
			t.Errorf("%+v: got %+v, %v", o, got, err)
		}
	}
}

func TestAGreedyProcessGetsAllButLessThanAStep(t *testing.T) {
	total := uint64(5<<30 + 7<<20 + 1)
	for name, tc := range map[string]struct {
		step size
		want uint64
	}{
		"steps of 1 GiB": {0, total - 1},
		"steps of 3 GiB": {3 << 30, total - 1},
	} {
		t.Run(name, func(t *testing.T) {
			r := shortRoot(t)
			driver(t, r.path(driverSocket), total)
			got, err := cuda(t, r, nil, cudaOptions{greedy: true, memory: tc.step, once: true})
			if err != nil || got.AllocatedBytes != tc.want || got.Refused == nil || got.Refused.Message != "the cgroup is full" {
				t.Errorf("got %+v, %v; want %d bytes", got, err, tc.want)
			}
		})
	}
}

// The processes speak MPS' protocol here, because the path of the driver's socket is
// fixed.
func TestSeveralProcessesHoldTheirMemoryAtATime(t *testing.T) {
	r := shortRoot(t)
	server, err := net.Listen("unix", r.path("control"))
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	attached, early, connected, ended := 0, 0, 0, make(chan struct{}, 3)
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := server.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer conn.Close() //nolint:errcheck // the test is over
				decoder := json.NewDecoder(conn)
				for _, answer := range []string{`{"server":7,"shm":"none"}`, `{"client":{"server":7}}`, `{"usedBytes":1024}`} {
					var q request
					if decoder.Decode(&q) != nil {
						return
					}
					mu.Lock()
					switch {
					case q.Op == "attach":
						attached++
					case q.Op == "alloc" && attached < 3:
						early++
					}
					if q.Op == "alloc" {
						connected++ // before the answer, which the report may follow at once
					}
					mu.Unlock()
					if _, err := conn.Write([]byte(answer)); err != nil {
						return
					}
				}
				_ = decoder.Decode(&request{}) // until it ends
				ended <- struct{}{}
			})
		}
	})
	t.Cleanup(func() {
		_ = server.Close()
		serving.Wait()
	})
	ctx, cancel := context.WithCancel(t.Context())
	read, write := io.Pipe()
	done := make(chan error, 1)
	go func() {
		done <- runCUDA(ctx, r, []string{"BE_PROBE=1", "CUDA_MPS_PIPE_DIRECTORY=" + string(r)}, cudaOptions{processes: 3, memory: 1024}, write)
	}()
	var got cudaReport
	if err := json.NewDecoder(read).Decode(&got); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	if early != 0 || connected != 3 || len(ended) != 0 || got.AllocatedBytes != 3*1024 || len(got.Processes) != 3 || !got.MPS {
		t.Errorf("%d allocated before all had contexts, %d connected and %d ended; report %+v", early, connected, len(ended), got)
	}
	mu.Unlock()
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	for range 3 {
		<-ended
	}
}

func TestAFailureOfOneProcessIsOfAll(t *testing.T) {
	got, err := cuda(t, shortRoot(t), []string{"BE_PROBE=1"}, cudaOptions{processes: 2, device: -1, noMPS: true})
	if err == nil || got.Error == nil || len(got.Processes) != 2 {
		t.Errorf("got %+v, %v", got, err)
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
	for _, args := range [][]string{{"--memory", "12G"}, {"--memory", "-1"}, {"--memory", "99999999999Gi"}, {"--processes", "0"}, {"--set-env", "NAME"}, {"now"}} {
		if o, err := parseCUDA(args, &bytes.Buffer{}); err == nil {
			t.Errorf("%v: got %+v", args, o)
		}
	}
}
