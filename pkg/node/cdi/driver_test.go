// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

// fakeDriver is an installed driver: its version, and a root with its files.
type fakeDriver struct {
	root    string
	version string
	err     error
}

func (d *fakeDriver) DriverVersion(context.Context) (string, error) { return d.version, d.err }

func newFakeDriver(t *testing.T) *fakeDriver {
	d := &fakeDriver{root: t.TempDir()}
	d.install(t, "570.86.15")
	d.node(t, "nvidiactl")
	d.node(t, "nvidia-uvm")
	return d
}

func (d *fakeDriver) install(t *testing.T, version string) {
	t.Helper()
	d.version = version
	for path, mode := range map[string]os.FileMode{
		"usr/lib/x86_64-linux-gnu/libcuda.so." + version:      0o644,
		"usr/lib/x86_64-linux-gnu/libnvidia-ml.so." + version: 0o644,
		"usr/bin/nvidia-smi": 0o755,
	} {
		path = filepath.Join(d.root, path)
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must(t, os.WriteFile(path, nil, mode))
	}
}

// node adds a device node, or what can be had of one without being root: nvcdi
// takes no links, so device nodes in edits are for tests on simulated hardware.
func (d *fakeDriver) node(t *testing.T, name string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Join(d.root, "dev"), 0o755))
	must(t, os.Symlink("/dev/null", filepath.Join(d.root, "dev", name)))
}

func mounts(e *specs.ContainerEdits) string {
	var b strings.Builder
	for _, m := range e.Mounts {
		b.WriteString(m.HostPath + " on " + m.ContainerPath + "\n")
	}
	return b.String()
}

func TestDriverEditsHoldWhatEveryContainerNeeds(t *testing.T) {
	d := newFakeDriver(t)
	edits, err := NewDriverEdits(d, Roots{Driver: d.root, Dev: d.root}, "/usr/bin/nvidia-cdi-hook").Edits(t.Context())
	must(t, err)
	want := d.root + "/usr/bin/nvidia-smi on /usr/bin/nvidia-smi\n" +
		d.root + "/usr/lib/x86_64-linux-gnu/libcuda.so.570.86.15 on /usr/lib/x86_64-linux-gnu/libcuda.so.570.86.15\n" +
		d.root + "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.570.86.15 on /usr/lib/x86_64-linux-gnu/libnvidia-ml.so.570.86.15\n"
	require.Same(t, "mounts", want, mounts(edits))
	voids := 0
	for _, env := range edits.Env {
		if env == "NVIDIA_VISIBLE_DEVICES=void" {
			voids++
		}
	}
	if voids != 1 {
		t.Errorf("NVIDIA_VISIBLE_DEVICES=void appears %d times in %q, want once", voids, edits.Env)
	}
	if len(edits.Hooks) == 0 {
		t.Error("no hooks, so no linker cache in the container")
	}
	for _, h := range edits.Hooks {
		if h.Path != "/usr/bin/nvidia-cdi-hook" {
			t.Errorf("hook %v does not run the given binary", h)
		}
	}
}

// The root is the host's, mounted in a container that has no such folder.
func TestAbsoluteLinksAreFollowedBelowTheDriverRoot(t *testing.T) {
	d := newFakeDriver(t)
	libraries, store := filepath.Join(d.root, "usr/lib/x86_64-linux-gnu"), filepath.Join(d.root, "store/nvidia")
	for _, err := range []error{
		os.MkdirAll(filepath.Dir(store), 0o755), os.Rename(libraries, store), os.Symlink("/store/nvidia", libraries),
		os.Symlink("libcuda.so.570.86.15", filepath.Join(store, "libcuda.so.1")),
	} {
		must(t, err)
	}
	edits, err := NewDriverEdits(d, Roots{Driver: d.root, Dev: d.root}, "/hook").Edits(t.Context())
	must(t, err)
	want := d.root + "/store/nvidia/libcuda.so.570.86.15 on /store/nvidia/libcuda.so.570.86.15\n"
	if got := mounts(edits); !strings.Contains(got, want) {
		t.Errorf("mounts:\n%swant\n%s", got, want)
	}
}

// A daemon of the host must not get clients of a claim's own daemon. It must not get
// processes of a claim with a whole GPU either.
func TestTheHostsOwnMPSDaemonStaysOutOfContainers(t *testing.T) {
	d := newFakeDriver(t)
	// nvcdi mounts the path of the daemon if it is a file.
	for _, path := range []string{"tmp/nvidia-mps", "run/nvidia-persistenced/socket"} {
		path = filepath.Join(d.root, path)
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must(t, os.WriteFile(path, nil, 0o644))
	}
	edits, err := NewDriverEdits(d, Roots{Driver: d.root, Dev: d.root, HostDriver: "/run/nvidia/driver"}, "/hook").Edits(t.Context())
	must(t, err)
	got := mounts(edits)
	if strings.Contains(got, "mps") {
		t.Errorf("the host's MPS daemon is mounted:\n%s", got)
	}
	if !strings.Contains(got, "/run/nvidia/driver/run/nvidia-persistenced/socket on /run/nvidia-persistenced/socket") {
		t.Errorf("the persistence daemon's socket is not mounted any more:\n%s", got)
	}
}

func TestDriverEditsNameTheHostsPaths(t *testing.T) {
	d := newFakeDriver(t)
	edits, err := NewDriverEdits(d, Roots{Driver: d.root, Dev: d.root, HostDriver: "/run/nvidia/driver", HostDev: "/"}, "/hook").Edits(t.Context())
	must(t, err)
	if got := mounts(edits); strings.Contains(got, d.root) || !strings.Contains(got, "/run/nvidia/driver/usr/bin/nvidia-smi on /usr/bin/nvidia-smi") {
		t.Errorf("mounts:\n%s", got)
	}
}

func TestDriverEditsAreMadeOncePerDriver(t *testing.T) {
	d := newFakeDriver(t)
	source := NewDriverEdits(d, Roots{Driver: d.root, Dev: d.root}, "/hook")
	get := func() *specs.ContainerEdits {
		t.Helper()
		edits, err := source.Edits(t.Context())
		must(t, err)
		return edits
	}
	first := get()
	if get() != first {
		t.Error("made again although the driver is the same")
	}
	d.install(t, "580.1.2")
	upgraded := get()
	if got := mounts(upgraded); !strings.Contains(got, "libcuda.so.580.1.2") {
		t.Errorf("after a driver upgrade the mounts are still\n%s", got)
	}
	d.node(t, "nvidia-modeset")
	withNode := get()
	if withNode == upgraded {
		t.Error("not made again although nvidia-modeset has been loaded since")
	}
	must(t, os.Remove(filepath.Join(d.root, "usr/bin/nvidia-smi")))
	if get() != withNode {
		t.Error("made again although the driver's libraries are where they were")
	}
	must(t, os.RemoveAll(filepath.Join(d.root, "usr")))
	if _, err := source.Edits(t.Context()); !errors.Is(err, gpu.ErrNotReady) {
		t.Errorf("without the driver's files: %v, want %v", err, gpu.ErrNotReady)
	}
	d.install(t, "580.1.2")
	get()
}

func TestWithoutADriverThereAreNoEditsYet(t *testing.T) {
	unloaded := newFakeDriver(t)
	unloaded.err = fmt.Errorf("read the driver version: %w", gpu.ErrNotReady)
	elsewhere := newFakeDriver(t)
	elsewhere.version = "1.2.3"
	for name, d := range map[string]*fakeDriver{"not loaded": unloaded, "files of another version": elsewhere} {
		t.Run(name, func(t *testing.T) {
			_, err := NewDriverEdits(d, Roots{Driver: d.root, Dev: d.root}, "/hook").Edits(t.Context())
			if !errors.Is(err, gpu.ErrNotReady) {
				t.Errorf("got %v, want %v", err, gpu.ErrNotReady)
			}
		})
	}
}

func TestWithoutANodeThatCUDANeedsThereAreNoEdits(t *testing.T) {
	for node, remedy := range map[string]string{"nvidiactl": "nvidia-smi", "nvidia-uvm": "nvidia-modprobe -u -c 0"} {
		t.Run(node, func(t *testing.T) {
			d := newFakeDriver(t)
			source := NewDriverEdits(d, Roots{Driver: d.root, Dev: d.root}, "/hook")
			if _, err := source.Edits(t.Context()); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(d.root, "dev", node)
			must(t, os.Remove(path))
			_, err := source.Edits(t.Context())
			if !errors.Is(err, gpu.ErrNotReady) || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), remedy) {
				t.Errorf("error %v, want %v with the node and %q", err, gpu.ErrNotReady, remedy)
			}
			// The kubelet and runtimes make folders of the paths that they mount.
			must(t, os.Mkdir(path, 0o755))
			if _, err := source.Edits(t.Context()); !errors.Is(err, gpu.ErrNotReady) || !strings.Contains(err.Error(), "folder") {
				t.Errorf("a folder in its place: error %v, want %v", err, gpu.ErrNotReady)
			}
			must(t, os.Remove(path))
			d.node(t, node)
			if _, err := source.Edits(t.Context()); err != nil {
				t.Errorf("once it is made: %v", err)
			}
		})
	}
}

// hangingDriver does not tell its version before the context of the caller ends.
type hangingDriver struct{}

func (hangingDriver) DriverVersion(ctx context.Context) (string, error) {
	<-ctx.Done()
	return "", fmt.Errorf("read the driver version: %w: %w", gpu.ErrTimeout, context.Cause(ctx))
}

func TestACallerLeavesWhileTheEditsAreGenerated(t *testing.T) {
	d := newFakeDriver(t)
	source := NewDriverEdits(d, Roots{Driver: d.root, Dev: d.root}, "/hook")
	// A generation that hangs, as on a file system that does.
	slow := &generation{done: make(chan struct{})}
	nodes, err := source.stateOfNodes()
	must(t, err)
	slow.fingerprint, source.last = d.version+nodes, slow
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := source.Edits(ctx); !errors.Is(err, gpu.ErrTimeout) || !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want %v", err, gpu.ErrTimeout)
	}
	// The one who stays gets them.
	slow.edits = &specs.ContainerEdits{}
	close(slow.done)
	if edits, err := source.Edits(t.Context()); err != nil || edits != slow.edits {
		t.Errorf("got %v, %v, want the edits", edits, err)
	}
}

func TestOneCallerThatWaitsForTheDriverKeepsNoOtherFromLeaving(t *testing.T) {
	source := NewDriverEdits(hangingDriver{}, Roots{Driver: t.TempDir()}, "/hook")
	first, stop := context.WithCancel(t.Context())
	gone := make(chan error)
	go func() {
		_, err := source.Edits(first)
		gone <- err
	}()
	second, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := source.Edits(second); !errors.Is(err, gpu.ErrTimeout) {
		t.Errorf("error %v, want %v", err, gpu.ErrTimeout)
	}
	stop()
	if err := <-gone; !errors.Is(err, gpu.ErrTimeout) {
		t.Errorf("error %v, want %v", err, gpu.ErrTimeout)
	}
}

func TestNVCDIGetsTheDriversVersionAndNothingElseOfNVML(t *testing.T) {
	lib := versionOnly{version: "570.86.15"}
	defer func() {
		if recover() == nil {
			t.Error("another call does not panic")
		}
	}()
	_, _ = lib.DeviceGetCount()
}

// An installation in a folder of its own has its programs there. Those of the system's folders can
// be scripts that start them, as on a machine where libcuda.so is in /usr/local/nvidia/lib64.
func TestTheProgramsNextToTheLibraryAreMounted(t *testing.T) {
	root := t.TempDir()
	for _, path := range []string{"usr/bin/nvidia-smi", "usr/bin/nvidia-debugdump", "usr/local/nvidia/bin/nvidia-smi", "usr/local/nvidia/lib64/libcuda.so.580.159.04"} {
		path = filepath.Join(root, path)
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must(t, os.WriteFile(path, nil, 0o755))
	}
	edits := &specs.ContainerEdits{Mounts: []*specs.Mount{
		{HostPath: root + "/usr/bin/nvidia-smi", ContainerPath: "/usr/bin/nvidia-smi"},
		{HostPath: root + "/usr/bin/nvidia-debugdump", ContainerPath: "/usr/bin/nvidia-debugdump"},
		{HostPath: root + "/usr/local/nvidia/lib64/libcuda.so.580.159.04", ContainerPath: "/usr/local/nvidia/lib64/libcuda.so.580.159.04"},
	}}
	usePrograms(edits.Mounts, edits.Mounts[2].HostPath)
	want := root + "/usr/local/nvidia/bin/nvidia-smi on /usr/bin/nvidia-smi\n" +
		root + "/usr/bin/nvidia-debugdump on /usr/bin/nvidia-debugdump\n" +
		root + "/usr/local/nvidia/lib64/libcuda.so.580.159.04 on /usr/local/nvidia/lib64/libcuda.so.580.159.04\n"
	require.Same(t, "mounts", want, mounts(edits))
}

func TestFilesThatTheDriverLacksAreOneLineOfTheLog(t *testing.T) {
	d := newFakeDriver(t)
	for verbosity, want := range map[int]int{0: 2, 3: 2} {
		var log bytes.Buffer
		logger := textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&log), textlogger.Verbosity(verbosity)))
		if _, err := NewDriverEdits(d, Roots{Driver: d.root, Dev: d.root}, "/usr/bin/nvidia-cdi-hook").Edits(klog.NewContext(t.Context(), logger)); err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSpace(log.String()), "\n")
		if len(lines) != want || !strings.Contains(lines[0], "The driver has not all files that it can have") || !strings.Contains(lines[1], "Generated the driver's CDI edits") {
			t.Errorf("verbosity %d: %d lines, want %d:\n%s", verbosity, len(lines), want, log.String())
		}
	}
}
