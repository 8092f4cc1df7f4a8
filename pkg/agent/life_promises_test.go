// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
	"github.com/gpu-dra/gpu-dra-driver/simulator/nvmlsim"
	"github.com/gpu-dra/gpu-dra-driver/test/files"
)

// check compares prepared claims with the records, and the records with the machine.
func (s *life) check() error {
	if s.agent == nil {
		return nil
	}
	held, err := s.agent.claims.Held(s.t.Context())
	if err != nil {
		return err
	}
	return errors.Join(s.checkPromises(held), s.checkTenants(held), s.checkContainers(held), s.checkMachine(held), s.checkOffer(held))
}

// isKept reports whether the node holds the devices of a claim whose containers may run.
func (s *life) isKept(h claim.Claim) bool {
	return h.Phase == claim.Prepared || h.Phase == claim.Unrecorded && s.damaged[h.UID]
}

// checkOffer checks what a node publishes, a minute after the last change: what it did under the
// same labels before, and no withdrawn device unless a claim holds it.
func (s *life) checkOffer(held []claim.Claim) error {
	if err := errors.Join(s.checkTaints(), s.checkHeld(held)); err != nil {
		return err
	}
	if len(held) > 0 || len(s.claims) > 0 || s.fails() || len(s.faulty)+len(s.cordoned) > 0 || s.given != "" || s.handmade != nil || !s.knowsCuts() || s.told == unknown || time.Since(s.changed) <= time.Minute {
		return nil
	}
	now := s.published()
	if s.offers[s.told] == "" {
		s.offers[s.told] = now
	}
	if want := s.offers[s.told]; strings.Contains(now, v1alpha1.TaintWithdrawn) || now != want {
		return fmt.Errorf("with the labels %s the node publishes\n%s\nwant\n%s", s.told, now, want)
	}
	s.took["offer checked"]++
	return nil
}

// checkHeld checks that the node publishes each device that a claim holds, and knows no other as
// held. A minute after the last change it publishes, besides them, what it offers.
func (s *life) checkHeld(held []claim.Claim) error {
	if !s.answers() || s.disk.fails() || time.Since(s.marked) < soon {
		return nil
	}
	devices, known := devicesOf(held), s.known()
	if !maps.Equal(known, devices) { // a round may just have released a claim
		s.pass(soon)
		var err error
		if held, err = s.agent.claims.Held(s.t.Context()); err != nil {
			return err
		}
		devices, known = devicesOf(held), s.known()
	}
	if !maps.Equal(known, devices) {
		if time.Since(s.stopped) <= roundTime+soon {
			return nil // the agent before may have released a claim while this one began, which finds it in its next round
		}
		return fmt.Errorf("claims hold %v, and the node knows %v", devices, known)
	}
	published := s.lines()
	for name := range devices {
		if published[name] == "" {
			return fmt.Errorf("the node does not publish %s, which a claim holds", name)
		}
	}
	if s.offers[s.told] == "" || s.fails() || s.handmade != nil || !s.knowsCuts() || time.Since(s.changed) <= time.Minute {
		return nil
	}
	inLayout, offered := strings.Contains(s.told, "kept"), map[string]bool{}
	for line := range strings.Lines(s.offers[s.told]) {
		offered[strings.Fields(line)[0]] = true
	}
	for name := range devices {
		if inLayout && !offered[name] {
			return nil // the scheduler does not count devices of a layout, so those beside this one are not published
		}
	}
	maps.Copy(devices, offered)
	for name, line := range published {
		if !devices[name] || !offered[name] && !strings.Contains(line, v1alpha1.TaintWithdrawn) {
			return fmt.Errorf("with the labels %s the node publishes %s, which it does not offer", s.told, line)
		}
	}
	if len(devices) != len(published) {
		return fmt.Errorf("with the labels %s the node publishes %v, want %v", s.told, published, devices)
	}
	s.took["offer beside claims checked"]++
	return nil
}

// devicesOf returns the names of the devices that claims hold.
func devicesOf(held []claim.Claim) map[string]bool {
	devices := map[string]bool{}
	for _, h := range held {
		for _, d := range h.Devices {
			devices[d.Name.String()] = true
		}
	}
	return devices
}

// known returns the names of the devices that the node knows as held.
func (s *life) known() map[string]bool {
	devices := map[string]bool{}
	for name := range s.agent.known.state.Snapshot().Claimed.Held {
		devices[name.String()] = true
	}
	return devices
}

// checkTaints checks that exactly the devices of faulty and cordoned GPUs have these taints.
func (s *life) checkTaints() error {
	if !s.answers() || time.Since(s.marked) < soon {
		return nil
	}
	for _, slice := range s.slices() {
		for _, d := range slice.Spec.Devices {
			name, err := kind.Parse(d.Name)
			if err != nil {
				return err
			}
			whole := kind.Whole(name.Address).String()
			for key, want := range map[string]bool{v1alpha1.TaintUnhealthy: s.faulty[whole], v1alpha1.TaintCordoned: s.cordoned[whole]} {
				if got := slices.ContainsFunc(d.Taints, func(taint resourceapi.DeviceTaint) bool { return taint.Key == key }); got != want {
					return fmt.Errorf("%s has the taint %s: %t, want %t", d.Name, key, got, want)
				}
			}
			isInUse := func(t resourceapi.DeviceTaint) bool { return t.Key == v1alpha1.TaintInUse }
			isGiven := func(t resourceapi.DeviceTaint) bool { return isInUse(t) && t.Value == v1alpha1.InUseTaintDevicePlugin }
			if whole == s.given && !slices.ContainsFunc(d.Taints, isInUse) || whole != s.given && slices.ContainsFunc(d.Taints, isGiven) {
				return fmt.Errorf("a device plugin has given %q to a pod, and %s has the taints %v", s.given, d.Name, d.Taints)
			}
		}
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
		if at < 0 || !s.isKept(held[at]) {
			return fmt.Errorf("the node does not hold %s, which the kubelet has prepared", name)
		}
		made, err := s.isMade(c)
		if err != nil {
			return err
		}
		for _, spec := range []string{claimSpec, metadataSpec} {
			// Upstream writes metadata when it prepares a claim, which it reads from the API server. A MIG device that a
			// reset has removed is made again by an agent that can record it. No container starts without its GPU.
			restored := calm && (spec == claimSpec || s.apiFails.Load() == nil) && (made || !s.disk.fails()) && !s.lost
			text, err := os.ReadFile(filepath.Join(s.n.CDIDir, fmt.Sprintf(spec, c.UID)))
			if closed := strings.Contains(string(text), "/dev/nvidia-unavailable"); (err != nil || closed) && restored {
				return fmt.Errorf("no container of %s can start: %s, %v", name, text, err) //nolint:errorlint // err may be nil
			}
		}
	}
	if !calm || s.fails() {
		return nil
	}
	s.forgotten = slices.DeleteFunc(s.forgotten, func(c *livingClaim) bool { return !s.mayUse(c.Name) })
	for _, h := range held {
		switch c := s.claims[h.Name]; {
		case c != nil && c.UID == h.UID:
		case !s.mayUse(h.Name):
			return fmt.Errorf("the node still holds %s %s, which is gone", h.Name, h.UID)
		case time.Since(s.marked) > 2*roundTime:
			published := s.lines()
			for _, d := range h.Devices {
				if !strings.Contains(published[d.Name.String()], v1alpha1.TaintInUse) {
					return fmt.Errorf("claims may get %s, which %s holds, which is gone", d.Name, h.Name)
				}
			}
		}
	}
	return nil
}

// lines returns what the node publishes of each device.
func (s *life) lines() map[string]string {
	lines := map[string]string{}
	for line := range strings.Lines(s.published()) {
		lines[strings.Fields(line)[0]] = line
	}
	return lines
}

// checkTenants checks that no two claims have one device, unless they share it and its memory is enough.
func (s *life) checkTenants(held []claim.Claim) error {
	left := map[string]int64{}
	for _, slice := range s.slices() {
		for _, d := range slice.Spec.Devices {
			memory := d.Capacity[v1alpha1.CapacityMemory].Value
			left[d.Name] = memory.Value()
		}
	}
	for i, a := range held {
		for _, d := range a.Devices {
			name := d.Name.String()
			if _, known := left[name]; !known {
				continue
			}
			if left[name] -= int64(d.Terms.Memory()); left[name] < 0 {
				return fmt.Errorf("shares have %d bytes more than %s", -left[name], name)
			}
		}
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
	calm := time.Since(s.disturbed) > repairTime
	if !calm && len(held) > 0 || s.fails() {
		return nil
	}
	want, daemons, possible := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, h := range held {
		for _, d := range h.Devices {
			// Without its record nothing makes the MIG device again that a reboot has removed.
			if d.Name.IsPartition() && (h.Phase != claim.Unrecorded || !s.unmade[h.UID]) {
				want[madeAs(d.Name)] = true
			}
			switch isLost := h.Phase == claim.Unrecorded; {
			case isLost && (d.ShareID == nil || s.ended[h.UID]):
				possible[d.Name.MPSDaemon().String()] = true
			case isLost || d.Strategy() == v1alpha1.StrategyMPS:
				daemons[d.Name.MPSDaemon().String()] = true
			}
		}
	}
	view, err := s.sim.View()
	if err != nil {
		return err
	}
	// A node that keeps MIG devices leaves the mode, also without one of them.
	mayKeep := !s.knowsCuts() || s.kept && (!calm || strings.Contains(s.told, "kept") || s.told == unknown)
	handmade, stands := "", s.handmade == nil
	if s.handmade != nil {
		handmade = madeAs(*s.handmade)
	}
	got := map[string]bool{}
	for _, g := range view.GPUs {
		if g.MIG == "on" && len(g.Instances) == 0 && !mayKeep {
			return fmt.Errorf("%s is in MIG mode without a claim", g.Address)
		}
		for _, in := range g.Instances {
			switch name := madeAt(g, in); {
			case name == handmade:
				stands = true
			case want[name] || !s.keeps(g.Address, in) && (calm || !s.kept):
				got[name] = true
			default:
				s.took["MIG device kept"]++
			}
		}
	}
	if !stands {
		return fmt.Errorf("%s, which was made by hand, is gone", handmade)
	}
	if !maps.Equal(want, got) {
		return fmt.Errorf("claims hold the MIG devices %v, and the GPUs have %v", want, got)
	}
	running := map[string]bool{}
	for _, name := range s.supervisor.names() {
		// One that has ended runs again with another share. One that ran before a claim, whose record was then lost, stays.
		if daemons[name] || !possible[name] {
			running[name] = true
		}
	}
	if !calm && len(s.ended) > 0 {
		return nil // a claim without a record ends also while the supervisor is away, and a round stops its daemon
	}
	if !maps.Equal(daemons, running) {
		return fmt.Errorf("claims need the daemons %v, and %v run", daemons, running)
	}
	return nil
}

// madeAs names a MIG device that claims can have as [madeAt] does one that is there.
func madeAs(name kind.Name) string {
	return fmt.Sprintf("%s %s@%d", name.Address, name.Profile, name.Start)
}

func madeAt(g nvmlsim.GPUView, in nvmlsim.InstanceView) string {
	return fmt.Sprintf("%s %s@%d", g.Address, in.Profile, in.Start)
}

// keeps reports whether the node keeps a MIG device without claims.
func (s *life) keeps(address string, in nvmlsim.InstanceView) bool {
	profile, err := gpu.ParseProfile(in.Profile)
	if err != nil {
		return false
	}
	at, err := gpu.ParsePCIAddress(address)
	return err == nil && s.agent.known.state.Configuration.Get().Followed.Keeps(kind.Partition(at, profile, in.Start))
}

// calm ends all disturbances and claims, and checks that nothing of them is left.
func (s *life) calm() error {
	clear(s.cordoned)
	if err := errors.Join(s.mend(0, 0), s.repair(0, 1), s.endPlugin(), s.uncut(), s.annotate(v1alpha1.AnnotationCordoned, ""), s.offer(0, -1)); err != nil {
		return err
	}
	var err error
	if s.started%2 == 0 {
		err = s.kill(s.isGone)
	} else {
		err = s.cleanCDI(0, 0)
	}
	if err != nil {
		return err
	}
	s.pass(repairTime + time.Minute)
	if err := errors.Join(s.check(), s.checkMetrics(), s.checkRestart(), s.kill(func(*container) bool { return true })); err != nil {
		return err
	}
	for which := range claimNames {
		if err := s.finish(which, 0); err != nil {
			return err
		}
	}
	s.pass(repairTime + time.Minute)
	if err := errors.Join(s.check(), s.checkMetrics()); err != nil {
		return err
	}
	if err := s.readQuarantine(); err != nil {
		return err
	}
	if left := append(s.n.left(s.t), files.List(s.t, s.n.CDIDir)...); len(left) > 0 {
		return fmt.Errorf("files are left: %q", left)
	}
	return s.uninstall()
}

// checkMetrics checks that the metrics count the claims that the node holds.
func (s *life) checkMetrics() error {
	held, err := s.agent.claims.Held(s.t.Context())
	if err != nil {
		return err
	}
	_, metrics := get(s.t, s.agent.agent, "/metrics")
	if want := fmt.Sprintf("gpu_dra_claims_held %d\n", len(held)); !strings.Contains(metrics, want) {
		return fmt.Errorf("the metrics lack %s", want)
	}
	return nil
}

// checkRestart checks that an agent that is started again, also by a release that was uninstalled in
// between, publishes the same after its first round, in its first minute.
func (s *life) checkRestart() error {
	before := s.published()
	reinstalls := s.created%2 == 0
	if reinstalls {
		if err := s.deleteDaemonSet(); err != nil {
			return err
		}
	}
	if err := s.restart(0, 0); err != nil {
		return err
	}
	if reinstalls {
		s.n.installed(s.t)
	}
	s.pass(90 * time.Second)
	now := s.published()
	if len(s.damaged) > 0 {
		// A claim without a record is known to be unneeded by a call of the kubelet only, which repeats it.
		unneeded := regexp.MustCompile(" " + v1alpha1.TaintInUse + `=\S+`)
		before, now = unneeded.ReplaceAllString(before, ""), unneeded.ReplaceAllString(now, "")
	}
	if now != before {
		return fmt.Errorf("after a restart the node publishes\n%s\nwant\n%s", now, before)
	}
	return errors.Join(s.check(), s.checkMetrics())
}

// checkUndone checks that nothing is left of a claim that was refused, unless undoing failed too.
func (s *life) checkUndone(c *livingClaim) error {
	if s.disk.fails() || s.supervisorFails.Load() || s.lost || time.Now().Before(s.gpuSlowUntil) || s.damaged[c.UID] {
		return nil
	}
	held, err := s.agent.claims.Held(s.t.Context())
	if slices.ContainsFunc(held, func(h claim.Claim) bool { return h.UID == c.UID }) {
		return fmt.Errorf("%s was refused, and holds its devices", c.Name)
	}
	return err
}

func (s *life) deleteDaemonSet() error {
	return s.n.client.AppsV1().DaemonSets("gpus").Delete(s.t.Context(), "agent", metav1.DeleteOptions{})
}

// uninstall ends the last agent of a release, which leaves nothing.
func (s *life) uninstall() error {
	if err := s.deleteDaemonSet(); err != nil {
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

// readQuarantine removes damaged records after a look, as an administrator does.
func (s *life) readQuarantine() error {
	folder := filepath.Join(s.n.driverDir(), "agent/claims/quarantine")
	names := files.List(s.t, folder)
	s.took["file in quarantine"] += len(names)
	for _, name := range names {
		if err := os.Remove(filepath.Join(folder, name)); err != nil {
			return err
		}
	}
	return nil
}
