// SPDX-License-Identifier: Apache-2.0

package attribution

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/node/podresources"
	"github.com/gpu-dra/gpu-dra-driver/simulator/nvmlsim"
)

// mount adds the file of the last message of a container to the mounts of a process.
func (p tasks) mount(pid int, pod types.UID, container string) {
	p.Helper()
	file, err := os.OpenFile(filepath.Join(string(p.Root), "proc", strconv.Itoa(pid), "mountinfo"), os.O_APPEND|os.O_WRONLY, 0)
	must(p, err)
	defer file.Close() //nolint:errcheck // the write is checked
	_, err = fmt.Fprintf(file, "802 800 0:60 /pods/%s/containers/%s/0a0b0c0d /x rw - tmpfs tmpfs rw\n", pod, container)
	must(p, err)
}

func TestTheKubeletConfirmsTheNamesOfContainers(t *testing.T) {
	ofPod := func(pod string, containers ...string) (all []podresources.Container) {
		for _, name := range containers {
			all = append(all, podresources.Container{Namespace: "team", Pod: pod, Name: name})
		}
		return all
	}
	listed := slices.Concat(ofPod("pod-1", "main", "sidecar"), ofPod("pod-2", "other"), []podresources.Container{{Namespace: "else", Pod: "pod-1", Name: "else"}})
	for name, c := range map[string]struct {
		shown []string // in addition to "main"
		list  func(context.Context) ([]podresources.Container, error)
		want  string
	}{
		"its own":                              {want: "main"},
		"a name of its own making":             {shown: []string{"evil"}, want: "main"},
		"a name that is not text":              {shown: []string{"\xff"}, want: "main"},
		"the name of another pod's":            {shown: []string{"other"}, want: "main"},
		"the name of another namespace's":      {shown: []string{"else"}, want: "main"},
		"the name of its neighbour":            {shown: []string{"sidecar"}, want: "c0ffee"},
		"a kubelet that does not answer":       {list: func(context.Context) ([]podresources.Container, error) { return nil, gpu.ErrNotReady }, want: "c0ffee"},
		"a pod that the kubelet does not know": {list: func(context.Context) ([]podresources.Container, error) { return ofPod("pod-2", "main"), nil }, want: "c0ffee"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newUsageNode(t, "dgx-h100")
			n.hold("one", firstGPU, podUID(1))
			n.claims.limited = nil
			n.o.Pods.Observe(reservedFor(1))
			n.containers.list = func(context.Context) ([]podresources.Container, error) { return listed, nil }
			if c.list != nil {
				n.containers.list = c.list
			}
			n.tasks.add(1000000, podUID(1), "c0ffee", "main")
			for _, shown := range c.shown {
				n.tasks.mount(1000000, podUID(1), shown)
			}
			must(t, n.sim.AddProcess(0, nvmlsim.Process{PID: 1000000, MemoryBytes: 4 * gibi}))
			report, _ := n.Read(t.Context())
			got := report.Rows[len(report.Rows)-1]
			if got.Pod != "pod-1" || got.Container != c.want {
				t.Errorf("container %q of %q, want %q of pod-1", got.Container, got.Pod, c.want)
			}
		})
	}
}

func TestANameThatIsKnownIsNotReadAgain(t *testing.T) {
	n := newUsageNode(t, "dgx-h100")
	n.hold("one", firstGPU, podUID(1))
	n.claims.limited = nil
	n.o.Pods.Observe(reservedFor(1))
	lists := 0
	n.containers.list = func(context.Context) ([]podresources.Container, error) {
		lists++
		return []podresources.Container{{Namespace: "team", Pod: "pod-1", Name: "main"}}, nil
	}
	n.tasks.add(1000000, podUID(1), "c0ffee", "main")
	must(t, n.sim.AddProcess(0, nvmlsim.Process{PID: 1000000, MemoryBytes: 4 * gibi}))
	for range 3 {
		n.want(nil, "one pod-1/main used 4")
	}
	if lists != 1 {
		t.Errorf("the kubelet was queried %d times for one container", lists)
	}
	n.claims.held = nil
	n.want(nil)
	if len(n.containers.known) > 0 {
		t.Errorf("containers that have ended are kept: %v", n.containers.known)
	}
}
