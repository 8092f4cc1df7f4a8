// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// standInOnly skips tests of the check itself on a machine with GPUs. They need
// gpu-sim, which is not installed there.
func standInOnly(t *testing.T) {
	t.Helper()
	if *hardware == "nvml" {
		t.Skip("of the simulator, and -hardware=nvml asks for this machine")
	}
}

// onlyDriver is a root with a simulated driver's programs in bin and its libraries
// in lib64. GKE has such a root. As the real daemon, its own finds the server by
// PATH and the libraries by LD_LIBRARY_PATH.
func onlyDriver(t *testing.T, simulated gpu.DriverRoot) gpu.DriverRoot {
	t.Helper()
	root := t.TempDir()
	daemon := fmt.Sprintf(`#!/bin/sh
command -v nvidia-cuda-mps-server >/dev/null || { echo "no nvidia-cuda-mps-server in $PATH"; exit 1; }
case ":$LD_LIBRARY_PATH:" in *":%s/lib64:"*) ;; *) echo "no lib64 in $LD_LIBRARY_PATH"; exit 1;; esac
exec '%s/usr/bin/nvidia-cuda-mps-control' "$@"
`, root, simulated)
	for path, script := range map[string]string{"bin/nvidia-cuda-mps-control": daemon, "bin/nvidia-cuda-mps-server": "#!/bin/sh\n", "lib64/libcuda.so.1": ""} {
		path = filepath.Join(root, path)
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must(t, os.WriteFile(path, []byte(script), 0o755))
	}
	return gpu.DriverRoot(root)
}

func TestMPSWithARootThatHoldsNothingButTheDriver(t *testing.T) {
	standInOnly(t)
	m := simulate(t, load(t, "t4"))
	m.driverRoot = onlyDriver(t, m.driverRoot)
	targets, why := m.mpsTargets(t)
	if len(targets) != 1 {
		t.Fatalf("got %+v, %q, want one GPU", targets, why)
	}
	checkMPSOn(t, m, targets[0])
}

// The usual container with a GPU is root and may mount nothing.
func TestMPSIsCheckedWithoutThePermissionToMount(t *testing.T) {
	standInOnly(t)
	self := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestHardware$/^MPS", "-test.v", "-hardware=sim:t4")
	type result struct {
		out []byte
		err error
	}
	done := make(chan result)
	go func() {
		// A process has the bounds of the thread that starts it. The thread ends
		// with its goroutine, as it is never unlocked.
		runtime.LockOSThread()
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, unix.CAP_SYS_ADMIN, 0, 0, 0); err != nil && os.Geteuid() == 0 {
			done <- result{err: err}
			return
		}
		out, err := self.CombinedOutput()
		done <- result{out, err}
	}()
	got := <-done
	if got.err != nil {
		t.Fatalf("%v:\n%s", got.err, got.out)
	}
	for _, want := range []string{"NOT CHECKED", "--- PASS: TestHardware/MPS_holds_clients_to_their_limits/gpu-18-00/a_client_that_drops_the_variables"} {
		if !strings.Contains(string(got.out), want) {
			t.Errorf("no %q in\n%s", want, got.out)
		}
	}
}
