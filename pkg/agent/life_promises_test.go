// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
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

// checkOffer checks what a node without claims offers, a minute after the last change: no device
// that is withdrawn, and without labels what it first did.
func (s *life) checkOffer(held []claim.Claim) error {
	if len(held) > 0 || len(s.claims) > 0 || s.fails() || time.Since(s.changed) <= time.Minute {
		return nil
	}
	now := s.published()
	if strings.Contains(now, v1alpha1.TaintWithdrawn) || !s.relabeled && now != s.fresh {
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
	s.forgotten = slices.DeleteFunc(s.forgotten, func(c *livingClaim) bool { return !s.mayUse(c.Name) })
	for _, h := range held {
		if c := s.claims[h.Name]; (c == nil || c.UID != h.UID) && !s.mayUse(h.Name) {
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
	s.pass(repairTime + time.Minute)
	if err := errors.Join(s.check(), s.kill(func(*container) bool { return true })); err != nil {
		return err
	}
	for which := range claimNames {
		if err := s.finish(which, 0); err != nil {
			return err
		}
	}
	s.pass(repairTime + time.Minute)
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
