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
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/disk/store"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
	"github.com/gpu-dra/gpu-dra-driver/simulator/nvmlsim"
)

// disk is the state of the disk with the records.
type disk struct {
	full, readOnly atomic.Bool
	// slow is the number of writes of claims that take the time of hang each. until is when the last of them
	// has ended and its calls with it, in nanoseconds.
	slow, hang, until atomic.Int64
	// refused counts the calls that failed, and waited those that took long.
	refused, waited atomic.Int64
	// worked is when the disk last worked again.
	worked time.Time
}

func (d *disk) fails() bool { return d.full.Load() || d.readOnly.Load() }

func (d *disk) isSlow() bool { return d.slow.Load() > 0 || time.Now().UnixNano() < d.until.Load() }

// failingDisk is a disk that fails as its state says.
type failingDisk struct {
	store.FS
	*disk
}

// WriteNew implements [store.FS]. A full disk has a part of the file.
func (d *failingDisk) WriteNew(path string, data []byte) error {
	if strings.Contains(path, "/claims/") && d.slow.Add(-1) >= 0 {
		d.waited.Add(1)
		d.until.Store(time.Now().Add(time.Duration(d.hang.Load()) + scanTime).UnixNano())
		time.Sleep(time.Duration(d.hang.Load())) //nolint:forbidigo // the clock is the bubble's
	}
	if err := d.check(); err != nil {
		return err
	}
	if !d.full.Load() {
		return d.FS.WriteNew(path, data)
	}
	d.refused.Add(1)
	return errors.Join(d.FS.WriteNew(path, data[:len(data)/2]), &os.PathError{Op: "write", Path: path, Err: unix.ENOSPC})
}

// Rename implements [store.FS].
func (d *failingDisk) Rename(from, to string) error {
	if err := d.check(); err != nil {
		return err
	}
	return d.FS.Rename(from, to)
}

// Remove implements [store.FS].
func (d *failingDisk) Remove(path string) error {
	if err := d.check(); err != nil {
		return err
	}
	return d.FS.Remove(path)
}

func (d *failingDisk) check() error {
	if !d.readOnly.Load() {
		return nil
	}
	d.refused.Add(1)
	return unix.EROFS
}

// disturbDisk makes the disk with the records full, read-only, slow, or work again.
func (s *life) disturbDisk(_, how int) error {
	s.disturbed = time.Now()
	if s.disk.fails() {
		s.disk.worked = time.Now()
	}
	s.disk.full.Store(how%4 == 0)
	s.disk.readOnly.Store(how%4 == 1)
	s.disk.slow.Store(0)
	if how%4 == 2 {
		hang := []time.Duration{3 * time.Second, 20 * time.Second}[how/4]
		s.disk.hang.Store(int64(hang))
		s.disk.slow.Store(int64(how))
	}
	s.note("the disk is full: %t, read-only: %t, slow for %d writes", s.disk.full.Load(), s.disk.readOnly.Load(), s.disk.slow.Load())
	return nil
}

// damage damages the record of a claim whose CDI spec still shows its devices.
func (s *life) damage(which, how int) error {
	c, err := s.preparedClaim(which, how)
	if c == nil || err != nil || s.damaged[c.UID] {
		return err
	}
	if slices.ContainsFunc(s.containers, func(one *container) bool { return one.hides && one.claim.UID == c.UID }) {
		return nil // nothing else shows its pod
	}
	if time.Now().Before(s.slowUntil) || s.disk.isSlow() {
		return nil // an agent that works on the claim may write its record again
	}
	if made, err := s.isMade(c); !made || err != nil {
		return err // without its record nothing makes the MIG device again that a reset has removed
	}
	file := filepath.Join(s.n.driverDir(), "agent/claims", string(c.UID)+".record")
	exists := func(path string) bool {
		_, err := os.Stat(path)
		return err == nil
	}
	if !exists(file) || !exists(filepath.Join(s.n.CDIDir, fmt.Sprintf(claimSpec, c.UID))) {
		return nil
	}
	content, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	ways := []string{"is truncated", "is empty", "has another byte", "is gone"}
	switch how % len(ways) {
	case 0:
		err = os.WriteFile(file, content[:len(content)/2], 0o600)
	case 1:
		err = os.WriteFile(file, nil, 0o600)
	case 2:
		content[len(content)-len(content)/3]++
		err = os.WriteFile(file, content, 0o600)
	case 3:
		err = os.Remove(file)
	}
	s.damaged[c.UID], s.ended[c.UID] = true, len(s.supervisor.names()) == 0
	s.note("the record of %s %s", c.Name, ways[how%len(ways)])
	if how < len(ways) || s.agent == nil || s.fails() {
		return err
	}
	s.pass(2 * roundTime)
	if exists(file) {
		return fmt.Errorf("the damaged record of %s is still in its place", c.Name)
	}
	return err
}

// isMade reports whether the MIG devices of a claim are there.
func (s *life) isMade(c *livingClaim) (bool, error) {
	view, err := s.sim.View()
	if err != nil {
		return false, err
	}
	there := map[string]bool{}
	for _, g := range view.GPUs {
		for _, in := range g.Instances {
			there[madeAt(g, in)] = true
		}
	}
	for _, r := range c.Status.Allocation.Devices.Results {
		name, err := kind.Parse(r.Device)
		if err != nil || name.IsPartition() && !there[madeAs(name)] {
			return false, err
		}
	}
	return true, nil
}

// isOnFaulty reports whether a claim has a device of a GPU of which a fault was reported.
func (s *life) isOnFaulty(c *livingClaim) bool { return s.isOn(c, s.faulty) }

// isOn reports whether a claim has a device of some GPUs.
func (s *life) isOn(c *livingClaim, gpus map[string]bool) bool {
	for _, r := range c.Status.Allocation.Devices.Results {
		if name, err := kind.Parse(r.Device); err == nil && gpus[kind.Whole(name.Address).String()] {
			return true
		}
	}
	return false
}

// answers reports whether an agent runs that sees its GPUs.
func (s *life) answers() bool {
	return s.agent != nil && !s.lost && !s.disk.isSlow() && !time.Now().Before(s.slowUntil)
}

// gpuAt returns the index of a GPU and the name of its device.
func (s *life) gpuAt(which int) (index int, device string, err error) {
	view, err := s.sim.View()
	if err != nil {
		return 0, "", err
	}
	index = which % len(view.GPUs)
	address, err := gpu.ParsePCIAddress(view.GPUs[index].Address)
	return index, kind.Whole(address).String(), err
}

// report makes the driver report a fault of a GPU, and mostly that it needs a reset.
func (s *life) report(which, how int) error {
	if !s.answers() || s.disk.fails() {
		return nil
	}
	index, device, err := s.gpuAt(which)
	if err != nil {
		return err
	}
	if how%3 != 0 {
		err = s.sim.SetRecovery(index, nvmlsim.RecoveryGPUReset)
	} else {
		s.unasked = true
	}
	if err := errors.Join(err, s.sim.ReportXID(index, 119)); err != nil {
		return err
	}
	s.faulty[device] = true
	s.marked, s.disturbed = time.Now(), time.Now()
	s.note("%s reports XID 119", device)
	s.pass(soon)
	return nil
}

// repair ends what the driver asks for, for GPUs that nothing uses mostly by a reset, and says that all are repaired.
func (s *life) repair(_, how int) error {
	if len(s.faulty) == 0 {
		return nil
	}
	view, err := s.sim.View()
	if err != nil {
		return err
	}
	for index, g := range view.GPUs {
		address, err := gpu.ParsePCIAddress(g.Address)
		if err != nil {
			return err
		}
		device := kind.Whole(address).String()
		isUsed := len(g.Instances) > 0 || len(g.Processes) > 0
		if !s.faulty[device] {
			continue
		}
		if how%2 == 0 && !isUsed {
			err = s.sim.ResetGPU(index)
		} else {
			err = s.sim.SetRecovery(index, nvmlsim.RecoveryNone)
		}
		if err != nil {
			return err
		}
	}
	s.note("faulty GPUs are repaired (%d)", how)
	return s.declareRepaired()
}

// declareRepaired says to the node that no GPU has a fault.
func (s *life) declareRepaired() error {
	s.endFaults()
	return s.annotate(v1alpha1.AnnotationRepaired, "all@"+time.Now().Add(s.ahead).UTC().Format(time.RFC3339Nano))
}

// endFaults notes that the faults of all GPUs have ended, which the node finds by a scan.
func (s *life) endFaults() {
	clear(s.faulty)
	s.unasked = false
	s.awaitScan()
}

// awaitScan notes that the node finds a change by a scan.
func (s *life) awaitScan() {
	s.disturbed = time.Now()
	if scanned := time.Now().Add(scanTime); scanned.After(s.slowUntil) {
		s.slowUntil = scanned
	}
}

// plugin lets a device plugin give a GPU to a pod, or its pod ends.
func (s *life) plugin(which, how int) error {
	index, device, err := s.gpuAt(which)
	if err != nil {
		return err
	}
	if s.given != "" || how%2 == 0 {
		return s.endPlugin()
	}
	s.given = device
	s.kubelet.give(fmt.Sprintf("nvidia%d", index))
	s.note("a device plugin gives %s to a pod", device)
	s.awaitScan()
	return nil
}

// endPlugin ends the pod of the device plugin.
func (s *life) endPlugin() error {
	if s.given == "" {
		return nil
	}
	s.note("the pod with %s ends", s.given)
	s.given = ""
	s.kubelet.give()
	s.awaitScan()
	return nil
}

// isGiven reports whether a claim has a device of the GPU that a device plugin has given to a pod.
func (s *life) isGiven(c *livingClaim) bool {
	return s.given != "" && s.isOn(c, map[string]bool{s.given: true})
}

// cordon takes a GPU out of use or puts it back. Some values have a mistake.
func (s *life) cordon(which, how int) error {
	_, device, err := s.gpuAt(which)
	if err != nil {
		return err
	}
	if s.cordoned[device] {
		delete(s.cordoned, device)
	} else {
		s.cordoned[device] = true
	}
	s.marked = time.Now()
	value := strings.Join(slices.Sorted(maps.Keys(s.cordoned)), ",")
	if how%2 == 0 {
		value = "evil, gpu-zz-00-ts," + value
	}
	s.note("cordoned are %q", value)
	return s.annotate(v1alpha1.AnnotationCordoned, value)
}

func (s *life) annotate(name, value string) error {
	node, err := s.n.client.CoreV1().Nodes().Get(s.t.Context(), s.n.NodeName, metav1.GetOptions{})
	if err != nil {
		return err
	}
	metav1.SetMetaDataAnnotation(&node.ObjectMeta, name, value)
	_, err = s.n.client.CoreV1().Nodes().Update(s.t.Context(), node, metav1.UpdateOptions{})
	return err
}

// configs are the configurations that a label of the node can name.
const configs = `
plain: {offer: []}
halves: {offer: [share], shares: {smallest: 8Gi}}
slots: {offer: [share, timeslice], timeslice: {slots: 4}}
kept: {offer: [mig], mig: {layout: small, keep: true}}
`

// smallLayout is the layout of the configuration "kept", for the model with MIG on demand.
const smallLayout = `
version: v1
mig-configs: {small: [{device-filter: "0x233510DE", devices: all, mig-enabled: true, mig-devices: {1g.18gb: 7}}]}
`

// mistake makes a mistake in what the node is told to offer. It goes on as before.
func (s *life) mistake(_, how int) error {
	if len(s.forgotten) > 0 || s.told == unknown || !s.knowsCuts() {
		return nil
	}
	if err := s.mend(0, 0); err != nil {
		return err
	}
	s.pass(2 * scanTime)
	if s.fails() {
		return nil
	}
	before := s.published()
	switch how % 5 {
	case 0:
		s.n.setConfigs(s.t, "plain: {offer: [")
	case 1:
		s.n.setConfigs(s.t, strings.ReplaceAll(configs, "offer:", "ofer:"))
	case 2:
		s.n.setConfigs(s.t, strings.ReplaceAll(configs, "[share", "[share, whole"))
	case 3:
		s.n.setLabels(s.t, map[string]string{v1alpha1.LabelConfig: "training"})
	case 4:
		s.n.setLabels(s.t, map[string]string{v1alpha1.LabelOffer: "share.whole"})
	}
	s.note("a mistake (%d)", how%5)
	if how%2 == 1 && len(s.damaged) == 0 {
		if err := s.restart(0, 0); err != nil {
			return err
		}
		s.pass(2 * roundTime)
	}
	s.pass(10 * time.Second)
	if now := s.published(); now != before {
		return fmt.Errorf("after a mistake the node publishes\n%s\nwant\n%s", now, before)
	}
	return nil
}
