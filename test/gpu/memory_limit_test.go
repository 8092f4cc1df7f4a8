// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
	"github.com/gpu-dra/gpu-dra-driver/pkg/node/cgroup"
	"github.com/gpu-dra/gpu-dra-driver/simulator/cgroup/cgrouptest"
	"github.com/gpu-dra/gpu-dra-driver/test/gpu/cuda"
)

// checkMemoryLimits makes the driver limit a new cgroup on an idle GPU, and removes
// the cgroup afterwards. It changes no setting of a GPU and of no other cgroup.
func checkMemoryLimits(t *testing.T, m *machine) {
	target, why := m.wholeTarget(t)
	if why != "" {
		t.Skipf("NOT RUN, and so nothing is known of memory limits here: %s", why)
	}
	m.unchanged(t, "memory limits", func() {
		folder := ownCgroup(t)
		if why := checkMemoryLimitOf(t, m, target, folder); why != "" {
			t.Skipf("NOT RUN, and so nothing is known of memory limits here: %s", why)
		}
		if err := os.Remove(folder); err != nil {
			t.Error(err)
		}
	})
}

// wholeTarget returns an idle GPU that is not in MIG mode. If there is none, it returns
// the reason.
func (m *machine) wholeTarget(t *testing.T) (target mpsTarget, why string) {
	t.Helper()
	targets, why := m.mpsTargets(t)
	for _, target := range targets {
		if name, err := kind.Parse(target.Name); err == nil && name.Kind == kind.GPU {
			return target, ""
		}
	}
	if len(targets) > 0 {
		why = "every idle GPU is in MIG mode"
	}
	return mpsTarget{}, why
}

// ownCgroup makes a cgroup of version 2 and removes it when the test ends. It skips the
// test if that is not possible here.
func ownCgroup(t *testing.T) string {
	t.Helper()
	root, err := cgroup.Root()
	if errors.Is(err, gpu.ErrNotSupported) {
		t.Skipf("NOT RUN, and so nothing is known of memory limits here: %v", err)
	}
	must(t, err)
	folder, err := os.MkdirTemp(root, "gpu-conformance-") //nolint:usetesting // a cgroup, not a folder on a disk
	if errors.Is(err, os.ErrPermission) || errors.Is(err, unix.EROFS) {
		t.Skipf("NOT RUN, and so nothing is known of memory limits here: making a cgroup takes root, and cgroups that can be written: %v", err)
	}
	must(t, err)
	t.Cleanup(func() {
		if err := os.Remove(folder); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Error(err)
		}
	})
	return folder
}

// checkMemoryLimitOf checks a limit of the cgroup. It returns why the driver cannot limit
// it here; "" if it was checked.
func checkMemoryLimitOf(t *testing.T, m *machine, target mpsTarget, folder string) (why string) {
	name, err := kind.Parse(target.Name)
	must(t, err)
	limit := target.ceiling
	err = m.library.SetMemoryLimit(t.Context(), name.Address, folder, limit)
	if why := notHere(err); why != "" {
		return why
	}
	must(t, err)
	if got, err := m.library.MemoryLimit(t.Context(), name.Address, folder); err != nil || got.Bytes != limit {
		t.Errorf("the limit reads as %+v, %v; want %d bytes", got, err, limit)
	}
	if err := m.library.SetMemoryLimit(t.Context(), name.Address, t.TempDir(), limit); err == nil {
		t.Error("a folder that is not a cgroup has a limit")
	}

	inside := m.runWithoutMPS(t, target, folder)
	t.Logf("in the cgroup: %d MiB in total, %d MiB free, %d MiB taken of %d MiB", inside.TotalBytes>>20, inside.FreeBytes>>20, inside.TakenBytes>>20, limit>>20)
	if inside.Refusal != mpsOutOfMemory || inside.TakenBytes > limit {
		t.Errorf("in the cgroup a process gets %d MiB and then CUDA error %d, want no more than %d MiB and then error %d", inside.TakenBytes>>20, inside.Refusal, limit>>20, mpsOutOfMemory)
	}
	if inside.TakenBytes < limit/2 {
		t.Errorf("in the cgroup a process gets %d MiB: a context does not cost half of %d MiB", inside.TakenBytes>>20, limit>>20)
	}
	if outside := m.runWithoutMPS(t, target, ""); outside.TakenBytes <= limit {
		t.Errorf("a process that is not in the cgroup gets %d MiB and then CUDA error %d, want more than %d MiB", outside.TakenBytes>>20, outside.Refusal, limit>>20)
	}

	must(t, m.library.SetMemoryLimit(t.Context(), name.Address, folder, gpu.NoMemoryLimit))
	if got, err := m.library.MemoryLimit(t.Context(), name.Address, folder); err != nil || got.Bytes != gpu.NoMemoryLimit {
		t.Errorf("the limit reads as %+v, %v after it was removed", got, err)
	}
	if free := m.runWithoutMPS(t, target, folder); free.TakenBytes <= limit {
		t.Errorf("after the limit was removed a process gets %d MiB, want more than %d MiB", free.TakenBytes>>20, limit>>20)
	}
	return ""
}

// notHere returns why memory limits cannot be set on this machine; "" if they can, or
// should.
func notHere(err error) string {
	for _, reason := range []error{gpu.ErrNotSupported, gpu.ErrPermission, gpu.ErrNotFound} {
		if errors.Is(err, reason) {
			return err.Error()
		}
	}
	return ""
}

// runWithoutMPS runs this binary as a process that computes on the target without MPS.
// The process is in the cgroup of the folder or, for "", in the cgroup of this
// process.
func (m *machine) runWithoutMPS(t *testing.T, target mpsTarget, folder string) cuda.Report {
	t.Helper()
	kind := m.client
	if kind == clientOfStandIn {
		kind = clientOfSimulator
	}
	attributes := &syscall.SysProcAttr{}
	if folder != "" {
		file, err := os.Open(folder)
		must(t, err)
		defer file.Close() //nolint:errcheck // a folder
		attributes.UseCgroupFD, attributes.CgroupFD = true, int(file.Fd())
	}
	return m.run(t, target, attributes,
		clientVariable+"="+kind, stateVariable+"="+m.state, "CUDA_VISIBLE_DEVICES="+target.Devices[0],
		// A daemon that runs on this machine is at another path.
		"CUDA_MPS_PIPE_DIRECTORY="+filepath.Join(t.TempDir(), "none"))
}

func TestMemoryLimitsOfASimulatedDriver(t *testing.T) {
	standInOnly(t)
	folder := cgrouptest.New(t) // skips the test where no cgroup can be made
	m := simulate(t, load(t, "dgx-h100-r615"))
	target, why := m.wholeTarget(t)
	if why == "" {
		why = checkMemoryLimitOf(t, m, target, folder)
	}
	if why != "" {
		t.Error(why)
	}
}

func TestMemoryLimitsThatCannotBeCheckedHaveAReason(t *testing.T) {
	for want, err := range map[string]error{
		"the driver is older": fmt.Errorf("limit: %w: the driver is older", gpu.ErrNotSupported),
		"not root":            fmt.Errorf("limit: %w: not root", gpu.ErrPermission),
		"dmem is not enabled": fmt.Errorf("limit: %w: dmem is not enabled", gpu.ErrNotFound),
	} {
		if got := notHere(err); !strings.Contains(got, want) {
			t.Errorf("%v: reason %q", err, got)
		}
	}
	for _, err := range []error{nil, gpu.ErrInvalid, gpu.ErrTimeout} {
		if got := notHere(err); got != "" {
			t.Errorf("%v: reason %q, want a failure", err, got)
		}
	}
	m := simulate(t, load(t, "t4"))
	m.node.GPUs = slices.Clone(m.node.GPUs)
	for i := range m.node.GPUs {
		m.node.GPUs[i].MIG.Enabled = true
	}
	if _, why := m.wholeTarget(t); why == "" {
		t.Error("a GPU in MIG mode is a target")
	}
}
