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

// mpsServer sends the given answers to the requests of one client. The returned
// function returns the requests.
func mpsServer(t *testing.T, r root, answers ...string) (asked func() []request) {
	t.Helper()
	directory := r.path("mps")
	must(t, os.MkdirAll(directory, 0o755))
	listener, err := net.Listen("unix", filepath.Join(directory, "control"))
	must(t, err)
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
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) }) //nolint:errcheck // it is temporary
	must(t, os.MkdirAll(filepath.Join(dir, "dev/shm"), 0o755))
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

func cuda(t *testing.T, r root, environ []string, o cudaOptions) (cudaReport, error) {
	t.Helper()
	var out bytes.Buffer
	err := runCUDA(t.Context(), r, environ, o, &out)
	var report cudaReport
	decoder := json.NewDecoder(&out)
	for decoder.More() {
		report = cudaReport{}
		must(t, decoder.Decode(&report))
	}
	return report, err
}

var environ = []string{"CUDA_MPS_PIPE_DIRECTORY=/mps", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=25", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=2048M", "HOME=/"}

func TestAClientEndsWithItsServer(t *testing.T) {
	r := shortRoot(t)
	mpsServer(t, r, `{"server":7,"shm":"cuda.mps.7"}`, `{"client":{"server":7}}`)
	got, err := cuda(t, r, environ, cudaOptions{})
	if err == nil || got.Error == nil || got.Error.Name != "MPS_RPC_FAILURE" {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestAProcessChangesItsEnvironment(t *testing.T) {
	o, err := parseCUDA([]string{"--drop-env", memoryLimit, "--set-env", threadLimit + "=100", "--set-env", "CUDA_NEW=a=b"}, &bytes.Buffer{})
	must(t, err)
	got := o.environ(environ)
	want := []string{"CUDA_MPS_PIPE_DIRECTORY=/mps", "HOME=/", threadLimit + "=100", "CUDA_NEW=a=b"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("environment (-want +got):\n%s", diff)
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

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
