// SPDX-License-Identifier: Apache-2.0

package supervisor_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/simulator/mpssim"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

const shmSize = 16 << 20

// otherNamespace is a mount namespace besides that of the test: its file, and
// what its root is in the test's.
func otherNamespace(t *testing.T) (namespace, root string) {
	t.Helper()
	there := exec.CommandContext(t.Context(), "sleep", "1000")
	there.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	must(t, there.Start())
	t.Cleanup(func() { _ = there.Wait() }) // it is killed with the test's context
	return fmt.Sprintf("/proc/%d/ns/mnt", there.Process.Pid), fmt.Sprintf("/proc/%d/root", there.Process.Pid)
}

// mounted returns the mounts below the world's folder for a process with the root.
func (w *world) mounted(root string) []string {
	w.t.Helper()
	table := "/proc/self/mountinfo"
	if root != "" {
		table = filepath.Join(filepath.Dir(root), "mountinfo")
	}
	data, err := os.ReadFile(table)
	must(w.t, err)
	var lines []string
	for line := range strings.Lines(string(data)) {
		if strings.Contains(line, w.dir) {
			lines = append(lines, line)
		}
	}
	return lines
}

// As root, a daemon's clients have separate shared memory. They cannot fill more than
// it. Without root nothing can be mounted, and the error says so.
func TestADaemonHasAShmOfItsOwn(t *testing.T) {
	for name, other := range map[string]bool{"in the supervisor's mounts": false, "in those of another namespace": true} {
		t.Run(name, func(t *testing.T) {
			w, sim := newSimWorld(t)
			devices, err := sim.ComputeDevices()
			must(t, err)
			root := ""
			w.options.HostShm, w.options.ShmSize = false, shmSize
			if other && os.Geteuid() == 0 {
				w.options.MountNamespace, root = otherNamespace(t)
			}
			w.start()
			dirs, err := w.client.EnsureMPS(t.Context(), gpu.MPSDaemon{Name: "gpu-1b-00", Devices: []string{devices[0].UUID}})
			if os.Geteuid() != 0 {
				require.Error(t, "error", err, gpu.ErrPermission, "--host-shm")
				return
			}
			must(t, err)
			shm := root + dirs.Shm
			if info, err := os.Stat(shm); err != nil || info.Mode() != os.ModeDir|os.ModeSticky|0o777 {
				t.Errorf("%s has mode %v (%v), want 1777", shm, info.Mode(), err)
			}
			var of unix.Statfs_t
			must(t, unix.Statfs(shm, &of))
			const flags = unix.ST_NOSUID | unix.ST_NODEV | unix.ST_NOEXEC
			if size := int64(of.Blocks) * of.Bsize; of.Type != unix.TMPFS_MAGIC || size != shmSize || of.Flags&flags != flags {
				t.Errorf("%s is of type %#x, %d bytes, flags %#x; want a tmpfs of %d bytes, flags %#x", shm, of.Type, size, of.Flags, shmSize, flags)
			}
			var output bytes.Buffer
			if err := mpssim.Control(t.Context(), root+dirs.Pipe, strings.NewReader("start_server -uid 0\n"), &output); err != nil || output.Len() > 0 {
				t.Fatalf("start a server: %v %q", err, &output)
			}
			file := fmt.Sprintf("cuda.mps.%d", w.daemon().Servers[0].PID)
			if _, err := os.Stat(filepath.Join(shm, file)); err != nil {
				t.Error(err)
			}
			if _, err := os.Stat(filepath.Join("/dev/shm", file)); err == nil {
				t.Errorf("/dev/shm/%s is there, want it in the daemon's own folder only", file)
			}
			require.Error(t, "one who writes all of it", os.WriteFile(filepath.Join(shm, "large"), make([]byte, shmSize), 0o600), unix.ENOSPC)
			must(t, w.client.StopMPS(t.Context(), "gpu-1b-00"))
			if got := append(w.mounted(root), w.mounted("")...); got != nil {
				t.Errorf("still mounted: %q", got)
			}
			if got := w.left(); got != nil {
				t.Errorf("folders %q are left, want none", got)
			}
		})
	}
}

// The daemon's namespace alone has its folder as /dev/shm; that takes root too.
func TestAPlainShmIsMountedNowhere(t *testing.T) {
	w, sim := newSimWorld(t)
	devices, err := sim.ComputeDevices()
	must(t, err)
	w.options.HostShm, w.options.PlainShm = false, true
	w.start()
	dirs, err := w.client.EnsureMPS(t.Context(), gpu.MPSDaemon{Name: "gpu-1b-00", Devices: []string{devices[0].UUID}})
	if os.Geteuid() != 0 {
		require.Error(t, "error", err, gpu.ErrPermission)
		return
	}
	must(t, err)
	if got := w.mounted(""); got != nil {
		t.Errorf("mounted: %q", got)
	}
	if info, err := os.Stat(dirs.Shm); err != nil || info.Mode() != os.ModeDir|os.ModeSticky|0o777 {
		t.Errorf("%s has mode %v (%v), want 1777", dirs.Shm, info.Mode(), err)
	}
}

func TestAShmStaysAsLongAsItsDaemonIsWanted(t *testing.T) {
	w := newMountWorld(t)
	w.start()
	dirs := w.ensure(shareOfA)
	file := filepath.Join(dirs.Shm, "of-a-client")
	must(t, os.WriteFile(file, nil, 0o600))
	w.restart()
	w.until("it is adopted", func() bool { return w.daemon().State == gpu.MPSReady })
	w.replaceDaemon()
	if _, err := os.Stat(file); err != nil {
		t.Error(err)
	}
	if got := w.mounted(""); len(got) != 2 {
		t.Errorf("mounted: %q, want one for the pipes and one for the shm", got)
	}
}

func TestAShmThatWasLeftBehindGoesWithTheStop(t *testing.T) {
	for name, tc := range map[string]struct {
		gone    string // of the daemon's folder
		hostShm bool   // from now on
	}{
		"by a start that was cut short":        {gone: "pipe"},
		"by a stop that was cut short":         {gone: "daemon.json"},
		"by one with other options than now":   {hostShm: true},
		"by a daemon that has ended meanwhile": {},
	} {
		t.Run(name, func(t *testing.T) {
			w := newMountWorld(t)
			w.start()
			w.ensure(shareOfA)
			pid := w.daemon().PID
			w.stop()
			must(t, syscall.Kill(pid, syscall.SIGKILL))
			if gone := filepath.Join(w.options.RunDir, "daemons/gpu-1a-00", tc.gone); tc.gone != "" {
				if err := unix.Unmount(gone, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) {
					t.Fatal(err)
				}
				must(t, os.RemoveAll(gone))
			}
			w.fault("dead")
			w.options.HostShm = tc.hostShm
			w.start()
			must(t, w.client.StopMPS(t.Context(), "gpu-1a-00"))
			if got := w.mounted(""); got != nil {
				t.Errorf("still mounted: %q", got)
			}
			if got := w.left(); got != nil {
				t.Errorf("folders %q are left, want none", got)
			}
		})
	}
}

// Every daemon's mounts begin as a copy of the node's, with the mounts of other
// daemons. A copy would keep all files that clients have left there.
func TestAShmOfAStoppedDaemonIsInNobodysMounts(t *testing.T) {
	w := newMountWorld(t)
	w.start()
	w.ensure(shareOfA)
	w.ensure(gpu.MPSDaemon{Name: "gpu-1b-00", Devices: []string{uuidB}})
	second := fmt.Sprintf("/proc/%d/root", w.daemons()[1].PID)
	shms := func() []string {
		return slices.DeleteFunc(w.mounted(second), func(line string) bool { return !strings.Contains(line, "/shm ") })
	}
	if got := shms(); len(got) != 2 {
		t.Fatalf("the second daemon has %q, want the folders of both", got)
	}
	must(t, w.client.StopMPS(t.Context(), "gpu-1a-00"))
	if got := shms(); len(got) != 1 || strings.Contains(got[0], "gpu-1a-00") {
		t.Errorf("the second daemon has %q, want its own", got)
	}
}

// A container that runs as root can write among its daemon's pipes.
func TestAContainerThatFillsThePipesHarmsItsOwnDaemonOnly(t *testing.T) {
	for name, other := range map[string]bool{"in the supervisor's mounts": false, "in those of another namespace": true} {
		t.Run(name, func(t *testing.T) {
			w := newMountWorld(t)
			mountRun(t, w.options.RunDir)
			root := ""
			if other {
				w.options.MountNamespace, root = otherNamespace(t)
			}
			w.start()
			dirs := w.ensure(shareOfA)
			for _, dir := range []string{root + dirs.Pipe, root + dirs.Shm} {
				for i := 0; ; i++ {
					err := os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), nil, 0o600)
					if errors.Is(err, unix.ENOSPC) {
						break
					}
					if err != nil || i == 10_000 {
						t.Fatalf("%s takes %d files (%v), want it to be full before", dir, i, err)
					}
				}
				// There is room for a file now, and none for that number of bytes.
				full := filepath.Join(dir, "0")
				require.Error(t, fmt.Sprintf("writing %d bytes to %s", 2*shmSize, full), os.WriteFile(full, make([]byte, 2*shmSize), 0o600), unix.ENOSPC)
			}
			larger := shareOfA
			larger.ThreadPercentage = 50
			w.ensure(larger)
			w.ensure(gpu.MPSDaemon{Name: "gpu-1b-00", Devices: []string{uuidB}})
			must(t, w.client.StopMPS(t.Context(), "gpu-1b-00"))
			// A restarted daemon finds space again.
			w.replaceDaemon()
			w.stopAll()
			w.stop()
		})
	}
}

// mountRun mounts a node's /run, which is a tmpfs.
func mountRun(t *testing.T, dir string) {
	t.Helper()
	must(t, errors.Join(os.Mkdir(dir, 0o711), unix.Mount("run", dir, "tmpfs", 0, "size=8M,nr_inodes=5000")))
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
}

// A supervisor before this one has mounted nothing on the pipes, and containers
// have that folder.
func TestPipesThatContainersHaveStayWhereTheyAre(t *testing.T) {
	w := newMountWorld(t)
	w.options.PlainShm = true
	w.start()
	dirs := w.ensure(shareOfA)
	w.stop()
	w.options.PlainShm = false
	container, err := os.Open(dirs.Pipe)
	must(t, err)
	defer func() { _ = container.Close() }()
	w.start()
	w.until("it is adopted", func() bool { return w.daemon().State == gpu.MPSReady })
	w.replaceDaemon()
	if _, err := os.Stat(fmt.Sprintf("/proc/self/fd/%d/control", container.Fd())); err != nil {
		t.Errorf("a container sees no daemon any more: %v", err)
	}
}
