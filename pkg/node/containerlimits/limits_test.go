// SPDX-License-Identifier: Apache-2.0

package containerlimits_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/node/cgroup"
	"github.com/gpu-dra/gpu-dra-driver/pkg/node/containerlimits"
	"github.com/gpu-dra/gpu-dra-driver/simulator/cgroup/cgrouptest"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

const (
	first  = "0000:1b:00.0"
	second = "0000:43:00.0"
	gibi   = 1 << 30
)

// container starts a process in a separate cgroup, and returns its limit.
func container(t *testing.T, address string, bytes uint64) containerlimits.Limit {
	t.Helper()
	folder := cgrouptest.New(t)
	cgrouptest.Process(t, folder)
	return limitOf(t, folder, address, bytes)
}

func limitOf(t *testing.T, folder, address string, bytes uint64) containerlimits.Limit {
	t.Helper()
	id, err := cgroup.Lookup(folder)
	must(t, err)
	return containerlimits.Limit{Cgroup: folder, ID: id, GPU: address, Bytes: bytes}
}

func newFolder(t *testing.T, devices ...string) containerlimits.Folder {
	t.Helper()
	f := containerlimits.Folder(filepath.Join(t.TempDir(), "limits"))
	for _, device := range devices {
		must(t, f.Open(device))
	}
	return f
}

func TestAContainerThatUsesSeveralDevicesOfAGPUGetsTheirSum(t *testing.T) {
	f := newFolder(t, "a", "b", "c")
	l := container(t, first, 2*gibi)
	for _, c := range []struct {
		device string
		gpu    string
		want   uint64
	}{
		{"a", first, 2 * gibi},
		{"a", first, 2 * gibi}, // a runtime may run a hook twice
		{"b", first, 4 * gibi},
		{"c", second, 2 * gibi},
	} {
		l.GPU = c.gpu
		if got, err := f.Admit(c.device, l, 1); err != nil || got != c.want {
			t.Errorf("device %s on %s: %d bytes, %v; want %d", c.device, c.gpu, got, err, c.want)
		}
	}
}

// The path of a cgroup can be used again. Its ID cannot.
func TestAContainerAtThePathOfOneThatHasEndedIsAnother(t *testing.T) {
	f := newFolder(t, "a")
	folder := cgrouptest.New(t)
	before := limitOf(t, folder, first, gibi)
	_, err := f.Admit("a", before, 1)
	must(t, err)
	must(t, errors.Join(os.Remove(folder), os.Mkdir(folder, 0o755)))
	cgrouptest.Process(t, folder)
	now := limitOf(t, folder, first, 2*gibi)
	if used, err := f.Containers("a"); err != nil || len(used) != 0 {
		t.Errorf("%v, %v use the device before the container at the path does", used, err)
	}
	if got, err := f.Admit("a", now, 1); err != nil || got != 2*gibi {
		t.Errorf("%d bytes, %v; want 2Gi", got, err)
	}
	if all, err := f.Admitted("a"); err != nil || !cmp.Equal([]containerlimits.Limit{now}, all) {
		t.Errorf("%v, %v; want %v", all, err, now)
	}
}

func TestNoMoreContainersUseADeviceThanItIsFor(t *testing.T) {
	f := newFolder(t, "a")
	ended := cgrouptest.New(t) // without processes
	for range 2 {
		if _, err := f.Admit("a", container(t, first, gibi), 2); err != nil {
			t.Error(err)
		}
	}
	if _, err := f.Admit("a", container(t, first, gibi), 2); !errors.Is(err, gpu.ErrInUse) {
		t.Errorf("a third container: %v, want %v", err, gpu.ErrInUse)
	}
	if got, err := f.Containers("a"); err != nil || len(got) != 2 {
		t.Errorf("the device has %v, %v; want two containers", got, err)
	}
	other := newFolder(t, "a")
	_, err := other.Admit("a", limitOf(t, ended, first, gibi), 1)
	must(t, err)
	if _, err := other.Admit("a", container(t, first, gibi), 1); err != nil {
		t.Errorf("a container after one that has ended: %v", err)
	}
}

func TestContainersThatStartTogetherAreCounted(t *testing.T) {
	f := newFolder(t, "a")
	var admitted sync.Map
	var all sync.WaitGroup
	for i := range 8 {
		l := container(t, first, gibi)
		all.Go(func() {
			_, err := f.Admit("a", l, 3)
			admitted.Store(i, err == nil)
		})
	}
	all.Wait()
	n := 0
	admitted.Range(func(_, ok any) bool {
		if ok.(bool) {
			n++
		}
		return true
	})
	if n != 3 {
		t.Errorf("%d containers were admitted, want 3", n)
	}
}

// The hooks of two containers are two processes: each reads the other containers and writes
// its own, and neither may read between them.
func TestNoOtherProcessCountsContainersMeanwhile(t *testing.T) {
	f := newFolder(t, "a")
	l := container(t, first, gibi)
	file := filepath.Join(string(f), "a", "1")
	must(t, unix.Mkfifo(file, 0o600))
	admitted := make(chan error, 1)
	go func() {
		_, err := f.Admit("a", l, 1)
		admitted <- err
	}()
	// A pipe opens when its reader does: from here on Admit counts the containers.
	pipe, err := os.OpenFile(file, os.O_WRONLY, 0)
	must(t, err)
	folder, err := os.Open(string(f))
	must(t, err)
	defer folder.Close() //nolint:errcheck // nothing was written
	require.Error(t, "another process that reads the containers meanwhile", unix.Flock(int(folder.Fd()), unix.LOCK_SH|unix.LOCK_NB), unix.EWOULDBLOCK)
	_, err = pipe.WriteString("{}")
	must(t, err)
	must(t, pipe.Close())
	if err := <-admitted; err != nil {
		t.Error(err)
	}
}

func TestOnlyPreparedDevicesAdmitContainers(t *testing.T) {
	f := newFolder(t, "a", "b")
	l := container(t, first, gibi)
	must(t, f.Close("a"))
	if err := f.Close("a"); err != nil {
		t.Errorf("close again: %v", err)
	}
	_, err := f.Admit("a", l, 1)
	require.Error(t, "a closed device", err, gpu.ErrNotFound)
	for _, name := range []string{"", "..", "../b", "b/../a", ".hidden"} {
		_, err := f.Admit(name, l, 1)
		require.Error(t, fmt.Sprintf("device %q", name), err, gpu.ErrInvalid)
		require.Error(t, fmt.Sprintf("close %q", name), f.Close(name), gpu.ErrInvalid)
	}
	devices, err := f.Devices()
	if diff := cmp.Diff([]string{"b"}, devices); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

func TestAContainerThatLeavesMakesRoom(t *testing.T) {
	f := newFolder(t, "a")
	l := container(t, first, gibi)
	_, err := f.Admit("a", l, 1)
	must(t, err)
	for range 2 {
		must(t, f.Leave("a", l))
	}
	if _, err := f.Admit("a", container(t, first, gibi), 1); err != nil {
		t.Error(err)
	}
}

func TestAnUnreadableFileHidesNoOtherContainer(t *testing.T) {
	f := newFolder(t, "a")
	l := container(t, first, gibi)
	_, err := f.Admit("a", l, 1)
	must(t, err)
	must(t, os.WriteFile(filepath.Join(string(f), "a", "0"), []byte("{"), 0o600))
	got, err := f.Containers("a")
	if diff := cmp.Diff([]containerlimits.Limit{l}, got); diff != "" || !errors.Is(err, gpu.ErrCorrupt) {
		t.Errorf("%v, want %v (-want +got):\n%s", err, gpu.ErrCorrupt, diff)
	}
}

func TestAnUnreadableFileAdmitsNoContainer(t *testing.T) {
	f := newFolder(t, "a")
	must(t, os.WriteFile(filepath.Join(string(f), "a", "1"), []byte("{"), 0o600))
	_, err := f.Admit("a", container(t, first, gibi), 1)
	require.Error(t, "Admit", err, gpu.ErrCorrupt)
	if got, err := f.Containers("a"); len(got) > 0 || !errors.Is(err, gpu.ErrCorrupt) {
		t.Errorf("the device has %v, %v; want no container and %v", got, err, gpu.ErrCorrupt)
	}
}

// A program that does not see the cgroups of containers finds no running ones.
func TestAdmittedContainersAreListedWithoutTheirCgroups(t *testing.T) {
	f := newFolder(t, "a")
	l := containerlimits.Limit{Cgroup: filepath.Join(t.TempDir(), "not-here"), ID: 7, GPU: first, Bytes: gibi}
	_, err := f.Admit("a", l, 1)
	must(t, err)
	if all, err := f.Containers("a"); err != nil || len(all) != 0 {
		t.Errorf("%v, %v run, want none", all, err)
	}
	if all, err := f.Admitted("a"); err != nil || len(all) != 1 || all[0] != l {
		t.Errorf("%v, %v are admitted, want %v", all, err, l)
	}
	_, err = f.Admitted("b")
	require.Error(t, "a device without a folder", err, gpu.ErrNotFound)
}

var must = require.NoError
