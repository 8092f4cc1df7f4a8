// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	ktesting "k8s.io/client-go/testing"
	"k8s.io/dynamic-resource-allocation/resourceslice"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/kubelet/kubelettest"
	"github.com/gpu-dra/gpu-dra-driver/pkg/disk/store"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
	"github.com/gpu-dra/gpu-dra-driver/pkg/mps/mpsv1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/node/procfs"
	"github.com/gpu-dra/gpu-dra-driver/simulator/nvmlsim"
	"github.com/gpu-dra/gpu-dra-driver/test/allocator"
)

const (
	// claimNames is the number of names of claims.
	claimNames = 6
	// claimSpec and metadataSpec are the names of the CDI specs of a claim.
	claimSpec, metadataSpec = "gpu.nvidia.com-claim-%s.json", "gpu.nvidia.com_metadata_%s_gpu.json"
	// kubeletPatience is how long the kubelet waits for a plugin.
	kubeletPatience = 45 * time.Second
	// scanTime is enough for an agent to find a GPU that answers again.
	scanTime = 90 * time.Second
	// soon is enough for what an agent does at once.
	soon = 3 * time.Second
	// roundTime is the time from round to round, and repairTime enough for what an agent does in rounds
	// and scans.
	roundTime, repairTime = time.Minute, 15 * time.Minute
	// joinTime is enough for an agent to find the pods that have joined claims.
	joinTime = 25 * time.Second
)

// life is the life of one node.
type life struct {
	t          *testing.T
	n          *node
	model      string
	pipes      *pipes
	supervisor *supervisor
	// kubelet lists GPUs of a device plugin. It has given one to a pod; "" if none.
	kubelet     *podLister
	stopKubelet func()
	given       string
	sim         *nvmlsim.Sim
	scheduler   *allocator.Node
	// apiFails is the answer of the API server about claims while it fails. supervisorFails is set
	// while the supervisor is away, and lost while a GPU is lost.
	apiFails        atomic.Pointer[error]
	supervisorFails atomic.Bool
	lost            bool
	// slowUntil is when each GPU answers, and the node has seen it. Its calls take slowFor in all.
	slowUntil time.Time
	slowFor   time.Duration
	// gpuSlowUntil is when the last slow GPU answers.
	gpuSlowUntil time.Time
	disk         disk
	// changed is when something last happened, and marked when the taints of GPUs last changed.
	changed, marked time.Time
	// told is what the node was last told to offer, and offers the devices of each such offer. An
	// offer that the node may not have understood is unknown.
	told   string
	offers map[string]string
	// wasReset is when a GPU last lost its MIG devices by a reset.
	wasReset time.Time
	// handmade is a MIG device that an administrator has made; nil if none. It came or went last at cutAt.
	handmade *kind.Name
	cutAt    time.Time
	// ahead is by how much the machine's clock is ahead.
	ahead time.Duration
	// kept is set once the node has been told to keep MIG devices without claims. A round removes those that it
	// keeps no longer.
	kept bool
	// damaged are the held claims whose record was lost. ended are all claims that lost it, and whether their
	// MPS daemon has ended since.
	damaged, ended map[types.UID]bool
	// unmade are claims without a record, since a reboot without their MIG devices.
	unmade map[types.UID]bool
	// faulty and cordoned are the GPUs of which the node was told, by the names of their devices.
	faulty, cordoned map[string]bool
	// unasked: the driver asks for no recovery action for one of the faults.
	unasked bool
	// intruded is the claim on whose GPU a pod without a claim computes.
	intruded *livingClaim
	// took counts how often each kind of event took effect.
	took map[string]int

	// agent is the one that the kubelet calls; nil if none runs. started counts them, and the last ended at stopped.
	agent   *living
	started int
	stopped time.Time
	// claims are the claims in the API, by name, and forgotten those that were deleted while
	// the node held them.
	claims    map[string]*livingClaim
	forgotten []*livingClaim
	created   int
	// disturbed is when something last happened that keeps the node from all that it promises,
	// until its next rounds.
	disturbed time.Time
	// partitions are the possible ones of each GPU.
	partitions map[gpu.PCIAddress]gpu.MIG
	// containers are those that live, in the order in which they started. pods counts pods.
	containers []*container
	pods       int
	story      []string
}

// quiet discards a log. Upstream's controller of slices checks a slice again until more time has
// passed than its cache keeps it, and a virtual clock stands still while it does.
type quiet struct{}

func (quiet) Init(klog.RuntimeInfo) {}

func (quiet) Enabled(int) bool { return true }

func (quiet) Info(_ int, message string, _ ...any) {
	if message == "Scheduled re-sync" {
		time.Sleep(time.Nanosecond) //nolint:forbidigo // lets the clock go on
	}
}

func (quiet) Error(error, string, ...any) {}

func (q quiet) WithValues(...any) klog.LogSink { return q }

func (q quiet) WithName(string) klog.LogSink { return q }

// wrongClock is a clock that is ahead. Go measures durations by another one, so only a process that begins later
// notices that it was set.
type wrongClock struct {
	clock.RealClock
	ahead time.Duration
}

// Now implements [clock.Clock].
func (c wrongClock) Now() time.Time { return c.RealClock.Now().Add(c.ahead) }

// Since implements [clock.Clock].
func (c wrongClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

// living is an agent that runs.
type living struct {
	*agent
	kubelet *kubelettest.Plugin
	stop    func() error
}

// livingClaim is a claim in the API.
type livingClaim struct {
	*resourceapi.ResourceClaim
	// prepared is set if the kubelet has had the devices, and unsure if its last call failed.
	prepared, unsure bool
	// hidden is set once another claim was created while the node did not publish a device of this one.
	hidden bool
	// pods are those that may use the claim. They are not reserved for by name if they are in a PodGroup.
	pods    []types.UID
	inGroup bool
}

func newLife(t *testing.T, model string, classes []*resourceapi.DeviceClass, took map[string]int) *life {
	t.Helper()
	s := &life{
		t: t, n: newNode(t), model: model, pipes: newPipes(), claims: map[string]*livingClaim{}, partitions: map[gpu.PCIAddress]gpu.MIG{},
		disturbed: time.Now().Add(-24 * time.Hour), stopped: time.Now(), offers: map[string]string{}, damaged: map[types.UID]bool{}, ended: map[types.UID]bool{}, unmade: map[types.UID]bool{}, faulty: map[string]bool{}, cordoned: map[string]bool{}, took: took,
	}
	// The fake that knows fields and their managers takes an eighth of all time.
	s.n.client = fake.NewSimpleClientset(&corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: s.n.NodeName, UID: "node-uid"},
		Status:     corev1.NodeStatus{Capacity: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("8")}}, // of a device plugin
	})
	s.n.serverIs(t, "v1.37.1")
	s.n.disks = append(s.n.disks, func(fs store.FS) store.FS { return &failingDisk{fs, &s.disk} })
	s.n.setConfigs(t, configs)
	s.n.MIGLayouts = s.n.write(t, "layouts.yaml", smallLayout)
	s.n.nameSlices(t)
	s.n.installed(t)
	// The agent's sockets for hooks would wait for the kernel; the name of this one is too long.
	s.n.KubeletPluginsDir = filepath.Join(s.n.KubeletPluginsDir, strings.Repeat("long/", 20))
	s.n.network, s.n.kernel = s.pipes, procfs.Root(t.TempDir())
	if err := s.kernel(); err != nil {
		t.Fatal(err)
	}
	s.n.Offer, s.n.ReconcileInterval = "share,mig", roundTime
	s.scheduler = allocator.NewNode(resourceslice.DriverResources{}, allocator.Features(), classes...)
	s.disturbClient()
	s.serveSupervisor()
	s.serveKubelet()
	if err := s.start(); err != nil {
		t.Fatal(err)
	}
	s.sim = s.n.sim(t)
	s.pass(soon)
	s.told = fmt.Sprint(map[string]string{})
	s.offers[s.told] = s.published()
	for _, g := range s.agent.known.state.Snapshot().Node().GPUs {
		s.partitions[g.Address] = g.MIG
	}
	return s
}

// disturbClient lets the API server answer with apiFails, and know UIDs and versions.
func (s *life) disturbClient() {
	client, ok := s.n.client.(*fake.Clientset)
	if !ok {
		s.t.Fatalf("the client is a %T", s.n.client)
	}
	// The controller of slices waits until it sees the version that it has written.
	versions := 0
	client.PrependReactor("*", "resourceslices", func(action ktesting.Action) (bool, runtime.Object, error) {
		if write, ok := action.(interface{ GetObject() runtime.Object }); ok {
			if slice, ok := write.GetObject().(*resourceapi.ResourceSlice); ok {
				versions++
				slice.ResourceVersion = strconv.Itoa(versions)
			}
		}
		return false, nil, nil
	})
	client.PrependReactor("patch", "resourceclaims", func(action ktesting.Action) (bool, runtime.Object, error) {
		if patch, ok := action.(ktesting.PatchAction); ok {
			return true, nil, applyStatus(client.Tracker(), patch)
		}
		return false, nil, nil
	})
	for _, verb := range []string{"get", "patch"} {
		client.PrependReactor(verb, "resourceclaims", func(ktesting.Action) (bool, runtime.Object, error) {
			if failure := s.apiFails.Load(); failure != nil {
				return true, nil, *failure
			}
			return false, nil, nil
		})
	}
}

// applyStatus applies the status of devices to a claim, as an API server does: to no other claim of its name.
func applyStatus(claims ktesting.ObjectTracker, patch ktesting.PatchAction) error {
	object, err := claims.Get(patch.GetResource(), patch.GetNamespace(), patch.GetName())
	if err != nil {
		return err
	}
	applied := &resourceapi.ResourceClaim{}
	if err := json.Unmarshal(patch.GetPatch(), applied); err != nil {
		return err
	}
	c, ok := object.(*resourceapi.ResourceClaim)
	if !ok || c.UID != applied.UID {
		return apierrors.NewConflict(resourceapi.Resource("resourceclaims"), patch.GetName(), errors.New("another UID"))
	}
	c.Status.Devices = applied.Status.Devices
	return claims.Update(patch.GetResource(), c, patch.GetNamespace())
}

func (s *life) serveSupervisor() {
	s.supervisor = &supervisor{daemons: map[string]gpu.MPSDaemon{}, stop: func() {}}
	listener, err := s.pipes.Listen(s.t.Context(), s.n.Supervisor)
	if err != nil {
		s.t.Fatal(err)
	}
	handler := mpsv1.Handler(s.supervisor)
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.supervisorFails.Load() {
			panic(http.ErrAbortHandler) // closes the connection, as a program does that is not there
		}
		handler.ServeHTTP(w, r)
	})}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	s.supervisor.stop = func() {
		_ = server.Close()
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			s.t.Error(err)
		}
	}
}

func (s *life) serveKubelet() {
	listener, err := s.pipes.Listen(s.t.Context(), s.n.PodResources)
	if err != nil {
		s.t.Fatal(err)
	}
	s.kubelet = &podLister{}
	s.stopKubelet = s.kubelet.serve(s.t, listener)
}

// note adds a line to the story.
func (s *life) note(format string, args ...any) {
	s.changed = time.Now()
	s.story = append(s.story, time.Now().Format("15:04:05 ")+fmt.Sprintf(format, args...))
}

// pass lets time pass.
func (s *life) pass(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // the clock is the bubble's
	synctest.Wait()
}

// start starts an agent, which the kubelet calls from then on.
func (s *life) start() error {
	s.started++
	s.marked = time.Now()
	if s.agent != nil {
		s.stopped = time.Now()
	}
	if s.stopped.Sub(s.disturbed) <= repairTime { // this agent counts its rounds anew
		s.disturbed = time.Now()
	}
	if s.slowFor > 0 {
		view, err := s.sim.View()
		if err != nil {
			return err
		}
		if len(view.CallFaults) > 0 { // no agent has called the GPU since
			s.slowUntil = time.Now().Add(s.slowFor + scanTime)
			s.gpuSlowUntil = s.slowUntil
		}
	}
	c := *s.n.Config
	c.PodUID = fmt.Sprintf("%08x-0000", s.started)
	c.wallClock = wrongClock{ahead: s.ahead}
	hw := open(s.t, &c, s.model, s.n.SimState)
	ctx, cancel := context.WithCancel(klog.NewContext(s.t.Context(), klog.New(quiet{})))
	a, err := newAgent(ctx, &c, hw, s.n.client)
	if err != nil {
		cancel()
		return fmt.Errorf("an agent does not start: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- errors.Join(a.run(ctx), hw.close()) }()
	select {
	case <-a.serving.plugin.started:
	case err := <-ended:
		cancel()
		return fmt.Errorf("an agent ended: %w", err)
	}
	kubelet, err := kubelettest.RegisterOver(ctx, s.pipes, filepath.Join(c.KubeletRegistryDir, fmt.Sprintf("gpu.nvidia.com-%08x-reg.sock", s.started)))
	if err != nil {
		cancel()
		return err
	}
	s.agent = &living{a, kubelet, func() error {
		_ = kubelet.Close()
		cancel()
		return <-ended
	}}
	return nil
}

func (s *life) end() {
	if s.agent != nil {
		_ = s.agent.stop()
	}
	s.supervisor.stop()
	s.stopKubelet()
	// Calls that are slow must end while time passes, which it does until the life ends.
	_ = s.sim.ClearFaults()
	s.pass(time.Minute)
}

// published renders the devices of the node, with their taints.
func (s *life) published() string {
	var lines []string
	for _, slice := range s.slices() {
		for _, d := range slice.Spec.Devices {
			line := fmt.Sprintf("%s shared=%t", d.Name, d.AllowMultipleAllocations != nil)
			for _, taint := range d.Taints {
				line += fmt.Sprintf(" %s=%s", taint.Key, taint.Value)
			}
			lines = append(lines, line)
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func (s *life) slices() []resourceapi.ResourceSlice {
	all, err := s.n.client.ResourceV1().ResourceSlices().List(s.t.Context(), metav1.ListOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	return all.Items
}
