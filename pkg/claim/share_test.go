// SPDX-License-Identifier: Apache-2.0

package claim_test

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/share"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind/kindtest"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/use"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
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
			"uid-c-gpu-00-00_share-c-0\n  CUDA_MPS_PIPE_DIRECTORY=/run/sup/gpu-00-00/pipe\n  CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=30\n  CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=20480M\n" + first,
			"gpu-00-00 of GPU-0=20480M, 30%\n",
		},
		"two shares of one GPU": {
			[]piece{{device: "gpu-00-00", memory: "20Gi", compute: "30"}, {device: "gpu-00-00", memory: "40Gi", config: config("ShareConfig", `"processes":2,"compute":"Burst"`)}},
			"uid-c-gpu-00-00_share-c-0\n  CUDA_MPS_PIPE_DIRECTORY=/run/sup/gpu-00-00/pipe\n  CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=30\n  CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=20480M\n" + first +
				"uid-c-gpu-00-00_share-c-1\n  CUDA_MPS_PIPE_DIRECTORY=/run/sup/gpu-00-00/pipe\n  CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=20480M\n" + first,
			"gpu-00-00 of GPU-0=20480M\n",
		},
		"a plain share": {
			[]piece{{device: "gpu-00-00", memory: "20Gi", config: config("ShareConfig", plain)}},
			"uid-c-gpu-00-00_share-c-0\n", "",
		},
		"a share of everything": {
			[]piece{{device: "gpu-00-00", memory: "80Gi", config: config("ShareConfig", "")}},
			"uid-c-gpu-00-00\n  CUDA_MPS_PIPE_DIRECTORY=/run/sup/gpu-00-00/pipe\n  CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=100\n  CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=81920M\n" + first,
			"gpu-00-00 of GPU-0=81920M, 100%\n",
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
			"uid-c-gpu-00-00-seat_share-c-0\n  CUDA_MPS_PIPE_DIRECTORY=/run/sup/gpu-00-00/pipe\n  CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=25\n  CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=20480M\n" + first +
				"uid-c-gpu-00-00-seat_share-c-1\n  CUDA_MPS_PIPE_DIRECTORY=/run/sup/gpu-00-00/pipe\n  CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=25\n  CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=20480M\n" + first,
			"gpu-00-00 of GPU-0=20480M, 25%\n",
		},
		"time slices": {
			[]piece{{device: "gpu-00-00-ts"}, {device: "gpu-00-00-ts"}},
			"uid-c-gpu-00-00-ts_share-c-0\nuid-c-gpu-00-00-ts_share-c-1\n", "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newShareWorld(t, t.TempDir(), 2)
			w.wantInjected(t, pieces("c", c.pieces...), c.edits, c.daemons, func() { w.shares.Smallest = 1 << 40 })
		})
	}
}

// wantInjected checks what the containers of a claim get, and its daemons. An agent of another
// release, or with other flags, does not change them.
func (w *world) wantInjected(t *testing.T, c *resourceapi.ResourceClaim, edits, daemons string, update func()) {
	t.Helper()
	m := w.start()
	devices, err := m.Prepare(once(), c)
	must(t, err)
	require.Same(t, "CDI", edits, w.edits(c))
	require.Same(t, "daemons", daemons, w.supervisor.String())
	before := w.left(m)
	update()
	m, _ = w.restart(t.Context())
	again, err := m.Prepare(once(), c)
	must(t, err)
	require.Same(t, "devices that are prepared again", devices, again)
	require.Same(t, "left of a claim that is prepared again", before+edits, w.left(m)+w.edits(c))
	must(t, m.Unprepare(once(), c.UID))
	wantNothing(t, w.left(m))
}

// One configuration may apply to several requests and name the GPUs of all.
func TestLimitsForGPUsByTheirUUIDs(t *testing.T) {
	w := newShareWorld(t, t.TempDir(), 2)
	realUUIDs(w)
	c := pieces("c", piece{device: "gpu-00-00"}, piece{device: "gpu-01-00"})
	c.Status.Allocation.Devices.Config = []resourceapi.DeviceAllocationConfiguration{
		opaque(resourceapi.AllocationConfigSourceClaim, driver, mpsLimits(uuidOf(0), "5Gi", uuidOf(1), "7Gi"), "gpu-0", "gpu-1"),
	}
	must(t, errOf(w.start().Prepare(once(), c)))
	require.Same(t, "daemons", "gpu-00-00 of "+uuidOf(0)+"=5120M\ngpu-01-00 of "+uuidOf(1)+"=7168M\n", w.supervisor.String())
}

func TestAClaimForSeveralUsersWhereMPSServesThem(t *testing.T) {
	w := newShareWorld(t, t.TempDir(), 1)
	w.supervisor.all = true
	m, c := w.start(), pieces("c", piece{device: "gpu-00-00", config: config("GpuConfig", `"sharing":{"strategy":"MPS","mps":{"multiUser":true}}`)})
	w.supervisor.err = gpu.ErrNotReady
	require.Error(t, "without a supervisor", errOf(m.Prepare(once(), c)), gpu.ErrNotReady)
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
	must(t, err)
	mps := func(daemon string) *share.Client { return &share.Client{Daemon: kindtest.Name(daemon)} }
	limited := mps(devices[0].Name.String())
	limited.Processes, limited.ThreadPercentage, limited.MemoryLimit = 2, 25, 10<<30
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
	require.Same(t, "terms", want, got)
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
			must(t, err)
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
		{m, "ten", "10Gi", "gpu-00-00 of GPU-0=10240M, 12%\n"},
		{other, "thirty", "30Gi", "gpu-00-00 of GPU-0=30720M, 37%\n"},
		{m, "twenty", "20Gi", "gpu-00-00 of GPU-0=30720M, 37%\n"},
		{m, "ten", "", "gpu-00-00 of GPU-0=30720M, 37%\n"},
		{m, "thirty", "", "gpu-00-00 of GPU-0=20480M, 25%\n"},
		{other, "twenty", "", ""},
	} {
		c := pieces(step.c, piece{device: "gpu-00-00", memory: step.size})
		if step.size == "" {
			must(t, step.m.Unprepare(once(), c.UID))
		} else {
			must(t, errOf(step.m.Prepare(once(), c)))
		}
		require.Same(t, fmt.Sprintf("%s %s: daemons", step.c, step.size), step.want, w.supervisor.String())
	}
	want := []string{
		"start gpu-00-00 of GPU-0=10240M, 12%", "set gpu-00-00 of GPU-0=30720M, 37%", "set gpu-00-00 of GPU-0=20480M, 25%", "stop gpu-00-00",
	}
	require.Same(t, "what the supervisor did", want, w.supervisor.log)
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
		wantNothing(t, w.left(m))
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
		must(t, errOf(m.Prepare(once(), c)))
	}
	w.supervisor.err = gpu.ErrNotReady
	if err := m.Unprepare(once(), big.UID); err != nil {
		t.Errorf("one of several shares: %v", err)
	}
	require.Error(t, "the last share", m.Unprepare(once(), small.UID), gpu.ErrNotReady)
	require.Error(t, "the GPU", errOf(m.Prepare(once(), newClaim("whole", "gpu-00-00"))), gpu.ErrInUse)
	w.supervisor.err = nil
	must(t, m.Unprepare(once(), small.UID))
	wantNothing(t, w.left(m))
}

func TestRecoveryStopsDaemonsWithoutAClaim(t *testing.T) {
	w := newShareWorld(t, t.TempDir(), 2)
	must(t, errOf(w.start().Prepare(once(), pieces("c", piece{device: "gpu-00-00", memory: "20Gi"}))))
	must(t, errOf(w.supervisor.EnsureMPS(once(), gpu.MPSDaemon{Name: "gpu-01-00", Devices: []string{"GPU-1"}})))
	_, report := w.restart(t.Context())
	require.Same(t, "report", claim.Report{Verified: []types.UID{"uid-c"}, Swept: map[string][]string{"StartMPS": {"gpu-01-00"}}}, report)
	require.Same(t, "daemons", "gpu-00-00 of GPU-0=20480M, 25%\n", w.supervisor.String())
}

// The supervisor finds a process with the name of a daemon that serves other devices.
// Prepare replaces it, unless a process uses it.
func TestADaemonForTheWrongDevicesIsReplaced(t *testing.T) {
	w := newShareWorld(t, t.TempDir(), 1)
	m := w.start()
	first, second := pieces("first", piece{device: "gpu-00-00", memory: "20Gi"}), pieces("second", piece{device: "gpu-00-00", memory: "30Gi"})
	w.supervisor.stray = "gpu-00-00"
	must(t, errOf(m.Prepare(once(), first)))
	require.Same(t, "calls", []string{"start", "stop", "start"}, verbs(w.supervisor.log))
	w.supervisor.stray = "gpu-00-00"
	require.Error(t, "with a claim that uses it", errOf(m.Prepare(once(), second)), gpu.ErrInUse)
	if slices.Contains(verbs(w.supervisor.log[3:]), "stop") {
		t.Errorf("a daemon with clients was stopped: %q", w.supervisor.log)
	}
	must(t, m.Unprepare(once(), first.UID))
	wantNothing(t, w.left(m))
}

// verbs returns the first word of each line.
func verbs(log []string) []string {
	var words []string
	for _, line := range log {
		words = append(words, strings.Fields(line)[0])
	}
	return words
}

// The scheduler counts seats of either size as one, so the agent compares their memory.
func TestSeatsOfAnotherSizeNeverHaveMoreThanTheGPU(t *testing.T) {
	w := newShareWorld(t, t.TempDir(), 1)
	seats := func(name string, n int) error {
		_, err := w.start().Prepare(once(), pieces(name, piece{device: "gpu-00-00-seat", seats: n}))
		return err
	}
	must(t, seats("quarters", 3))
	w.shares.Units = kind.Numbers{kind.Seat: 8}
	must(t, seats("eighths", 2))
	require.Error(t, "another eighth", seats("more", 1), gpu.ErrInUse, "10Gi of its 80Gi memory are wanted, and 80Gi are held by 2 other claims")
	require.Same(t, "daemons", "gpu-00-00 of GPU-0=61440M, 75%\n", w.supervisor.String())
}

// The CDI spec of seats names them. Their GPU's daemon stays while a claim without a
// record may use it.
func TestSeatsWhoseRecordIsLost(t *testing.T) {
	w := newShareWorld(t, t.TempDir(), 1)
	m, c := w.start(), pieces("c", piece{device: "gpu-00-00-seat", seats: 1})
	must(t, errOf(m.Prepare(once(), c)))
	must(t, os.WriteFile(w.recordPath(c), []byte("x"), 0o600))
	m, _ = w.restart(t.Context())
	if got := w.supervisor.String(); !strings.HasPrefix(got, "gpu-00-00 of GPU-0=") {
		t.Errorf("the daemon of a claim without a record is %q", got)
	}
	for name, p := range map[string]piece{"a share": {device: "gpu-00-00", memory: "10Gi"}, "the GPU": {device: "gpu-00-00"}} {
		if _, err := m.Prepare(once(), pieces("other", p)); !errors.Is(err, gpu.ErrInUse) {
			t.Errorf("%s is prepared while a claim without a record has a seat: %v", name, err)
		}
	}
	if _, err := m.Prepare(once(), pieces("next", piece{device: "gpu-00-00-seat", seats: 1})); err != nil {
		t.Errorf("another seat: %v", err)
	}
	must(t, m.Unprepare(once(), c.UID))
	must(t, m.Unprepare(once(), pieces("next").UID))
	wantNothing(t, w.supervisor.String())
}

// setNamespaces sets whether the driver lets MPS daemons have namespaces.
func (w *world) setNamespaces(on bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.conditions = map[gpu.PCIAddress]use.Conditions{}
	for a := range w.gpus {
		w.conditions[a] = use.Conditions{MPSNamespaces: on}
	}
}

// newNamespaceWorld is newShareWorld with a driver that has namespaces.
func newNamespaceWorld(t fataler, dir string, n int) *world {
	w := newShareWorld(t, dir, n)
	w.setNamespaces(true)
	return w
}

func TestWhatContainersGetOfANamespace(t *testing.T) {
	client := func(id, device, namespace, limits string) string {
		pipe := "/run/sup/" + device + "/pipe/s/" + namespace
		return "uid-c-" + id + "\n  CUDA_MPS_PIPE_DIRECTORY=" + pipe + "\n" + limits + "  " + pipe + " at " + pipe + "\n  /run/sup/" + device + "/shm at /dev/shm\n"
	}
	// No memory limit in the environment: with one for a GPU that a process does not see,
	// it would have none at all.
	const first = "  CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=30\n"
	for name, c := range map[string]struct {
		pieces  []piece
		edits   string
		daemons string
	}{
		"a share": {
			[]piece{{device: "gpu-00-00", memory: "20Gi", compute: "30"}},
			client("gpu-00-00_share-c-0", "gpu-00-00", "sharec0", first),
			"gpu-00-00 of GPU-0; sharec0 30% 20480M\n",
		},
		"two shares of one GPU": {
			[]piece{{device: "gpu-00-00", memory: "20Gi", compute: "30"}, {device: "gpu-00-00", memory: "40Gi", config: config("ShareConfig", `"processes":2,"compute":"Burst"`)}},
			client("gpu-00-00_share-c-0", "gpu-00-00", "sharec0", first) +
				client("gpu-00-00_share-c-1", "gpu-00-00", "sharec1", ""),
			"gpu-00-00 of GPU-0; sharec0 30% 20480M; sharec1 100% 20480M\n",
		},
		"a share of everything": {
			[]piece{{device: "gpu-00-00", memory: "80Gi", config: config("ShareConfig", "")}},
			client("gpu-00-00", "gpu-00-00", "uidc", "  CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=100\n"),
			"gpu-00-00 of GPU-0; uidc 100% 81920M\n",
		},
		"a plain share": {
			[]piece{{device: "gpu-00-00", memory: "20Gi", config: config("ShareConfig", plain)}},
			"uid-c-gpu-00-00_share-c-0\n", "",
		},
		"two whole GPUs that processes of several users share": {
			[]piece{
				{device: "gpu-01-00", request: "both", config: config("GpuConfig", `"sharing":{"strategy":"MPS","mps":{"threadPercentage":50,"memoryLimit":"10Gi","multiUser":true}}`)},
				{device: "gpu-00-00", request: "both"},
			},
			client("gpu-01-00", "gpu-01-00", "uidc", "  CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=50\n") +
				client("gpu-00-00", "gpu-01-00", "uidc", "  CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=50\n"),
			"gpu-01-00 of GPU-1,GPU-0; uidc 50% 10240M\n",
		},
		"GPUs with a limit for each": {
			[]piece{{device: "gpu-00-00", config: config("GpuConfig", `"sharing":{"strategy":"MPS","mps":{"perDevice":[{"device":0,"memoryLimit":"5Gi"}]}}`)}},
			"uid-c-gpu-00-00\n  CUDA_MPS_PIPE_DIRECTORY=/run/sup/gpu-00-00/pipe\n  CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=5120M\n  /run/sup/gpu-00-00/pipe at /run/sup/gpu-00-00/pipe\n  /run/sup/gpu-00-00/shm at /dev/shm\n",
			"gpu-00-00 of GPU-0=5120M\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newNamespaceWorld(t, t.TempDir(), 2)
			// A driver that has lost the feature does not change a running claim.
			w.wantInjected(t, pieces("c", c.pieces...), c.edits, c.daemons, func() { w.setNamespaces(false) })
		})
	}
}

func TestANamespaceEndsWithItsShare(t *testing.T) {
	w := newNamespaceWorld(t, t.TempDir(), 1)
	m := w.start()
	for _, step := range []struct{ c, size, want string }{
		{"ten", "10Gi", "gpu-00-00 of GPU-0; shareten0 12% 10240M\n"},
		{"thirty", "30Gi", "gpu-00-00 of GPU-0; shareten0 12% 10240M; sharethirty0 37% 30720M\n"},
		{"ten", "", "gpu-00-00 of GPU-0; sharethirty0 37% 30720M\n"},
		{"thirty", "", ""},
	} {
		c := pieces(step.c, piece{device: "gpu-00-00", memory: step.size})
		if step.size == "" {
			must(t, m.Unprepare(once(), c.UID))
		} else {
			must(t, errOf(m.Prepare(once(), c)))
		}
		require.Same(t, fmt.Sprintf("%s %s: daemons", step.c, step.size), step.want, w.supervisor.String())
	}
}

// A GPU keeps the protocol of its shares until the last of them has ended. The driver's
// abilities may change meanwhile.
func TestAShareJoinsTheProtocolOfTheOthers(t *testing.T) {
	const named, legacy = "gpu-00-00 of GPU-0; sharesecond0 25% 20480M", "gpu-00-00 of GPU-0=20480M, 25%"
	for name, tc := range map[string]struct {
		before         bool
		first, joined  string
		second, closer string
	}{
		"an updated driver": {false, legacy, legacy, legacy, "gpu-00-00 of GPU-0; sharethird0 25% 20480M"},
		"an older driver":   {true, "gpu-00-00 of GPU-0; sharefirst0 25% 20480M", "gpu-00-00 of GPU-0; sharefirst0 25% 20480M; sharesecond0 25% 20480M", named, legacy},
	} {
		t.Run(name, func(t *testing.T) {
			w := newShareWorld(t, t.TempDir(), 1)
			w.setNamespaces(tc.before)
			m := w.start()
			share := func(name string) *resourceapi.ResourceClaim {
				return pieces(name, piece{device: "gpu-00-00", memory: "20Gi"})
			}
			want := func(daemons string) {
				t.Helper()
				require.Same(t, "daemons", daemons+"\n", w.supervisor.String())
			}
			prepare := func(name string) {
				t.Helper()
				must(t, errOf(m.Prepare(once(), share(name))))
			}
			prepare("first")
			want(tc.first)
			w.setNamespaces(!tc.before)
			m, _ = w.restart(t.Context())
			prepare("second")
			want(tc.joined)
			must(t, m.Unprepare(once(), share("first").UID))
			want(tc.second)
			must(t, m.Unprepare(once(), share("second").UID))
			prepare("third")
			want(tc.closer)
		})
	}
}

// A share that requires a namespace does not join shares without one, which stay
// unchanged.
func TestAShareThatRequiresANamespaceWaitsForSharesWithout(t *testing.T) {
	w := newShareWorld(t, t.TempDir(), 1)
	w.limits = true
	m := w.start()
	old := pieces("old", piece{device: "gpu-00-00", memory: "20Gi"})
	strict := pieces("strict", piece{device: "gpu-00-00", memory: "20Gi", config: config("ShareConfig", `"require":"daemon"`)})
	require.Error(t, "without namespaces", errOf(m.Prepare(once(), strict)), gpu.ErrNotSupported)
	must(t, errOf(m.Prepare(once(), old)))
	w.setNamespaces(true)
	before := w.left(m)
	require.Error(t, "with a share without", errOf(m.Prepare(once(), strict)), gpu.ErrInUse, "without namespaces")
	require.Same(t, "left afterwards", before, w.left(m))
	must(t, m.Unprepare(once(), old.UID))
	devices, err := m.Prepare(once(), strict)
	if _, compute := devices[0].Terms.Enforcement(); err != nil || compute != v1alpha1.EnforcementDaemon {
		t.Errorf("afterwards: %+v, %v, want compute at the level of the daemon", devices, err)
	}
}

// The CDI spec of a claim with a lost record names its namespace. So another share
// neither ends it nor gets another protocol.
func TestANamespaceOfALostRecordStays(t *testing.T) {
	for _, namespaces := range []bool{true, false} {
		t.Run(fmt.Sprint(namespaces), func(t *testing.T) {
			w := newShareWorld(t, t.TempDir(), 1)
			w.setNamespaces(namespaces)
			m := w.start()
			lost, other := pieces("lost", piece{device: "gpu-00-00", memory: "20Gi"}), pieces("other", piece{device: "gpu-00-00", memory: "10Gi"})
			must(t, errOf(m.Prepare(once(), lost)))
			must(t, os.WriteFile(w.recordPath(lost), []byte("x"), 0o600))
			w.setNamespaces(!namespaces)
			m, _ = w.restart(t.Context())
			must(t, errOf(m.Prepare(once(), other)))
			if pipe := "CUDA_MPS_PIPE_DIRECTORY=/run/sup/gpu-00-00/pipe"; strings.Contains(w.edits(other), pipe+"/s/shareother0\n") != namespaces {
				t.Errorf("another share has the other protocol:\n%s", w.edits(other))
			}
			must(t, m.Unprepare(once(), other.UID))
			if got := w.supervisor.String(); got == "" || namespaces && !strings.Contains(got, "; sharelost0 25% 20480M") {
				t.Errorf("the daemon or the namespace of the lost claim has ended: %q", got)
			}
			must(t, m.Unprepare(once(), lost.UID))
			wantNothing(t, w.supervisor.String())
		})
	}
}

// A daemon that no claim uses does not keep a share from its protocol.
func TestAStrayDaemonOfTheOtherProtocolIsReplaced(t *testing.T) {
	w := newNamespaceWorld(t, t.TempDir(), 1)
	m := w.start()
	must(t, errOf(w.supervisor.EnsureMPS(once(), gpu.MPSDaemon{Name: "gpu-00-00", Devices: []string{"GPU-0"}})))
	must(t, errOf(m.Prepare(once(), pieces("c", piece{device: "gpu-00-00", memory: "20Gi"}))))
	require.Same(t, "calls", []string{"start", "stop", "start"}, verbs(w.supervisor.log))
}

// A daemon with shares is not stopped for its protocol, whatever has started it.
func TestADaemonOfTheOtherProtocolWithSharesIsLeftAlone(t *testing.T) {
	w := newNamespaceWorld(t, t.TempDir(), 1)
	m := w.start()
	must(t, errOf(m.Prepare(once(), pieces("first", piece{device: "gpu-00-00", memory: "20Gi"}))))
	legacy := gpu.MPSDaemon{Name: "gpu-00-00", Devices: []string{"GPU-0"}}
	w.supervisor.daemons["gpu-00-00"] = legacy
	second := pieces("second", piece{device: "gpu-00-00", memory: "20Gi"})
	require.Error(t, "error", errOf(m.Prepare(once(), second)), gpu.ErrInUse, "protocol")
	require.Same(t, "daemons", "gpu-00-00 of GPU-0\n", w.supervisor.String())
	if held := w.held(m); strings.Contains(held, "second") {
		t.Errorf("the refused claim holds something: %s", held)
	}
}

func TestAShareOfAMIGDeviceHasNoNamespace(t *testing.T) {
	w := newMIGWorld(t, t.TempDir(), "dgx-h100").withSharing()
	w.setNamespaces(true)
	m, c := w.start(), pieces("c", piece{device: part, memory: "5Gi"})
	must(t, errOf(m.Prepare(once(), c)))
	if got := w.edits(c); !strings.Contains(got, "CUDA_MPS_PIPE_DIRECTORY=/run/sup/"+part+"/pipe\n") {
		t.Errorf("CDI:\n%s", got)
	}
}
