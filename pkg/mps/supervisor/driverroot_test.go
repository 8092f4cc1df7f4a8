// SPDX-License-Identifier: Apache-2.0

package supervisor_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// withDriverMounted is a mount namespace in which, and nowhere else, a folder is
// mounted on the driver root.
func withDriverMounted(t *testing.T, driver, root string) (namespace string) {
	t.Helper()
	there := exec.CommandContext(t.Context(), "sh", "-ec", `mount --make-rprivate /; mount --bind "$1" "$2"; echo mounted; exec sleep 1000`, "sh", driver, root)
	there.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	there.Stderr = os.Stderr
	out, err := there.StdoutPipe()
	must(t, err)
	must(t, there.Start())
	t.Cleanup(func() { _ = there.Wait() }) // it is killed with the test's context
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatalf("mount the driver: %q, %v", line, err)
	}
	return fmt.Sprintf("/proc/%d/ns/mnt", there.Process.Pid)
}

// GKE's root has bin and lib64 and nothing else. A supervisor in a container sees
// nothing of it.
func TestADaemonIsStartedFromARootThatHoldsNothingButTheDriver(t *testing.T) {
	for name, mounted := range map[string]bool{"that the supervisor sees": false, "that is in the mounts of another namespace": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			driver := filepath.Join(w.dir, "driver")
			must(t, os.Rename(filepath.Join(driver, "usr/bin"), filepath.Join(driver, "bin")))
			if mounted {
				if os.Geteuid() != 0 {
					t.Skip("to mount takes root")
				}
				root := filepath.Join(w.dir, "root")
				must(t, os.Mkdir(root, 0o755))
				w.options.Driver = gpu.DriverRoot(root)
				w.options.MountNamespace = withDriverMounted(t, driver, root)
			}
			w.start()
			w.ensure(shareOfA)
			if s := w.daemon(); s.State != gpu.MPSReady {
				t.Errorf("daemon %+v, want it ready", s)
			}
			w.stopAll() // as long as the namespace is there
		})
	}
}
