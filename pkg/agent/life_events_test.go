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
	"strings"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
	"github.com/gpu-dra/gpu-dra-driver/simulator/nvmlsim"
	"github.com/gpu-dra/gpu-dra-driver/test/allocator"
	"github.com/gpu-dra/gpu-dra-driver/test/files"
)

// claim returns one of the claims in the API, or nil.
func (s *life) claim(which int) *livingClaim {
	return s.oneOf(which, func(*livingClaim) bool { return true })
}

// preparedClaim returns one of the claims that the kubelet has prepared. If there is none, it
// creates and prepares one. It returns nil if the node cannot.
func (s *life) preparedClaim(which, how int) (*livingClaim, error) {
	isPrepared := func(c *livingClaim) bool { return c.prepared }
	if c := s.oneOf(which, isPrepared); c != nil {
		return c, nil
	}
	err := s.prepare(which, how)
	return s.oneOf(which, isPrepared), err
}

func (s *life) oneOf(which int, is func(*livingClaim) bool) *livingClaim {
	var all []*livingClaim
	for _, name := range slices.Sorted(maps.Keys(s.claims)) {
		if is(s.claims[name]) {
			all = append(all, s.claims[name])
		}
	}
	if len(all) == 0 {
		return nil
	}
	return all[which%len(all)]
}

func (s *life) create(which, how int) error {
	return s.createNamed(fmt.Sprintf("c%d", which), requests()[(s.created+how)%len(requests())])
}

// createNamed creates a claim and allocates it, if the scheduler finds devices.
func (s *life) createNamed(name string, request resourceapi.DeviceClaim) error {
	if s.claims[name] != nil {
		return nil
	}
	pool := resourceslice.Pool{}
	for _, slice := range s.slices() {
		pool.Slices = append(pool.Slices, resourceslice.Slice{Devices: slice.Spec.Devices, SharedCounters: slice.Spec.SharedCounters})
	}
	s.scheduler.Publish(resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{s.n.NodeName: pool}})
	results, err := s.scheduler.Allocate(s.t.Context(), name, request)
	if errors.Is(err, allocator.ErrNoFit) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("the scheduler fails: %w", err)
	}
	s.created++
	c := &livingClaim{inGroup: s.created%6 == 5, ResourceClaim: &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, UID: types.UID(fmt.Sprintf("uid-%d", s.created))},
		Spec:       resourceapi.ResourceClaimSpec{Devices: request},
		Status:     resourceapi.ResourceClaimStatus{Allocation: &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{Results: results}}},
	}}
	published := s.lines()
	for _, other := range s.claims {
		other.hidden = other.hidden || slices.ContainsFunc(strings.Fields(other.devices()), func(device string) bool { return published[device] == "" })
	}
	s.reserve(c)
	if _, err := s.n.client.ResourceV1().ResourceClaims("team").Create(s.t.Context(), c.ResourceClaim, metav1.CreateOptions{}); err != nil {
		return err
	}
	s.claims[name] = c
	s.note("created %s %s with %s", name, c.UID, c.devices())
	if s.isOnHandmade(c) && s.answers() && !s.fails() && s.knowsCuts() {
		return fmt.Errorf("%s gets a part of %s, which was made by hand", name, s.handmade)
	}
	return nil
}

func (c *livingClaim) devices() string {
	var all []string
	for _, r := range c.Status.Allocation.Devices.Results {
		all = append(all, r.Device)
	}
	return strings.Join(all, " ")
}

// requests returns the device requests of claims.
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
		one("share.nvidia.com", 1, "16Gi", ""), one("gpu.nvidia.com", 2, "", ""),
		one("mig.nvidia.com", 1, "", `device.capacity["gpu.nvidia.com"].memory.compareTo(quantity("15Gi")) > 0`),
	} {
		all = append(all, resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{r}})
	}
	second := one("mig.nvidia.com", 1, "", "")
	second.Name = "second"
	return append(all, resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{one("share.nvidia.com", 1, "4Gi", ""), second}})
}

// prepare prepares a claim as the kubelet does. The node refuses only what it cannot do now.
func (s *life) prepare(which, how int) error {
	if len(s.claims) == 0 {
		if err := s.create(which, how); err != nil {
			return err
		}
	}
	if c := s.claim(which); c != nil {
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
	prepared, unsure := map[*livingClaim]bool{}, map[*livingClaim]bool{}
	for _, c := range claims {
		prepared[c], unsure[c] = c.prepared, c.unsure
		c.unsure = true
		objects = append(objects, c.ResourceClaim)
	}
	if err := s.writeCheckpoint(); err != nil {
		return err
	}
	waited := s.disk.waited.Load()
	answers, failed := s.agent.kubelet.Prepare(ctx, objects...)
	if ctx.Err() != nil && s.disk.waited.Load() == waited {
		return fmt.Errorf("the kubelet waits for %v: %w", kubeletPatience, failed)
	}
	for _, c := range claims {
		answer, err := answers[string(c.UID)], failed
		if text := answer.GetError(); text != "" {
			err = errors.New(text)
		}
		s.note("prepare %s: %v", c.Name, err)
		if err != nil {
			if !s.mayRefuse(c) && s.disk.waited.Load() == waited {
				return fmt.Errorf("%s is refused: %w", c.Name, err)
			}
			if !prepared[c] && !unsure[c] && ctx.Err() == nil && s.disk.waited.Load() == waited {
				if err := s.checkUndone(c); err != nil {
					return err
				}
			}
			continue
		}
		if s.damaged[c.UID] && prepared[c] {
			return fmt.Errorf("%s is prepared again without its record", c.Name)
		}
		delete(s.damaged, c.UID)
		if s.isOnFaulty(c) && !prepared[c] && !unsure[c] {
			return fmt.Errorf("%s gets a device of a GPU with a fault", c.Name)
		}
		if s.isGiven(c) && !prepared[c] && !unsure[c] {
			return fmt.Errorf("%s gets a device of a GPU that a device plugin has given to a pod", c.Name)
		}
		if s.isOnHandmade(c) {
			return fmt.Errorf("%s gets a part of a GPU that an administrator has cut off by hand", c.Name)
		}
		var got []string
		for _, d := range answer.Devices {
			if !slices.ContainsFunc(d.CdiDeviceIds, func(id string) bool { return strings.HasPrefix(id, "gpu.nvidia.com/claim=") }) {
				return fmt.Errorf("%s gets %s without its CDI device: %s", c.Name, d.DeviceName, d.CdiDeviceIds)
			}
			got = append(got, d.DeviceName)
		}
		if want := c.devices(); strings.Join(got, " ") != want {
			return fmt.Errorf("%s gets %s, want %s", c.Name, got, want)
		}
		c.prepared, c.unsure = true, false
		if !slices.ContainsFunc(s.containers, ofClaim(c.UID)) {
			if err := s.startContainer(c, s.created%2 == 0, s.created%3 == 0 && !s.fails()); err != nil {
				return err
			}
		}
	}
	return nil
}

// mayRefuse reports whether the node may refuse a claim now: something that it needs fails, a
// claim that was deleted may hold the devices, a GPU has a fault or a MIG device that was made by hand, or the record was lost.
func (s *life) mayRefuse(c *livingClaim) bool {
	return s.fails() || len(s.forgotten) > 0 || s.isOnFaulty(c) || s.isGiven(c) || s.isOnHandmade(c) || s.isGivenAway(c) || s.damaged[c.UID] || s.intruded == c
}

// isGivenAway reports whether another claim has what a claim got before the offer changed. The node publishes a withdrawn
// device only while a prepared claim holds it, and the scheduler does not count a device that is not published.
func (s *life) isGivenAway(c *livingClaim) bool {
	hasIt := func(other *livingClaim) bool {
		return other != c && (other.prepared || other.unsure) && slices.ContainsFunc(other.Status.Allocation.Devices.Results, func(r resourceapi.DeviceRequestAllocationResult) bool {
			name, err := kind.Parse(r.Device)
			return err == nil && s.excludes(c, name)
		})
	}
	return c.hidden && s.oneOf(0, hasIt) != nil
}

// fails reports whether something that the node needs fails.
func (s *life) fails() bool {
	return s.lost || s.failsBesidesGPUs()
}

// failsBesidesGPUs leaves out a GPU that is lost, which keeps no claim from its end.
func (s *life) failsBesidesGPUs() bool {
	return s.apiFails.Load() != nil || s.supervisorFails.Load() || s.disk.fails() || s.disk.isSlow() || time.Now().Before(s.slowUntil)
}

// loseAnswer prepares a claim, and the kubelet does not get the answer.
func (s *life) loseAnswer(which, how int) error {
	c := s.claim(which)
	if c == nil || s.agent == nil {
		return nil
	}
	ctx, cancel := context.WithCancel(s.t.Context())
	defer cancel()
	c.unsure = true
	if err := s.writeCheckpoint(); err != nil {
		return err
	}
	timer := time.AfterFunc(time.Duration(how)*time.Millisecond, cancel)
	defer timer.Stop()
	if how%2 == 0 {
		_, _ = s.agent.kubelet.Prepare(ctx, c.ResourceClaim)
	} else {
		if err := s.kill(ofClaim(c.UID)); err != nil {
			return err
		}
		_ = s.agent.kubelet.Unprepare(ctx, c.ResourceClaim)
		c.prepared = false
	}
	s.note("no answer about %s (%d)", c.Name, how)
	return nil
}

func (s *life) unprepare(which, _ int) error {
	c := s.claim(which)
	if c == nil || s.agent == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(s.t.Context(), kubeletPatience)
	defer cancel()
	if err := s.kill(ofClaim(c.UID)); err != nil {
		return err
	}
	err := s.agent.kubelet.Unprepare(ctx, c.ResourceClaim)
	s.note("unprepare %s: %v", c.Name, err)
	if err != nil {
		c.prepared, c.unsure = false, true
		// Nothing shows that a pod of an earlier claim with the name, which was deleted by force, is not this one's.
		if !s.failsBesidesGPUs() && !s.mayUse(c.Name) {
			return fmt.Errorf("unprepare %s: %w", c.Name, err)
		}
		return nil
	}
	c.prepared, c.unsure = false, false
	delete(s.damaged, c.UID)
	return s.writeCheckpoint()
}

// finish ends a claim as Kubernetes does: the kubelet unprepares it before it goes.
func (s *life) finish(which, how int) error {
	c := s.claim(which)
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
	return errors.Join(s.writeCheckpoint(), s.n.client.ResourceV1().ResourceClaims("team").Delete(s.t.Context(), c.Name, metav1.DeleteOptions{}))
}

// force deletes a claim in the API while the node has it, and the kubelet forgets it.
func (s *life) force(which, _ int) error {
	c := s.claim(which)
	if c == nil {
		return nil
	}
	if c.prepared || c.unsure {
		s.forgotten = append(s.forgotten, c)
		s.disturbed = time.Now()
	}
	return s.remove(c)
}

// recreate deletes a claim by force and creates another of its name, also with the same request.
func (s *life) recreate(which, how int) error {
	c := s.claim(which)
	if c == nil {
		return nil
	}
	request := c.Spec.Devices
	if how%2 == 0 {
		request = requests()[how%len(requests())]
	}
	return errors.Join(s.force(which, how), s.createNamed(c.Name, request))
}

func (s *life) stop(int, int) error {
	if s.agent == nil {
		return s.start()
	}
	err := s.agent.stop()
	s.agent, s.stopped = nil, time.Now()
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
	err := old.stop()
	s.stopped = time.Now()
	return err
}

// disturb makes the API server fail, by an answer that says nothing about a claim, or work again.
func (s *life) disturb(_, how int) error {
	failures := []error{
		apierrors.NewInternalError(errors.New("etcd has no leader")),
		apierrors.NewTooManyRequests("later", 30),
		apierrors.NewGenericServerResponse(http.StatusNotFound, "get", resourceapi.Resource("resourceclaims"), "", "404 page not found", 0, true),
	}
	s.apiFails.Store(nil)
	if how < len(failures) {
		s.apiFails.Store(&failures[how])
		s.note("the API server fails: %v", failures[how])
	} else {
		s.note("the API server works")
	}
	s.disturbed = time.Now()
	return nil
}

// disturbSupervisor makes the supervisor go and come, or lose its daemons.
func (s *life) disturbSupervisor(_, how int) error {
	s.disturbed = time.Now()
	if how == 7 {
		s.endDaemons()
		s.note("the supervisor has lost its daemons")
		return nil
	}
	s.supervisorFails.Store(how%3 == 0)
	s.note("the supervisor is away: %t", s.supervisorFails.Load())
	return nil
}

// endDaemons ends all daemons. That of a claim without a record is not started again.
func (s *life) endDaemons() {
	s.supervisor.mu.Lock()
	defer s.supervisor.mu.Unlock()
	clear(s.supervisor.daemons)
	maps.Copy(s.ended, s.damaged)
}

// mend ends what keeps the node from its work.
func (s *life) mend(int, int) error {
	s.note("all works again")
	s.apiFails.Store(nil)
	s.supervisorFails.Store(false)
	if err := errors.Join(s.disturbDisk(0, 3), s.lose(0, 1)); err != nil || s.agent != nil {
		return err
	}
	return s.start()
}

// lose makes a GPU go without a word, and all come back.
func (s *life) lose(which, how int) error {
	if !s.lost && how%3 != 0 {
		return nil
	}
	var before map[string]string
	if s.agent != nil && which%2 == 0 && len(s.forgotten) == 0 && !s.fails() {
		s.pass(2 * scanTime) // ends what goes on
		before = s.lines()
	}
	s.disturbed = time.Now()
	if s.lost = how%3 == 0; !s.lost {
		s.note("every GPU answers")
		if err := s.sim.ClearFaults(); err != nil {
			return err
		}
		if s.unasked {
			return s.declareRepaired() // an agent that was away has no evidence: it has not seen the loss
		}
		s.endFaults()
		return nil
	}
	view, err := s.sim.View()
	if err != nil {
		return err
	}
	s.note("GPU %d is lost", which%len(view.GPUs))
	if err := s.sim.LoseGPUSilently(which % len(view.GPUs)); err != nil || before == nil {
		return err
	}
	s.pass(scanTime)
	now := s.lines()
	for name := range before {
		if now[name] == "" {
			return fmt.Errorf("without GPU %d the node does not publish %s any more", which%len(view.GPUs), name)
		}
	}
	return nil
}

// slow makes calls of a GPU hang for some seconds each.
func (s *life) slow(which, how int) error {
	view, err := s.sim.View()
	if err != nil {
		return err
	}
	index, hang := which%len(view.GPUs), []time.Duration{time.Second, 3 * time.Second, 8 * time.Second, 20 * time.Second}[how%4]
	s.note("%d calls of GPU %d take %v", how+1, index, hang)
	s.disturbed = time.Now()
	if !time.Now().Before(s.slowUntil) {
		s.slowFor = 0
	}
	s.slowFor += time.Duration(how+1) * hang
	s.slowUntil = time.Now().Add(s.slowFor + scanTime)
	s.gpuSlowUntil = s.slowUntil
	return s.sim.FailCalls(nvmlsim.CallFault{Method: nvmlsim.EveryMethod, GPU: &index, Hang: nvmlsim.Duration(hang), Count: how + 1})
}

func (s *life) cleanCDI(int, int) error {
	s.disturbed = time.Now()
	s.note("cleaned the CDI folder")
	for _, name := range files.List(s.t, s.n.CDIDir) {
		// Nothing else shows the devices of a claim whose record was lost.
		if slices.ContainsFunc(slices.Collect(maps.Keys(s.damaged)), func(uid types.UID) bool { return strings.Contains(name, string(uid)) }) {
			continue
		}
		if err := os.Remove(filepath.Join(s.n.CDIDir, name)); err != nil {
			return err
		}
	}
	return nil
}

// reboot restarts the machine: pods start again, and the kubelet prepares their claims again.
func (s *life) reboot(_, how int) error {
	s.pass(max(0, time.Until(time.Unix(0, s.disk.until.Load())))) // no write of an agent outlives a reboot
	if s.agent != nil {
		if err := s.stop(0, 0); err != nil {
			return err
		}
	}
	if err := errors.Join(s.kill(func(*container) bool { return true }), s.sim.Reboot()); err != nil {
		return err
	}
	s.note("rebooted")
	s.forgetCut()
	s.endFaults()
	s.endDaemons()
	for _, c := range s.claims {
		c.unsure, c.prepared = c.unsure || c.prepared, false
	}
	if how%2 == 0 {
		clear(s.damaged)
		if err := s.cleanCDI(0, 0); err != nil {
			return err
		}
	}
	if err := s.start(); err != nil {
		return err
	}
	s.pass(soon)
	maps.Copy(s.unmade, s.damaged)
	held, err := s.agent.claims.Held(s.t.Context())
	for _, h := range held {
		if !s.damaged[h.UID] {
			return fmt.Errorf("after a reboot the node holds %s, which is not prepared", h.Name)
		}
	}
	return err
}

// reload unloads the driver and loads it again, for which nothing may use it: claims that the kubelet has
// prepared wait for their pods.
func (s *life) reload(int, int) error {
	if len(s.damaged) > 0 {
		return nil // without its record nothing makes the MIG device of a claim again
	}
	if s.agent != nil {
		if err := s.stop(0, 0); err != nil {
			return err
		}
	}
	if err := errors.Join(s.kill(func(*container) bool { return true }), s.sim.ClearFaults()); err != nil {
		return err
	}
	view, err := s.sim.View()
	if err != nil {
		return err
	}
	for index := range view.GPUs {
		if err := s.sim.ResetGPU(index); err != nil {
			return err
		}
	}
	module := filepath.Join(s.sim.Root(), "sys/module/nvidia")
	// The old folder stays elsewhere, so that its inode is not given to the new one.
	if err := os.Rename(module, fmt.Sprintf("%s-%d", module, s.started)); err != nil {
		return err
	}
	if err := writeFiles(map[string]string{filepath.Join(module, "version"): view.DriverVersion + "\n"}); err != nil {
		return err
	}
	s.note("reloaded the driver")
	s.lost, s.wasReset = false, time.Now()
	s.forgetCut()
	s.endFaults()
	s.endDaemons()
	return s.start()
}

// unknown is an offer that the node may not have recorded.
const unknown = "unknown"

// offer changes what the node offers, by its labels, and ends mistakes.
func (s *life) offer(_, how int) error {
	labels := map[string]string{}
	if offers := []string{"", "share", "mig", "share.mig.timeslice"}; how >= 0 && how < len(offers) {
		labels[v1alpha1.LabelOffer] = offers[how]
	}
	if how >= 4 && how < 7 {
		labels[v1alpha1.LabelConfig] = []string{"halves", "slots", "kept"}[how-4]
	}
	if s.kept = s.kept || how == 6; s.kept {
		s.disturbed = time.Now()
	}
	s.note("labels %v", labels)
	s.n.setConfigs(s.t, configs)
	s.n.setLabels(s.t, labels)
	if s.told = fmt.Sprint(labels); s.disk.fails() {
		s.told = unknown
	}
	return nil
}

func (s *life) wait(_, how int) error {
	long := []time.Duration{time.Second, 10 * time.Second, time.Minute, 6 * time.Minute, time.Hour}[how%5]
	s.note("%v pass", long)
	s.pass(long)
	return nil
}
