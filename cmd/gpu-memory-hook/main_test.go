// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	ocispec "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/gpu-dra/gpu-dra-driver/pkg/disk/home"
	"github.com/gpu-dra/gpu-dra-driver/pkg/node/containerlimits"
	"github.com/gpu-dra/gpu-dra-driver/pkg/node/memoryhook"
	gpunvml "github.com/gpu-dra/gpu-dra-driver/pkg/node/nvml"
	"github.com/gpu-dra/gpu-dra-driver/simulator/cgroup"
	"github.com/gpu-dra/gpu-dra-driver/simulator/cgroup/cgrouptest"
	"github.com/gpu-dra/gpu-dra-driver/simulator/nvmlsim"
	"github.com/gpu-dra/gpu-dra-driver/test/files/mountns"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

const (
	device = "4f7c-gpu-1b-00"
	gibi   = 1 << 30
	// library is the driver's library.
	library = "libnvidia-ml.so.1"
)

// built names the folder with the hook.
const built = "TEST_BUILT_IN"

// TestMain builds the hook, the program that calls the driver, and the driver's library of
// simulated nodes.
func TestMain(m *testing.M) {
	mountns.Enter()
	dir, err := os.MkdirTemp("", "gpu-memory-hook-")
	if err == nil {
		hook := exec.Command("go", "build", "-o", dir+"/", ".")
		hook.Env = append(os.Environ(), "CGO_ENABLED=0") // as in the image
		err = errors.Join(os.Setenv(built, dir), hook.Run(), exec.Command("go", "build", "-o", dir+"/", "../gpu-memory-limit").Run(),
			exec.Command("go", "build", "-buildmode=c-shared", "-o", filepath.Join(dir, library), "github.com/gpu-dra/gpu-dra-driver/simulator/cmd/libnvidia-ml").Run())
	}
	status := 1
	if err != nil {
		fmt.Fprintln(os.Stderr, "build the hook:", err)
	} else {
		status = m.Run()
	}
	_ = os.RemoveAll(dir)
	os.Exit(status)
}

// node is a simulated node with the hook as an agent installs it.
type node struct {
	testing.TB
	sim    *nvmlsim.Sim
	limits containerlimits.Folder
	hook   home.MemoryHook
	// socket is the agent's.
	socket string
	// root is the root of the hook's file system; empty for that of the test.
	root string
}

// newNode installs the hook in a home.
func newNode(t testing.TB, model string) *node {
	t.Helper()
	m, err := nvmlsim.LoadModel(model)
	must(t, err)
	m.DriverVersion, m.CUDAVersion, m.MemoryLimits = "615.10", "13.4", nvmlsim.MemoryLimitsMisc
	sim, err := nvmlsim.Create(filepath.Join(t.TempDir(), "sim"), m)
	must(t, err)
	must(t, sim.InstallLibrary(filepath.Join(os.Getenv(built), library)))
	h, err := home.Enter(t.Context(), t.TempDir(), func() {})
	must(t, err)
	t.Cleanup(func() { _ = h.Close() })
	hook, err := h.InstallMemoryHook(filepath.Join(os.Getenv(built), home.MemoryHookName), filepath.Join(os.Getenv(built), home.MemoryCallName))
	must(t, err)
	n := &node{TB: t, sim: sim, limits: containerlimits.Folder(h.Limits()), hook: hook, socket: h.HookSocket()}
	n.open(device)
	return n
}

func (n *node) open(device string) {
	n.Helper()
	must(n, n.limits.Open(device))
}

// container starts a process in a separate cgroup and returns both.
func (n *node) container() (pid int, folder string) {
	n.Helper()
	folder = cgrouptest.New(n)
	return cgrouptest.Process(n, folder), folder
}

// run runs the hook as a runtime does for a container and returns its output.
func (n *node) run(pid int, arguments ...string) (output string, err error) {
	n.Helper()
	state, err := json.Marshal(ocispec.State{Version: ocispec.Version, ID: "a-container", Status: ocispec.StateCreating, Pid: pid})
	must(n, err)
	all := slices.Concat([]string{"--limits", string(n.limits), "--device", device, "--gpu", n.address(0), "--agent", n.socket}, arguments,
		[]string{"--"}, n.hook.Call, []string{"--driver-root", n.sim.Root()})
	hook := exec.CommandContext(context.WithoutCancel(n.Context()), n.hook.Hook, all...)
	hook.Env = []string{}
	hook.Stdin = bytes.NewReader(state)
	if n.root != "" {
		hook.SysProcAttr, hook.Dir = &syscall.SysProcAttr{Chroot: n.root}, "/"
	}
	out, err := hook.CombinedOutput()
	return string(out), err
}

// address returns the PCI address of a GPU.
func (n *node) address(index int) string { return n.sim.Model().GPUs[index].Address }

// wantLimit reports an error unless a cgroup has exactly this limit; 0 for none.
func (n *node) wantLimit(folder string, want uint64) {
	n.Helper()
	st, err := n.sim.State()
	must(n, err)
	id, err := cgroup.Lookup(folder)
	must(n, err)
	var got uint64
	for _, l := range st.GPUs[0].MemoryLimits {
		if l.ID == id {
			got = l.HardBytes
			if l.SoftBytes != 0 {
				n.Errorf("the soft limit is %d, which outlives the cgroup", l.SoftBytes)
			}
		}
	}
	if got != want {
		n.Errorf("the limit of %s is %d, want %d", folder, got, want)
	}
}

// serve starts an agent that sets limits for hooks, and returns its end. The end returns
// their number.
func (n *node) serve() (end func() int) {
	n.Helper()
	listener, err := memoryhook.Listen(n.socket)
	must(n, err)
	ctx, cancel := context.WithCancel(n.Context())
	set := 0
	var serving sync.WaitGroup
	serving.Go(func() {
		listener.Serve(ctx, gpunvml.New(n.sim.NVML()), func(_ containerlimits.Limit, err error) {
			if err == nil {
				set++
			}
		})
	})
	return func() int {
		cancel()
		serving.Wait()
		return set
	}
}

func TestTheAgentLimitsEachContainer(t *testing.T) {
	n := newNode(t, "dgx-h100")
	end := n.serve()
	n.limitsEach()
	if set := end(); set != 2 {
		t.Errorf("the agent has set %d limits, want 2", set)
	}
}

func TestTheHookLimitsEachContainer(t *testing.T) { newNode(t, "dgx-h100").limitsEach() }

// limitsEach reports an error unless the hook limits each of two containers of a device.
func (n *node) limitsEach() {
	n.Helper()
	for range 2 {
		pid, folder := n.container()
		if out, err := n.run(pid, "--bytes", fmt.Sprint(10*gibi), "--containers", "2"); err != nil || out != "" {
			n.Fatalf("%v: %q", err, out)
		}
		n.wantLimit(folder, 10*gibi)
	}
	if all, err := n.limits.Containers(device); err != nil || len(all) != 2 {
		n.Errorf("the containers of the device are %v, %v; want two", all, err)
	}
}

// crun starts the first process below the cgroup that the kubelet knows, with systemd.
func TestAContainerWhoseProcessIsInACgroupBelowItsOwn(t *testing.T) {
	n := newNode(t, "dgx-h100")
	pod := cgrouptest.Child(t, cgrouptest.New(t), "kubepods-pod11111111_2222_3333_4444_555555555555.slice")
	scope := cgrouptest.Child(t, pod, "crio-c0ffee.scope")
	below := cgrouptest.Child(t, scope, "container")
	if out, err := n.run(cgrouptest.Process(t, below), "--bytes", fmt.Sprint(10*gibi)); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	n.wantLimit(scope, 10*gibi)
	n.wantLimit(below, 0)
	if all, err := n.limits.Containers(device); err != nil || len(all) != 1 || all[0].Cgroup != scope {
		t.Errorf("the containers of the device are %v, %v; want that of %s", all, err, scope)
	}
	if out, err := n.run(cgrouptest.Process(t, pod), "--bytes", fmt.Sprint(gibi), "--containers", "2"); err == nil || !strings.Contains(out, "no cgroup of its own below its pod's") {
		t.Errorf("a container in the cgroup of its pod: %v: %s", err, out)
	}
	n.wantLimit(pod, 0)
}

// A container may use several devices on a GPU, such as two plain shares.
func TestTheLimitsOfAContainerAddUp(t *testing.T) {
	n := newNode(t, "dgx-h100")
	n.open("other")
	pid, folder := n.container()
	for _, name := range []string{device, "other"} {
		if out, err := n.run(pid, "--device", name, "--bytes", fmt.Sprint(2*gibi)); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	n.wantLimit(folder, 4*gibi)
}

func TestAFailureSaysWhyAndLimitsNothing(t *testing.T) {
	for name, c := range map[string]struct {
		// before changes the node.
		before func(n *node) error
		// with are further arguments.
		with []string
		want string
	}{
		"above the GPU": {
			with: []string{"--bytes", fmt.Sprint(200 * gibi)},
			want: "invalid",
		},
		"a device whose claim is not prepared": {
			before: func(n *node) error { return n.limits.Close(device) },
			want:   "its claim is not prepared",
		},
		"more containers than the device is for": {
			before: func(n *node) error {
				pid, _ := n.container()
				_, err := n.run(pid, "--bytes", fmt.Sprint(gibi))
				return err
			},
			want: "its memory is for 1 containers at a time, and 1 others use it",
		},
		"a GPU that the node does not have": {
			with: []string{"--gpu", "0000:ff:00.0"},
			want: "not found",
		},
		"a driver without limits": {
			before: func(n *node) error {
				return n.sim.FailCalls(nvmlsim.CallFault{Method: "DeviceSetMemoryLimits_v1", Return: nvml.ERROR_NOT_SUPPORTED})
			},
			want: "not supported",
		},
		"a cgroup for which the controller is not enabled": {
			before: func(n *node) error {
				return n.sim.FailCalls(nvmlsim.CallFault{Method: "DeviceSetMemoryLimits_v1", Return: nvml.ERROR_NOT_FOUND})
			},
			want: "the kernel's controller dmem is not enabled for it; enable it in cgroup.subtree_control",
		},
		"a driver that hangs": {
			before: func(n *node) error {
				return n.sim.FailCalls(nvmlsim.CallFault{Method: "DeviceSetMemoryLimits_v1", Hang: nvmlsim.Duration(time.Minute)})
			},
			with: []string{"--timeout", "300ms"},
			want: "timed out",
		},
		"another path": {with: []string{"--device", "../claims"}, want: `device "../claims": invalid name`},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, "dgx-h100")
			if c.before != nil {
				must(t, c.before(n))
			}
			before, err := n.limits.Devices()
			must(t, err)
			pid, folder := n.container()
			out, err := n.run(pid, append([]string{"--bytes", fmt.Sprint(gibi)}, c.with...)...)
			if err == nil || !strings.Contains(out, c.want) || strings.Count(out, "\n") != 1 {
				t.Errorf("%v: %q; want one line with %q", err, out, c.want)
			}
			n.wantLimit(folder, 0)
			for _, d := range before {
				all, err := n.limits.Containers(d)
				must(t, err)
				for _, l := range all {
					if l.Cgroup == folder {
						t.Errorf("the container counts as a user of %s", d)
					}
				}
			}
		})
	}
}

// The runtime runs the hook in the host's file system. There programs may find no C
// library, or another one.
func TestTheHookRunsOnAHostWithoutACLibrary(t *testing.T) {
	n := newNode(t, "dgx-h100")
	pid, folder := n.container()
	n.root = t.TempDir()
	system, err := cgroup.Root()
	must(t, err)
	for _, path := range []string{"/proc", "/dev", system, filepath.Dir(n.sim.Root()), filepath.Dir(string(n.limits))} {
		bind(t, path, filepath.Join(n.root, path))
	}
	if out, err := n.run(pid, "--bytes", fmt.Sprint(gibi)); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	n.wantLimit(folder, gibi)
}

// bind mounts a folder at another path while the test runs.
func bind(t testing.TB, from, to string) {
	t.Helper()
	must(t, os.MkdirAll(to, 0o755))
	if err := unix.Mount(from, to, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		t.Fatalf("mount %s: %v", from, err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(to, unix.MNT_DETACH); err != nil {
			t.Errorf("unmount %s: %v", to, err)
		}
	})
}

var must = require.NoError
