// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
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

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/plugin/kubelettest"
	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog/allocatortest"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
	"github.com/gpu-dra/gpu-dra-driver/pkg/mps/mpsv1"
	"github.com/gpu-dra/gpu-dra-driver/simulator/nvmlsim"
	"github.com/gpu-dra/gpu-dra-driver/test/files"
)

const (
	// claimNames is the number of names of claims.
	claimNames = 6
	// claimSpec and metadataSpec are the names of the CDI specs of a claim.
	claimSpec, metadataSpec = "gpu.nvidia.com-claim-%s.json", "gpu.nvidia.com_metadata_%s_gpu.json"
	// kubeletPatience is how long the kubelet waits for a plugin.
	kubeletPatience = 45 * time.Second
	// soon is enough for what an agent does at once.
	soon = 3 * time.Second
	// repairTime is enough for what an agent does in its rounds.
	repairTime = 40 * time.Minute
)

// life is the life of one node.
type life struct {
	t          *testing.T
	n          *node
	model      string
	pipes      *pipes
	supervisor *supervisor
	scheduler  *allocatortest.Node
	// apiFails and supervisorFails are set while the API server fails to return claims, and while
	// the supervisor is away. lost is set while a GPU is lost.
	apiFails, supervisorFails atomic.Bool
	lost                      bool
	// slowUntil is when calls of GPUs stop to hang, and the node has seen it.
	slowUntil time.Time
	// changed is when something last happened. relabeled is set while the node has labels.
	changed   time.Time
	relabeled bool

	// agent is the one that the kubelet calls; nil if none runs. started counts them.
	agent   *living
	started int
	// claims are the claims in the API, by name, and forgotten those that were deleted while
	// the node held them.
	claims    map[string]*livingClaim
	forgotten []types.UID
	created   int
	// disturbed is when something last happened that keeps the node from all that it promises,
	// until its next rounds.
	disturbed time.Time
	// fresh are the devices of the node without claims, as it first published them.
	fresh string
	// partitions are the possible ones of each GPU.
	partitions map[gpu.PCIAddress]gpu.MIG
	story      []string
}

// quiet discards a log. Upstream's controller of slices checks a slice again until more time has
// passed than its cache keeps it, and a virtual clock stands still while it does.
type quiet struct{}

func (quiet) Init(logr.RuntimeInfo) {}

func (quiet) Enabled(int) bool { return true }

func (quiet) Info(_ int, message string, _ ...any) {
	if message == "Scheduled re-sync" {
		time.Sleep(time.Nanosecond) //nolint:forbidigo // lets the clock go on
	}
}

func (quiet) Error(error, string, ...any) {}

func (q quiet) WithValues(...any) logr.LogSink { return q }

func (q quiet) WithName(string) logr.LogSink { return q }

// living is an agent that runs.
type living struct {
	*agent
	kubelet *kubelettest.Plugin
	stop    func() error
}

// livingClaim is a claim in the API.
type livingClaim struct {
	*resourceapi.ResourceClaim
	// prepared is set if the kubelet has had the devices, and unsure if it has no answer to its
	// last call.
	prepared, unsure bool
}

func newLife(t *testing.T, model string) *life {
	t.Helper()
	s := &life{t: t, n: newNode(t), model: model, pipes: newPipes(), claims: map[string]*livingClaim{}, partitions: map[gpu.PCIAddress]gpu.MIG{}, disturbed: time.Now().Add(-24 * time.Hour)}
	s.n.nameSlices(t)
	s.n.installed(t)
	// The agent's sockets for hooks would wait for the kernel; the name of this one is too long.
	s.n.KubeletPluginsDir = filepath.Join(s.n.KubeletPluginsDir, strings.Repeat("long/", 20))
	s.n.PodResources, s.n.network = "", s.pipes
	s.n.Offer = "share,mig"
	classes, err := allocatortest.ReadClasses(filepath.Join("..", "..", "deployments", "static", "install.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	s.scheduler = allocatortest.NewNode(resourceslice.DriverResources{}, allocatortest.Features(), classes...)
	s.disturbClient()
	s.serveSupervisor()
	if err := s.start(); err != nil {
		t.Fatal(err)
	}
	s.pass(soon)
	s.fresh = s.published()
	for _, g := range s.agent.state.Snapshot().Node().GPUs {
		s.partitions[g.Address] = g.MIG
	}
	return s
}

// disturbClient makes reads of claims fail while apiFails is set.
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
	// This client creates what it applies a status to.
	client.PrependReactor("patch", "resourceclaims", func(action ktesting.Action) (bool, runtime.Object, error) {
		name := ""
		if patch, ok := action.(ktesting.PatchAction); ok {
			name = patch.GetName()
		}
		_, err := client.Tracker().Get(action.GetResource(), action.GetNamespace(), name)
		return err != nil, nil, err
	})
	client.PrependReactor("get", "resourceclaims", func(ktesting.Action) (bool, runtime.Object, error) {
		if s.apiFails.Load() {
			return true, nil, apierrors.NewInternalError(errors.New("etcd has no leader"))
		}
		return false, nil, nil
	})
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
			http.Error(w, "the supervisor ends", http.StatusServiceUnavailable)
			return
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

// note tells the story, with all that happens.
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
	c := *s.n.Config
	c.PodUID = fmt.Sprintf("%08x-0000", s.started)
	hw := open(s.t, &c, s.model, s.n.SimState)
	ctx, cancel := context.WithCancel(klog.NewContext(s.t.Context(), logr.New(quiet{})))
	a, err := newAgent(ctx, &c, hw, s.n.client)
	if err != nil {
		cancel()
		return fmt.Errorf("an agent does not start: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- errors.Join(a.run(ctx), hw.close()) }()
	select {
	case <-a.kubelet.begun:
	case err := <-ended:
		cancel()
		return fmt.Errorf("an agent ended: %w", err)
	}
	kubelet, err := kubelettest.RegisterOver(ctx, s.pipes.Dial, filepath.Join(c.KubeletRegistryDir, fmt.Sprintf("gpu.nvidia.com-%08x-reg.sock", s.started)))
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
}

// published renders the devices of the node, with their taints.
func (s *life) published() string {
	var lines []string
	for _, slice := range s.slices() {
		for _, d := range slice.Spec.Devices {
			line := d.Name
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

func nameOf(which int) string { return fmt.Sprintf("c%d", which) }

// create creates a claim and allocates it, if the scheduler finds devices.
func (s *life) create(which, how int) error {
	name := nameOf(which)
	if s.claims[name] != nil {
		return nil
	}
	pool := resourceslice.Pool{}
	for _, slice := range s.slices() {
		pool.Slices = append(pool.Slices, resourceslice.Slice{Devices: slice.Spec.Devices, SharedCounters: slice.Spec.SharedCounters})
	}
	s.scheduler.Publish(resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{s.n.NodeName: pool}})
	request := requests()[(s.created+how)%len(requests())]
	results, err := s.scheduler.Allocate(s.t.Context(), name, request)
	if errors.Is(err, allocatortest.ErrNoFit) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("the scheduler fails: %w", err)
	}
	s.created++
	c := &livingClaim{ResourceClaim: &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, UID: types.UID(fmt.Sprintf("uid-%d", s.created))},
		Spec:       resourceapi.ResourceClaimSpec{Devices: request},
		Status:     resourceapi.ResourceClaimStatus{Allocation: &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{Results: results}}},
	}}
	if _, err := s.n.client.ResourceV1().ResourceClaims("team").Create(s.t.Context(), c.ResourceClaim, metav1.CreateOptions{}); err != nil {
		return err
	}
	s.claims[name] = c
	s.note("created %s %s with %s", name, c.UID, c.devices())
	return nil
}

func (c *livingClaim) devices() string {
	var all []string
	for _, r := range c.Status.Allocation.Devices.Results {
		all = append(all, r.Device)
	}
	return strings.Join(all, " ")
}

// requests are what claims ask for.
func requests() []resourceapi.DeviceClaim {
	one := func(class string, count int64, memory string, selector string) resourceapi.DeviceRequest {
		r := &resourceapi.ExactDeviceRequest{DeviceClassName: class, AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: count}
		if memory != "" {
			r.Capacity = &resourceapi.CapacityRequirements{Requests: map[resourceapi.QualifiedName]resource.Quantity{v1alpha1.CapacityMemory: resource.MustParse(memory)}}
		}
		if selector != "" {
			r.Selectors = []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: selector}}}
		}
		return resourceapi.DeviceRequest{Name: "gpu", Exactly: r}
	}
	var all []resourceapi.DeviceClaim
	for _, r := range []resourceapi.DeviceRequest{
		one("gpu.nvidia.com", 1, "", ""), one("share.nvidia.com", 1, "4Gi", ""), one("mig.nvidia.com", 1, "", ""),
		one("share.nvidia.com", 1, "10Gi", ""), one("gpu.nvidia.com", 2, "", ""),
		one("mig.nvidia.com", 1, "", `device.capacity["gpu.nvidia.com"].memory.compareTo(quantity("15Gi")) > 0`),
	} {
		all = append(all, resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{r}})
	}
	return all
}

// prepare prepares a claim as the kubelet does. The node refuses only what it cannot do now.
func (s *life) prepare(which, _ int) error {
	if c := s.claims[nameOf(which)]; c != nil {
		return s.prepareIn(c)
	}
	return nil
}

// prepareAll prepares all claims in one call.
func (s *life) prepareAll(int, int) error {
	var all []*livingClaim
	for _, name := range slices.Sorted(maps.Keys(s.claims)) {
		all = append(all, s.claims[name])
	}
	return s.prepareIn(all...)
}

// prepareIn prepares claims in one call.
func (s *life) prepareIn(claims ...*livingClaim) error {
	if s.agent == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(s.t.Context(), kubeletPatience)
	defer cancel()
	var objects []*resourceapi.ResourceClaim
	for _, c := range claims {
		objects = append(objects, c.ResourceClaim)
	}
	answers, failed := s.agent.kubelet.Prepare(ctx, objects...)
	for _, c := range claims {
		answer, err := answers[string(c.UID)], failed
		if text := answer.GetError(); text != "" {
			err = errors.New(text)
		}
		s.note("prepare %s: %v", c.Name, err)
		if err != nil {
			if !s.mayRefuse() {
				return fmt.Errorf("%s is refused: %w", c.Name, err)
			}
			continue
		}
		var got []string
		for _, d := range answer.Devices {
			got = append(got, d.DeviceName)
		}
		if want := c.devices(); strings.Join(got, " ") != want {
			return fmt.Errorf("%s gets %s, want %s", c.Name, got, want)
		}
		c.prepared, c.unsure = true, false
	}
	return nil
}

// mayRefuse reports whether the node may refuse claims now: something that it needs fails, or a
// claim that was deleted may hold the devices.
func (s *life) mayRefuse() bool { return s.fails() || len(s.forgotten) > 0 }

// fails reports whether something that the node needs fails.
func (s *life) fails() bool {
	return s.apiFails.Load() || s.supervisorFails.Load() || s.lost || time.Now().Before(s.slowUntil)
}

// loseAnswer prepares a claim, and the kubelet does not get the answer.
func (s *life) loseAnswer(which, how int) error {
	c := s.claims[nameOf(which)]
	if c == nil || s.agent == nil {
		return nil
	}
	ctx, cancel := context.WithCancel(s.t.Context())
	timer := time.AfterFunc(time.Duration(how)*time.Millisecond, cancel)
	defer timer.Stop()
	if how%2 == 0 {
		_, _ = s.agent.kubelet.Prepare(ctx, c.ResourceClaim)
	} else {
		_ = s.agent.kubelet.Unprepare(ctx, c.ResourceClaim)
		c.prepared = false
	}
	cancel()
	c.unsure = true
	s.note("no answer about %s (%d)", c.Name, how)
	return nil
}

func (s *life) unprepare(which, _ int) error {
	c := s.claims[nameOf(which)]
	if c == nil || s.agent == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(s.t.Context(), kubeletPatience)
	defer cancel()
	err := s.agent.kubelet.Unprepare(ctx, c.ResourceClaim)
	s.note("unprepare %s: %v", c.Name, err)
	if err != nil {
		c.prepared, c.unsure = false, true
		if !s.fails() {
			return fmt.Errorf("unprepare %s: %w", c.Name, err)
		}
		return nil
	}
	c.prepared, c.unsure = false, false
	return nil
}

// finish ends a claim as Kubernetes does: the kubelet unprepares it before it goes.
func (s *life) finish(which, how int) error {
	c := s.claims[nameOf(which)]
	if c == nil {
		return nil
	}
	if c.prepared || c.unsure {
		if err := s.unprepare(which, how); err != nil {
			return err
		}
	}
	if c.prepared || c.unsure {
		return nil
	}
	return s.remove(c)
}

// remove deletes a claim in the API.
func (s *life) remove(c *livingClaim) error {
	s.scheduler.Free(c.Name)
	delete(s.claims, c.Name)
	s.note("deleted %s", c.Name)
	return s.n.client.ResourceV1().ResourceClaims("team").Delete(s.t.Context(), c.Name, metav1.DeleteOptions{})
}

// force deletes a claim in the API while the node has it, and the kubelet forgets it.
func (s *life) force(which, _ int) error {
	c := s.claims[nameOf(which)]
	if c == nil {
		return nil
	}
	if c.prepared || c.unsure {
		s.forgotten = append(s.forgotten, c.UID)
		s.disturbed = time.Now()
	}
	return s.remove(c)
}

// recreate deletes a claim by force and creates another of its name.
func (s *life) recreate(which, how int) error {
	return errors.Join(s.force(which, how), s.create(which, how))
}

func (s *life) stop(int, int) error {
	if s.agent == nil {
		return s.start()
	}
	err := s.agent.stop()
	s.agent = nil
	s.note("stopped the agent")
	return err
}

func (s *life) restart(int, int) error {
	if s.agent != nil {
		if err := s.stop(0, 0); err != nil {
			return err
		}
	}
	s.note("started an agent")
	return s.start()
}

// update starts an agent before the old one ends.
func (s *life) update(_, how int) error {
	old := s.agent
	if err := s.start(); err != nil || old == nil {
		return err
	}
	s.note("updated the agent")
	s.pass(time.Duration(how*how) * time.Second)
	return old.stop()
}

func (s *life) disturb(_, how int) error {
	s.apiFails.Store(how%3 == 0)
	s.note("the API server fails: %t", s.apiFails.Load())
	s.disturbed = time.Now()
	return nil
}

// disturbSupervisor makes the supervisor go and come, or lose its daemons.
func (s *life) disturbSupervisor(_, how int) error {
	s.disturbed = time.Now()
	if how == 7 {
		s.supervisor.mu.Lock()
		defer s.supervisor.mu.Unlock()
		clear(s.supervisor.daemons)
		s.note("the supervisor has lost its daemons")
		return nil
	}
	s.supervisorFails.Store(how%3 == 0)
	s.note("the supervisor is away: %t", s.supervisorFails.Load())
	return nil
}

// lose makes a GPU go without a word, and all come back.
func (s *life) lose(which, how int) error {
	s.disturbed = time.Now()
	if s.lost = how%3 == 0; !s.lost {
		s.note("every GPU answers")
		return s.sim().ClearFaults()
	}
	view, err := s.sim().View()
	if err != nil {
		return err
	}
	s.note("GPU %d is lost", which%len(view.GPUs))
	return s.sim().LoseGPUSilently(which % len(view.GPUs))
}

// slow makes calls of a GPU hang for some seconds each.
func (s *life) slow(which, how int) error {
	view, err := s.sim().View()
	if err != nil {
		return err
	}
	index, hang := which%len(view.GPUs), []time.Duration{time.Second, 3 * time.Second, 8 * time.Second, 20 * time.Second}[how%4]
	s.note("%d calls of GPU %d take %v", how+1, index, hang)
	s.disturbed = time.Now()
	s.slowUntil = time.Now().Add(time.Duration(how+1)*hang + time.Minute)
	return s.sim().FailCalls(nvmlsim.CallFault{Method: nvmlsim.EveryMethod, GPU: &index, Hang: nvmlsim.Duration(hang), Count: how + 1})
}

func (s *life) cleanCDI(int, int) error {
	s.disturbed = time.Now()
	s.note("cleaned the CDI folder")
	for _, name := range files.List(s.t, s.n.CDIDir) {
		if err := os.Remove(filepath.Join(s.n.CDIDir, name)); err != nil {
			return err
		}
	}
	return nil
}

// reboot restarts the machine: pods start again, and the kubelet prepares their claims again.
func (s *life) reboot(_, how int) error {
	if s.agent != nil {
		if err := s.stop(0, 0); err != nil {
			return err
		}
	}
	if err := s.sim().Reboot(); err != nil {
		return err
	}
	s.note("rebooted")
	clear(s.supervisor.daemons)
	for _, c := range s.claims {
		c.unsure, c.prepared = c.unsure || c.prepared, false
	}
	if how%2 == 0 {
		if err := s.cleanCDI(0, 0); err != nil {
			return err
		}
	}
	return s.start()
}

func (s *life) sim() *nvmlsim.Sim {
	sim, err := nvmlsim.Open(s.n.SimState)
	if err != nil {
		s.t.Fatal(err)
	}
	return sim
}

// offer changes what the node offers, by its label.
func (s *life) offer(_, how int) error {
	labels := map[string]string{}
	if offers := []string{"", "share", "mig", "share.mig", "share.mig.timeslice"}; how >= 0 && how < len(offers) {
		labels[v1alpha1.LabelOffer] = offers[how]
	}
	s.note("labels %v", labels)
	s.n.setLabels(s.t, labels)
	s.relabeled = len(labels) > 0
	return nil
}

func (s *life) wait(_, how int) error {
	s.pass([]time.Duration{time.Second, 10 * time.Second, time.Minute, 6 * time.Minute, time.Hour}[how%5])
	return nil
}

// check compares what was promised with what is held, and that with the machine.
func (s *life) check() error {
	if s.agent == nil {
		return nil
	}
	held, err := s.agent.Held(s.t.Context())
	if err != nil {
		return err
	}
	return errors.Join(s.checkPromises(held), s.checkTenants(held), s.checkMachine(held), s.checkOffer(held))
}

// checkOffer checks that a node without claims offers what it first did, a minute after the last
// disturbance.
func (s *life) checkOffer(held []claim.Claim) error {
	if now := s.published(); len(held) == 0 && len(s.claims) == 0 && !s.relabeled && !s.fails() && time.Since(s.changed) > time.Minute && now != s.fresh {
		return fmt.Errorf("the node publishes\n%s\nwant\n%s", now, s.fresh)
	}
	return nil
}

// checkPromises checks that the node holds each claim that the kubelet has prepared, and its
// containers can start again.
func (s *life) checkPromises(held []claim.Claim) error {
	calm := time.Since(s.disturbed) > repairTime
	for _, name := range slices.Sorted(maps.Keys(s.claims)) {
		c := s.claims[name]
		spec := filepath.Join(s.n.CDIDir, fmt.Sprintf(claimSpec, c.UID))
		if _, err := os.Stat(spec); err == nil && !c.prepared && !c.unsure {
			return fmt.Errorf("containers can start with %s, which is not prepared", name)
		}
		if !c.prepared {
			continue
		}
		at := slices.IndexFunc(held, func(h claim.Claim) bool { return h.UID == c.UID })
		if at < 0 || held[at].Phase != claim.Prepared {
			return fmt.Errorf("the node does not hold %s, which the kubelet has prepared", name)
		}
		for _, spec := range []string{claimSpec, metadataSpec} {
			if _, err := os.Stat(filepath.Join(s.n.CDIDir, fmt.Sprintf(spec, c.UID))); err != nil && calm {
				return fmt.Errorf("no container of %s can start: %w", name, err)
			}
		}
	}
	if !calm || s.fails() {
		return nil
	}
	s.forgotten = nil
	for _, h := range held {
		if c := s.claims[h.Name]; c == nil || c.UID != h.UID {
			return fmt.Errorf("the node still holds %s %s, which is gone", h.Name, h.UID)
		}
	}
	return nil
}

// checkTenants checks that no two claims have one device, unless they share it.
func (s *life) checkTenants(held []claim.Claim) error {
	for i, a := range held {
		for _, b := range held[:i] {
			for _, x := range a.Devices {
				for _, y := range b.Devices {
					if kind.Excludes(s.partitions[x.Name.Address], kind.Holding{Name: x.Name, Share: x.ShareID != nil}, kind.Holding{Name: y.Name, Share: y.ShareID != nil}) {
						return fmt.Errorf("%s has %s, and %s has %s", a.Name, x.Name, b.Name, y.Name)
					}
				}
			}
		}
	}
	return nil
}

// checkMachine checks that the hardware and the supervisor have what claims hold, and nothing
// else.
func (s *life) checkMachine(held []claim.Claim) error {
	if time.Since(s.disturbed) <= repairTime && len(held) > 0 || s.fails() {
		return nil
	}
	want, daemons := map[string]bool{}, map[string]bool{}
	for _, h := range held {
		for _, d := range h.Devices {
			if d.Name.IsPartition() {
				want[fmt.Sprintf("%s %s@%d", d.Name.Address, d.Name.Profile, d.Name.Start)] = true
			}
			if d.Strategy() == v1alpha1.StrategyMPS {
				daemons[d.Name.MPSDaemon().String()] = true
			}
		}
	}
	view, err := s.sim().View()
	if err != nil {
		return err
	}
	got := map[string]bool{}
	for _, g := range view.GPUs {
		for _, in := range g.Instances {
			got[fmt.Sprintf("%s %s@%d", g.Address, in.Profile, in.Start)] = true
		}
	}
	if !maps.Equal(want, got) {
		return fmt.Errorf("claims hold the MIG devices %v, and the GPUs have %v", want, got)
	}
	running := map[string]bool{}
	for _, name := range s.supervisor.names() {
		running[name] = true
	}
	if !maps.Equal(daemons, running) {
		return fmt.Errorf("claims need the daemons %v, and %v run", daemons, running)
	}
	return nil
}

// calm ends all disturbances and claims, and checks that nothing of them is left.
func (s *life) calm() error {
	s.note("all disturbances end")
	s.apiFails.Store(false)
	s.supervisorFails.Store(false)
	if err := s.lose(0, 1); err != nil {
		return err
	}
	if err := s.offer(0, -1); err != nil {
		return err
	}
	if s.agent == nil {
		if err := s.start(); err != nil {
			return err
		}
	}
	s.pass(repairTime)
	if err := s.check(); err != nil {
		return err
	}
	for which := range claimNames {
		if err := s.finish(which, 0); err != nil {
			return err
		}
	}
	s.pass(repairTime)
	if err := s.check(); err != nil {
		return err
	}
	if left := append(s.n.left(s.t), files.List(s.t, s.n.CDIDir)...); len(left) > 0 {
		return fmt.Errorf("files are left: %q", left)
	}
	return s.uninstall()
}

// uninstall ends the last agent of a release, which leaves nothing.
func (s *life) uninstall() error {
	if err := s.n.client.AppsV1().DaemonSets("gpus").Delete(s.t.Context(), "agent", metav1.DeleteOptions{}); err != nil {
		return err
	}
	if err := s.stop(0, 0); err != nil {
		return err
	}
	left := append(files.List(s.t, s.n.KubeletPluginsDir), files.List(s.t, s.n.CDIDir)...)
	if len(left) > 0 {
		return fmt.Errorf("the driver leaves files: %q", left)
	}
	return nil
}
