// SPDX-License-Identifier: Apache-2.0

package supervisor_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

// A container that runs as root can put links among the pipes while the daemon
// starts.
func TestADaemonWritesThroughNoLink(t *testing.T) {
	for name, other := range map[string]bool{"in the supervisor's mounts": false, "in those of another namespace": true} {
		t.Run(name, func(t *testing.T) {
			w := newMountWorld(t)
			if other {
				w.options.MountNamespace, _ = otherNamespace(t)
			}
			precious := filepath.Join(w.dir, "driver/precious")
			must(t, os.WriteFile(precious, []byte("of the node"), 0o600))
			w.fault("planted")
			w.start()
			require.Error(t, "error", errOf(w.client.EnsureMPS(t.Context(), shareOfA)), gpu.ErrNotReady, "too many levels of symbolic links")
			if got, err := os.ReadFile(precious); err != nil || string(got) != "of the node" {
				t.Errorf("the file holds %q (%v), want what it held before", got, err)
			}
		})
	}
}

// A container that runs as root can replace a daemon's socket by a link. The link can
// lead to the socket of a daemon of other claims.
func TestACommandReachesNoOtherDaemonThroughALink(t *testing.T) {
	for name, plain := range map[string]bool{"in a file system": false, "in a plain folder": true} {
		t.Run(name, func(t *testing.T) {
			w := newMountWorld(t)
			w.options.PlainShm = plain
			w.start()
			dirs := w.ensure(shareOfA)
			other := w.ensure(gpu.MPSDaemon{Name: "gpu-1b-00", Devices: []string{uuidB}})
			before := w.commands("gpu-1b-00")
			socket := filepath.Join(dirs.Pipe, "control")
			must(t, errors.Join(os.Remove(socket), os.Symlink(filepath.Join(other.Pipe, "control"), socket)))
			larger := shareOfA
			larger.ThreadPercentage = 50
			require.Error(t, "error", errOf(w.client.EnsureMPS(t.Context(), larger)), gpu.ErrNotReady, "too many levels of symbolic links")
			require.Same(t, "the other daemon received", before, w.commands("gpu-1b-00"))
		})
	}
}

// A container can also answer in the place of its daemon.
func TestTheAnswerOfADaemonIsBounded(t *testing.T) {
	for fault, says := range map[string]string{
		"endless": "it says more than 65536 bytes",
		"crowd":   "it says that it has 1000 servers",
	} {
		t.Run(fault, func(t *testing.T) {
			w := newWorld(t)
			w.start()
			w.ensure(shareOfA)
			w.fault(fault)
			if s := w.daemon(); s.State != gpu.MPSReady || !strings.Contains(s.Problem, says) {
				t.Errorf("the daemon is %s with the problem %q, want it to be ready and %q", s.State, s.Problem, says)
			}
			w.mend(fault)
			if s := w.daemon(); s.Problem != "" {
				t.Errorf("the daemon has the problem %q after all", s.Problem)
			}
		})
	}
}

// A volume that is unmounted while a daemon runs must be free to go.
func TestADaemonKeepsNoMountOfTheNode(t *testing.T) {
	w := newMountWorld(t)
	// Mounts are shared on a node with systemd, and need not be here.
	node, volume := filepath.Join(w.dir, "node"), filepath.Join(w.dir, "node/volume")
	must(t, os.Mkdir(node, 0o700))
	must(t, errors.Join(unix.Mount(node, node, "", unix.MS_BIND, ""), unix.Mount("", node, "", unix.MS_SHARED, "")))
	t.Cleanup(func() {
		if err := unix.Unmount(node, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	must(t, errors.Join(os.Mkdir(volume, 0o700), unix.Mount("volume", volume, "tmpfs", 0, "")))
	w.start()
	w.ensure(shareOfA)
	has := func() bool {
		table, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", w.daemon().PID))
		must(t, err)
		return strings.Contains(string(table), volume)
	}
	if !has() {
		t.Fatal("the daemon does not see the volume, so nothing was tried")
	}
	must(t, unix.Unmount(volume, 0))
	if has() {
		t.Error("the daemon keeps the volume")
	}
}
