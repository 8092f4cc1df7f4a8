// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
)

// CUDA is the output of "probe cuda", which runs as a CUDA process in a container; see
// simulator/cmd/probe.
type CUDA struct {
	// MPS reports whether it became a client of an MPS server.
	MPS bool `json:"mps"`
	// Client has the limits that the server set for it.
	Client struct {
		ActiveThreadPercentage float64 `json:"activeThreadPercentage"`
		Devices                []struct {
			UUID string `json:"uuid"`
			// LimitBytes is 0 for none.
			LimitBytes int64 `json:"limitBytes"`
		} `json:"devices"`
	} `json:"client"`
	// Devices of a process without MPS, if the simulated driver runs.
	Devices []struct {
		UUID string `json:"uuid"`
	} `json:"devices"`
	// Memory is the size of the GPU that CUDA reports to such a process, before it
	// allocates.
	Memory struct {
		TotalBytes int64 `json:"totalBytes"`
		FreeBytes  int64 `json:"freeBytes"`
	} `json:"memory"`
	// AllocatedBytes is the sum of several processes.
	AllocatedBytes int64 `json:"allocatedBytes"`
	// Refused is the error that ended the allocations of a greedy process.
	Refused CUDAError `json:"refused"`
	// Processes are the reports of several processes, one by one.
	Processes []CUDA `json:"processes"`
	// Error is the CUDA error that ended the process.
	Error CUDAError `json:"error"`
}

// CUDAError is an error of CUDA; its name is empty for none.
type CUDAError struct {
	// Name is the one in cuda.h without CUDA_ERROR_.
	Name    string `json:"name"`
	Message string `json:"message"`
}

// Greedy returns arguments of "probe cuda" for processes that allocate until CUDA refuses.
// Further arguments follow, such as --no-mps.
func Greedy(processes int, args ...string) []string {
	return append([]string{"--greedy", "--processes", strconv.Itoa(processes)}, args...)
}

// Limit of the first device's memory, in bytes; 0 for none.
func (c CUDA) Limit() int64 {
	if len(c.Client.Devices) == 0 {
		return 0
	}
	return c.Client.Devices[0].LimitBytes
}

// CUDA reads what the probe of a container that is a CUDA process printed.
func (c *Cluster) CUDA(ctx context.Context, namespace, pod, container string) (CUDA, error) {
	var client CUDA
	err := Until(ctx, func(ctx context.Context) (bool, string, error) {
		stream, err := c.Client.CoreV1().Pods(namespace).GetLogs(pod, &corev1.PodLogOptions{Container: container}).Stream(ctx)
		if err != nil {
			return false, err.Error(), nil
		}
		defer stream.Close() //nolint:errcheck // only read from
		text, err := io.ReadAll(stream)
		if err != nil {
			return false, err.Error(), nil
		}
		err = json.NewDecoder(bytes.NewReader(withoutErrors(text))).Decode(&client)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return false, "it has printed nothing yet", nil
		}
		return err == nil, "", err
	})
	if err != nil {
		return client, fmt.Errorf("read what the CUDA process in %s/%s was given: %w", namespace, pod, err)
	}
	return client, nil
}

// withoutErrors removes the lines that the probe prints to the standard error. A log of a
// container can have them before or between the lines of the report.
func withoutErrors(log []byte) []byte {
	lines := slices.DeleteFunc(bytes.SplitAfter(log, []byte("\n")), func(line []byte) bool {
		return bytes.HasPrefix(line, []byte("probe: "))
	})
	return bytes.Join(lines, nil)
}

// ExecCUDA runs one more CUDA process in a container, and returns its result. args
// are arguments of "probe cuda". A refusal by CUDA is in the result, and is not an
// error.
func (c *Cluster) ExecCUDA(ctx context.Context, namespace, pod, container string, args ...string) (CUDA, error) {
	var client CUDA
	out, err := c.Kubectl(ctx, append([]string{"exec", "-n", namespace, pod, "-c", container, "--", "probe", "cuda", "--once"}, args...)...)
	begin := bytes.IndexByte([]byte(out), '{')
	if begin < 0 {
		return client, fmt.Errorf("a CUDA process in %s/%s printed nothing: %w", namespace, pod, err)
	}
	if err := json.NewDecoder(bytes.NewReader([]byte(out)[begin:])).Decode(&client); err != nil {
		return client, fmt.Errorf("a CUDA process in %s/%s: %w: %s", namespace, pod, err, out)
	}
	return client, nil
}
