// SPDX-License-Identifier: Apache-2.0

package claim_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind/kindtest"
	"github.com/gpu-dra/gpu-dra-driver/pkg/share"
)

func TestWhatContainersGet(t *testing.T) {
	const mounts = "  /run/sup/%[1]s/pipe at /run/sup/%[1]s/pipe\n  /run/sup/%[1]s/shm at /dev/shm\n"
	first := fmt.Sprintf(mounts, "gpu-00-00")
	for name, c := range map[string]struct {
		pieces  []piece
		edits   string
		daemons string
	}{
		"a share": {
			[]piece{{device: "gpu-00-00", memory: "20Gi", compute: "30"}},
			"uid-c-gpu-00-00_share-c-0\n  CUDA_MPS_PIPE_DIRECTORY=/run/sup/gpu-00-00/pipe\n  CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=30\n  CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=19968M\n" + first,
			"gpu-00-00 of GPU-0=19968M, 30%\n",
		},
		"two shares of one GPU": {
			[]piece{{device: "gpu-00-00", memory: "20Gi", compute: "30"}, {device: "gpu-00-00", memory: "40Gi", config: config("ShareConfig", `"processes":2,"compute":"Burst"`)}},
			"uid-c-gpu-00-00_share-c-0\n  CUDA_MPS_PIPE_DIRECTORY=/run/sup/gpu-00-00/pipe\n  CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=30\n  CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=19968M\n" + first +
				"uid-c-gpu-00-00_share-c-1\n  CUDA_MPS_PIPE_DIRECTORY=/run/sup/gpu-00-00/pipe\n  CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=19968M\n" + first,
			"gpu-00-00 of GPU-0=19968M\n",
		},
		"a plain share": {
			[]piece{{device: "gpu-00-00", memory: "20Gi", config: config("ShareConfig", plain)}},
			"uid-c-gpu-00-00_share-c-0\n", "",
		},
		"a share of everything": {
			[]piece{{device: "gpu-00-00", memory: "80Gi", config: config("ShareConfig", "")}},
			"uid-c-gpu-00-00\n  CUDA_MPS_PIPE_DIRECTORY=/run/sup/gpu-00-00/pipe\n  CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=100\n  CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=81408M\n" + first,
			"gpu-00-00 of GPU-0=81408M, 100%\n",
		},
		"a whole GPU": {[]piece{{device: "gpu-00-00"}}, "uid-c-gpu-00-00\n", ""},
		"a whole GPU that processes share": {
			[]piece{{device: "gpu-00-00", config: config("GpuConfig", together)}},
			"uid-c-gpu-00-00\n  CUDA_MPS_PIPE_DIRECTORY=/run/sup/gpu-00-00/pipe\n" + first,
			"gpu-00-00 of GPU-0\n",
		},
		"two whole GPUs that processes share": {
			[]piece{
				{device: "gpu-01-00", request: "both", config: config("GpuConfig", `"sharing":{"strategy":"MPS","mps":{"threadPercentage":50,"memoryLimit":"10Gi","perDevice":[{"device":1,"memoryLimit":"5Gi"}]}}`)},
				{device: "gpu-00-00", request: "both"},
			},
			"uid-c-gpu-01-00\n  CUDA_MPS_PIPE_DIRECTORY=/run/sup/gpu-01-00/pipe\n  CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=50\n  CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=10240M,1=5120M\n" + fmt.Sprintf(mounts, "gpu-01-00") +
				"uid-c-gpu-00-00\n  CUDA_MPS_PIPE_DIRECTORY=/run/sup/gpu-01-00/pipe\n  CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=50\n  CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=10240M,1=5120M\n" + fmt.Sprintf(mounts, "gpu-01-00"),
			"gpu-01-00 of GPU-1=10240M,GPU-0=5120M, 50%\n",
		},
		"seats": {
			[]piece{{device: "gpu-00-00-seat", seats: 1}, {device: "gpu-00-00-seat", seats: 2, config: config("ShareConfig", `"processes":2`)}},
			"uid-c-gpu-00-00-seat_share-c-0\n  CUDA_MPS_PIPE_DIRECTORY=/run/sup/gpu-00-00/pipe\n  CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=25\n  CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=19968M\n" + first +
				"uid-c-gpu-00-00-seat_share-c-1\n  CUDA_MPS_PIPE_DIRECTORY=/run/sup/gpu-00-00/pipe\n  CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=25\n  CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=19968M\n" + first,
			"gpu-00-00 of GPU-0=19968M, 25%\n",
		},
		"time slices": {
			[]piece{{device: "gpu-00-00-ts"}, {device: "gpu-00-00-ts"}},
			"uid-c-gpu-00-00-ts_share-c-0\nuid-c-gpu-00-00-ts_share-c-1\n", "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newShareWorld(t, t.TempDir(), 2)
			m, all := w.start(), pieces("c", c.pieces...)
			devices, err := m.Prepare(once(), all)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.edits, w.edits(all)); diff != "" {
				t.Errorf("CDI (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(c.daemons, w.supervisor.String()); diff != "" {
				t.Errorf("daemons (-want +got):\n%s", diff)
			}
			// Preparing again, in this process or in one of another release with
			// other flags, does not change a running claim.
			before := w.left(m)
			w.options = func(o *claim.Options) { o.ContextMemory = 4 << 30 }
			w.shares.Smallest = 1 << 40
			m, _ = w.restart(t.Context())
			again, err := m.Prepare(once(), all)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(devices, again); diff != "" {
				t.Errorf("prepared again (-first +again):\n%s", diff)
			}
			if diff := cmp.Diff(before+c.edits, w.left(m)+w.edits(all)); diff != "" {
				t.Errorf("prepared again (-first +again):\n%s", diff)
			}
			must(t, m.Unprepare(once(), all.UID))
			if got := w.left(m); got != "" {
				t.Errorf("left behind:\n%s", got)
			}
		})
	}
}

// One configuration may apply to several requests and name the GPUs of all.
func TestLimitsForGPUsByTheirUUIDs(t *testing.T) {
	w := newShareWorld(t, t.TempDir(), 2)
	realUUIDs(w)
	c := pieces("c", piece{device: "gpu-00-00"}, piece{device: "gpu-01-00"})
	c.Status.Allocation.Devices.Config = []resourceapi.DeviceAllocationConfiguration{
		opaque(resourceapi.AllocationConfigSourceClaim, driver, mpsLimits(uuidOf(0), "5Gi", uuidOf(1), "7Gi"), "gpu-0", "gpu-1"),
	}
	if _, err := w.start().Prepare(once(), c); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff("gpu-00-00 of "+uuidOf(0)+"=5120M\ngpu-01-00 of "+uuidOf(1)+"=7168M\n", w.supervisor.String()); diff != "" {
		t.Errorf("daemons (-want +got):\n%s", diff)
	}
}

func TestAClaimForSeveralUsersWhereMPSServesThem(t *testing.T) {
	w := newShareWorld(t, t.TempDir(), 1)
	w.supervisor.all = true
	m, c := w.start(), pieces("c", piece{device: "gpu-00-00", config: config("GpuConfig", `"sharing":{"strategy":"MPS","mps":{"multiUser":true}}`)})
	w.supervisor.err = gpu.ErrNotReady
	if _, err := m.Prepare(once(), c); !errors.Is(err, gpu.ErrNotReady) {
		t.Errorf("without a supervisor: %v, want %v", err, gpu.ErrNotReady)
	}
	w.supervisor.err = nil
	if devices, err := m.Prepare(once(), c); err != nil || devices[0].Strategy() != v1alpha1.StrategyMPS {
		t.Errorf("got %+v, %v, want MPS", devices, err)
	}
}

func TestPrepareDescribesShares(t *testing.T) {
	w := newShareWorld(t, t.TempDir(), 4)
	devices, err := w.start().Prepare(once(), pieces("c",
		piece{device: "gpu-00-00", memory: "20Gi", compute: "50", config: config("ShareConfig", `"processes":2`)},
		piece{device: "gpu-00-00", memory: "30Gi", config: config("ShareConfig", plain)},
		piece{device: "gpu-01-00"},
		piece{device: "gpu-02-00", config: config("GpuConfig", together)},
		piece{device: "gpu-03-00-ts", config: interval(gpu.TimeSliceLong)},
	))
	if err != nil {
		t.Fatal(err)
	}
	mps := func(daemon string) *share.Client { return &share.Client{Daemon: kindtest.Name(daemon)} }
	limited := mps(devices[0].Name.String())
	limited.Processes, limited.ThreadPercentage, limited.MemoryLimit = 2, 25, 10<<30-contextMemory
	want := []share.Terms{
		{Share: &share.Amount{Memory: 20 << 30, Compute: 50}, MPS: limited},
		{Share: &share.Amount{Memory: 30 << 30}},
		{},
		{MPS: mps(devices[3].Name.String())},
		{Slots: 1, TimeSlice: gpu.TimeSliceLong},
	}
	var got []share.Terms
	for _, d := range devices {
		got = append(got, d.Terms)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Without a supervisor shares are plain, as they are published.
func TestSharesWithoutMPSArePlain(t *testing.T) {
	for name, without := range map[string]func(*world){
		"no supervisor": func(w *world) { w.options = func(o *claim.Options) { o.MPS = nil } },
		"an old GPU": func(w *world) {
			g := w.gpus[gpu.PCIAddress{}]
			g.ComputeCapability.Major = 6
			w.gpus[g.Address] = g
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newShareWorld(t, t.TempDir(), 1)
			without(w)
			m, c := w.start(), pieces("c", piece{device: "gpu-00-00", memory: "20Gi"})
			devices, err := m.Prepare(once(), c)
			if err != nil {
				t.Fatal(err)
			}
			if got := devices[0].Strategy(); got != v1alpha1.StrategyPlain || w.supervisor.String() != "" {
				t.Errorf("strategy %s, daemons:\n%s", got, w.supervisor)
			}
			must(t, m.Unprepare(once(), c.UID))
		})
	}
}

// A client that drops its environment is limited by the daemon's ceilings: the limits
// of the largest held share, and at least the client's own limits.
func TestCeilingsFollowTheLargestShare(t *testing.T) {
	w := newShareWorld(t, t.TempDir(), 1)
	m, other := w.start(), w.start()
	for _, step := range []struct {
		m    *claim.Manager
		c    string
		size string // "" to unprepare
		want string
	}{
		{m, "ten", "10Gi", "gpu-00-00 of GPU-0=9728M, 12%\n"},
		{other, "thirty", "30Gi", "gpu-00-00 of GPU-0=30208M, 37%\n"},
		{m, "twenty", "20Gi", "gpu-00-00 of GPU-0=30208M, 37%\n"},
		{m, "ten", "", "gpu-00-00 of GPU-0=30208M, 37%\n"},
		{m, "thirty", "", "gpu-00-00 of GPU-0=19968M, 25%\n"},
		{other, "twenty", "", ""},
	} {
		c := pieces(step.c, piece{device: "gpu-00-00", memory: step.size})
		if step.size == "" {
			must(t, step.m.Unprepare(once(), c.UID))
		} else if _, err := step.m.Prepare(once(), c); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(step.want, w.supervisor.String()); diff != "" {
			t.Errorf("%s %s: daemons (-want +got):\n%s", step.c, step.size, diff)
		}
	}
	want := []string{
		"start gpu-00-00 of GPU-0=9728M, 12%", "set gpu-00-00 of GPU-0=30208M, 37%", "set gpu-00-00 of GPU-0=19968M, 25%", "stop gpu-00-00",
	}
	if diff := cmp.Diff(want, w.supervisor.log); diff != "" {
		t.Errorf("what the supervisor did (-want +got):\n%s", diff)
	}
}

func TestASupervisorThatIsAway(t *testing.T) {
	away := fmt.Errorf("the supervisor is away: %w", gpu.ErrNotReady)
	c := pieces("c", piece{device: "gpu-00-00", memory: "20Gi"})
	t.Run("for a while", func(t *testing.T) {
		dir := t.TempDir()
		synctest.Test(t, func(t *testing.T) {
			w := newShareWorld(t, dir, 1)
			w.supervisor.err = away
			m := w.start()
			result := make(chan error, 1)
			go func() { _, err := m.Prepare(t.Context(), c); result <- err }()
			synctest.Wait()
			w.supervisor.mu.Lock()
			w.supervisor.err = nil
			w.supervisor.mu.Unlock()
			if err := <-result; err != nil {
				t.Error(err)
			}
		})
	})
	t.Run("for long", func(t *testing.T) {
		w := newShareWorld(t, t.TempDir(), 1)
		w.supervisor.err = away
		m := w.start()
		if _, err := m.Prepare(once(), c); !errors.Is(err, gpu.ErrNotReady) || !strings.Contains(err.Error(), "StartMPS: daemon gpu-00-00: the supervisor is away") {
			t.Errorf("got %v, want %v", err, away)
		}
		if got := w.left(m); got != "" {
			t.Errorf("left behind:\n%s", got)
		}
		if _, err := m.Recover(t.Context()); err != nil {
			t.Errorf("recovery with nothing to recover: %v", err)
		}
	})
}

// The claim of a GPU's last share is held until the daemon is stopped: a server that
// keeps running would conflict with the next claim on the GPU.
func TestAClaimIsHeldUntilItsDaemonIsStopped(t *testing.T) {
	w := newShareWorld(t, t.TempDir(), 1)
	m := w.start()
	big, small := pieces("big", piece{device: "gpu-00-00", memory: "40Gi"}), pieces("small", piece{device: "gpu-00-00", memory: "10Gi"})
	for _, c := range []*resourceapi.ResourceClaim{big, small} {
		if _, err := m.Prepare(once(), c); err != nil {
			t.Fatal(err)
		}
	}
	w.supervisor.err = gpu.ErrNotReady
	if err := m.Unprepare(once(), big.UID); err != nil {
		t.Errorf("one of several shares: %v", err)
	}
	if err := m.Unprepare(once(), small.UID); !errors.Is(err, gpu.ErrNotReady) {
		t.Errorf("the last share: %v, want %v", err, gpu.ErrNotReady)
	}
	if _, err := m.Prepare(once(), newClaim("whole", "gpu-00-00")); !errors.Is(err, gpu.ErrInUse) {
		t.Errorf("the GPU: %v, want %v", err, gpu.ErrInUse)
	}
	w.supervisor.err = nil
	must(t, m.Unprepare(once(), small.UID))
	if got := w.left(m); got != "" {
		t.Errorf("left behind:\n%s", got)
	}
}

func TestRecoveryStopsDaemonsWithoutAClaim(t *testing.T) {
	w := newShareWorld(t, t.TempDir(), 2)
	if _, err := w.start().Prepare(once(), pieces("c", piece{device: "gpu-00-00", memory: "20Gi"})); err != nil {
		t.Fatal(err)
	}
	if _, err := w.supervisor.EnsureMPS(once(), gpu.MPSDaemon{Name: "gpu-01-00", Devices: []string{"GPU-1"}}); err != nil {
		t.Fatal(err)
	}
	_, report := w.restart(t.Context())
	if diff := cmp.Diff(claim.Report{Verified: []types.UID{"uid-c"}, Swept: map[string][]string{"StartMPS": {"gpu-01-00"}}}, report); diff != "" {
		t.Errorf("report (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff("gpu-00-00 of GPU-0=19968M, 25%\n", w.supervisor.String()); diff != "" {
		t.Errorf("daemons (-want +got):\n%s", diff)
	}
}

// A supervisor has lost its daemons together with the directory of its pod. Recovery
// starts them again.
func TestRecoveryBringsDaemonsBack(t *testing.T) {
	w := newShareWorld(t, t.TempDir(), 1)
	m := w.start()
	for _, c := range []*resourceapi.ResourceClaim{pieces("a", piece{device: "gpu-00-00", memory: "20Gi"}), pieces("b", piece{device: "gpu-00-00", memory: "40Gi"})} {
		if _, err := m.Prepare(once(), c); err != nil {
			t.Fatal(err)
		}
	}
	before := w.left(m)
	clear(w.supervisor.daemons)
	m, _ = w.restart(t.Context())
	if diff := cmp.Diff(before, w.left(m)); diff != "" {
		t.Errorf("(-before +after):\n%s", diff)
	}
}

// The supervisor finds a process with the name of a daemon that serves other devices.
// Prepare replaces it, unless a process uses it.
func TestADaemonForTheWrongDevicesIsReplaced(t *testing.T) {
	w := newShareWorld(t, t.TempDir(), 1)
	m := w.start()
	first, second := pieces("first", piece{device: "gpu-00-00", memory: "20Gi"}), pieces("second", piece{device: "gpu-00-00", memory: "30Gi"})
	w.supervisor.stray = "gpu-00-00"
	if _, err := m.Prepare(once(), first); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"start", "stop", "start"}, verbs(w.supervisor.log)); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
	w.supervisor.stray = "gpu-00-00"
	if _, err := m.Prepare(once(), second); !errors.Is(err, gpu.ErrInUse) {
		t.Errorf("with a claim that uses it: %v, want %v", err, gpu.ErrInUse)
	}
	if slices.Contains(verbs(w.supervisor.log[3:]), "stop") {
		t.Errorf("a daemon with clients was stopped: %q", w.supervisor.log)
	}
	must(t, m.Unprepare(once(), first.UID))
	if got := w.left(m); got != "" {
		t.Errorf("left behind:\n%s", got)
	}
}

// verbs returns the first word of each line.
func verbs(log []string) []string {
	var words []string
	for _, line := range log {
		words = append(words, strings.Fields(line)[0])
	}
	return words
}
