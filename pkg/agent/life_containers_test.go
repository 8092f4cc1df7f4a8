// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/place"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
	"github.com/gpu-dra/gpu-dra-driver/pkg/node/podresources"
	"github.com/gpu-dra/gpu-dra-driver/simulator/nvmlsim"
	"github.com/gpu-dra/gpu-dra-driver/simulator/simerr"
)

// container is a container of a pod with the devices of a claim, and its process.
type container struct {
	claim    *livingClaim
	pod      types.UID
	pid      int
	holdings []kind.Holding
	// hides is set if the container does not show the files of its claim.
	hides bool
}

// kernel makes the files in which a kernel without containers shows processes.
func (s *life) kernel() error {
	groups := filepath.Join(string(s.n.kernel), "proc/1/root/sys/fs/cgroup")
	err := writeFiles(map[string]string{
		filepath.Join(groups, "cgroup.procs"):                    "",
		filepath.Join(string(s.n.kernel), "proc/1/cgroup"):       "0::/init.scope\n",
		filepath.Join(string(s.n.kernel), "proc/1/mountinfo"):    "24 1 0:22 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
		filepath.Join(string(s.n.kernel), "proc/self/mountinfo"): "1 0 254:1 / / rw - ext4 /dev/vda1 rw\n",
		filepath.Join(string(s.n.kernel), s.checkpoint()):        "",
	})
	return errors.Join(err, s.writeCheckpoint())
}

// writeFiles writes files, and makes their folders.
func writeFiles(contents map[string]string) error {
	for file, content := range contents {
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(content), 0o600)); err != nil {
			return err
		}
	}
	return nil
}

func (s *life) checkpoint() string {
	return filepath.Join(hostRoot, filepath.Dir(s.n.KubeletPluginsDir), podresources.CheckpointName)
}

// writeCheckpoint writes which pods the kubelet has for each claim.
func (s *life) writeCheckpoint() error {
	type info struct {
		ClaimUID types.UID
		PodUIDs  map[types.UID]struct{}
	}
	var infos []info
	for _, name := range slices.Sorted(maps.Keys(s.claims)) {
		if c := s.claims[name]; c.prepared || c.unsure {
			pods := map[types.UID]struct{}{}
			for _, pod := range c.pods {
				pods[pod] = struct{}{}
			}
			infos = append(infos, info{c.UID, pods})
		}
	}
	data, err := json.Marshal(map[string]any{"apiVersion": "checkpoint.dra.kubelet.k8s.io/v1", "ClaimInfoStateList": infos})
	if err != nil {
		return err
	}
	text, err := json.Marshal(map[string]any{"Data": string(data), "Checksum": crc32.ChecksumIEEE(data)})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(string(s.n.kernel), s.checkpoint()), text, 0o600)
}

// reserve reserves a claim for another pod, or once for its PodGroup.
func (s *life) reserve(c *livingClaim) {
	s.pods++
	pod := types.UID(fmt.Sprintf("12345678-1234-1234-1234-%012d", s.pods))
	c.pods = append(c.pods, pod)
	switch {
	case !c.inGroup:
		c.Status.ReservedFor = append(c.Status.ReservedFor, resourceapi.ResourceClaimConsumerReference{
			Resource: "pods", Name: fmt.Sprintf("pod-%d", s.pods), UID: pod,
		})
	case len(c.Status.ReservedFor) == 0:
		c.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{APIGroup: "scheduling.k8s.io", Resource: "podgroups", Name: "group", UID: "group-uid"}}
	}
}

// run starts a container of the last pod of a prepared claim.
func (s *life) run(which, how int) error {
	c, err := s.preparedClaim(which, how)
	if c == nil || err != nil {
		return err
	}
	return s.startContainer(c, how%2 == 0, false)
}

func (s *life) startContainer(c *livingClaim, computes, hides bool) error {
	one := &container{claim: c, pod: c.pods[len(c.pods)-1], hides: hides}
	if err := s.addContainer(one); err != nil || !computes || s.fails() {
		return err
	}
	return s.compute(one)
}

// addContainer shows a container as the kernel does.
func (s *life) addContainer(one *container) error {
	one.pid = 1000 + len(s.story)
	for _, r := range one.claim.Status.Allocation.Devices.Results {
		name, err := kind.Parse(r.Device)
		if err != nil {
			return err
		}
		one.holdings = append(one.holdings, kind.Holding{Name: name, Share: r.ShareID != nil})
	}
	if err := s.begin(one); err != nil {
		return err
	}
	s.containers = append(s.containers, one)
	s.note("process %d of pod %s has %s, hides it: %t", one.pid, one.pod, one.claim.Name, one.hides)
	return nil
}

// intrude lets a pod without a claim compute on a GPU that a claim is to get.
func (s *life) intrude(which, _ int) error {
	if s.agent == nil {
		return nil
	}
	isToGetGPU := func(c *livingClaim) bool {
		r := c.Status.Allocation.Devices.Results[0]
		name, err := kind.Parse(r.Device)
		return err == nil && name.IsWholeGPU() && r.ShareID == nil && !c.prepared && !c.unsure && !s.damaged[c.UID]
	}
	c := s.oneOf(which, isToGetGPU)
	if c == nil {
		if err := s.createNamed(fmt.Sprintf("c%d", which), requests()[0]); err != nil {
			return err
		}
		c = s.oneOf(which, isToGetGPU)
	}
	if c == nil {
		return nil
	}
	one := &container{claim: c, pod: "87654321-1234-1234-1234-123456789012", hides: true}
	err := s.addContainer(one)
	if err == nil && s.compute(one) == nil {
		s.intruded = c
		err = s.prepareIn(c)
		s.intruded = nil
	}
	if err == nil && c.prepared {
		err = fmt.Errorf("%s gets a GPU on which another pod computes", c.Name)
	}
	return errors.Join(err, s.kill(func(c *container) bool { return c == one }))
}

// join lets another pod use a prepared claim, about which the node is not told.
func (s *life) join(which, how int) error {
	c, err := s.preparedClaim(which, how)
	if c == nil || err != nil {
		return err
	}
	s.reserve(c)
	if _, err := s.n.client.ResourceV1().ResourceClaims("team").UpdateStatus(s.t.Context(), c.ResourceClaim, metav1.UpdateOptions{}); err != nil {
		return err
	}
	if err := s.writeCheckpoint(); err != nil {
		return err
	}
	if how < 4 || s.agent == nil || s.fails() || s.damaged[c.UID] {
		return s.startContainer(c, how%2 == 0, false)
	}
	if err := s.startContainer(c, how%2 == 0, true); err != nil {
		return err
	}
	s.pass(joinTime)
	return nil
}

// begin shows a process as the kernel does.
func (s *life) begin(one *container) error {
	process := filepath.Join(string(s.n.kernel), "proc", strconv.Itoa(one.pid))
	metadata := filepath.Join(s.n.driverDir(), place.MetadataFolder("team", one.claim.Name), "gpu/metadata.json")
	mounts := "800 799 0:50 / / rw - overlay overlay rw\n"
	if !one.hides {
		mounts += "802 800 254:1 " + metadata + " /var/run/x rw - ext4 /dev/vda1 rw\n"
	}
	return writeFiles(map[string]string{
		filepath.Join(s.group(one), "cgroup.procs"): fmt.Sprintln(one.pid),
		filepath.Join(process, "stat"):              fmt.Sprintf("%d (python) S 1%s 7\n", one.pid, strings.Repeat(" 0", 17)),
		filepath.Join(process, "status"):            fmt.Sprintf("Name:\tpython\nNSpid:\t%d\t1\n", one.pid),
		filepath.Join(process, "cgroup"):            fmt.Sprintf("0::/kubepods/pod%s/%d\n", one.pod, one.pid),
		filepath.Join(process, "mountinfo"):         mounts,
	})
}

// group is the cgroup of a container.
func (s *life) group(one *container) string {
	return filepath.Join(string(s.n.kernel), "proc/1/root/sys/fs/cgroup/kubepods", "pod"+string(one.pod), strconv.Itoa(one.pid))
}

// compute lets a process compute on the devices that its claim has to itself.
func (s *life) compute(one *container) error {
	view, err := s.sim.View()
	if err != nil {
		return err
	}
	for _, h := range one.holdings {
		at := slices.IndexFunc(view.GPUs, func(g nvmlsim.GPUView) bool { return g.Address == h.Name.Address.String() })
		if h.Share || at < 0 {
			continue
		}
		p := nvmlsim.Process{PID: one.pid, MemoryBytes: 1 << 30}
		for _, in := range view.GPUs[at].Instances {
			if h.Name.IsPartition() && in.Profile == h.Name.Profile.String() && in.Start == h.Name.Start {
				p.Device = in.UUID
			}
		}
		if h.Name.IsPartition() && p.Device == "" && time.Since(s.wasReset) <= repairTime {
			continue // a round makes the MIG device again
		}
		if err := s.sim.AddProcess(at, p); err != nil {
			return fmt.Errorf("process %d does not compute on %s: %w", one.pid, h.Name, err)
		}
	}
	return nil
}

// exit ends a container, which may be one of a claim that was deleted by force.
func (s *life) exit(which, _ int) error {
	if len(s.containers) == 0 {
		return nil
	}
	one := s.containers[which%len(s.containers)]
	return s.kill(func(c *container) bool { return c == one })
}

// kill ends containers.
func (s *life) kill(which func(*container) bool) error {
	var errs []error
	for _, one := range s.containers {
		if !which(one) {
			continue
		}
		s.note("process %d ends", one.pid)
		errs = append(errs, os.RemoveAll(s.group(one)), os.RemoveAll(filepath.Join(string(s.n.kernel), "proc", strconv.Itoa(one.pid))))
		if err := s.sim.RemoveProcess(one.pid); !errors.Is(err, simerr.ErrNotFound) {
			errs = append(errs, err)
		}
		if s.isGone(one) {
			s.disturbed = time.Now()
		}
	}
	s.containers = slices.DeleteFunc(s.containers, which)
	return errors.Join(errs...)
}

// ofClaim selects the containers of a claim.
func ofClaim(claim types.UID) func(*container) bool {
	return func(c *container) bool { return c.claim.UID == claim }
}

// isGone reports whether the claim of a container was deleted by force.
func (s *life) isGone(one *container) bool { return s.claims[one.claim.Name] != one.claim }

// mayUse reports whether a container may have the devices of a gone claim with the name. The
// kernel shows names only.
func (s *life) mayUse(name string) bool {
	return slices.ContainsFunc(s.containers, func(one *container) bool { return one.claim.Name == name && s.isGone(one) })
}

// checkContainers checks that containers of two claims have no device in common, unless they share
// it, and that the node holds the claim of each.
func (s *life) checkContainers(held []claim.Claim) error {
	for i, a := range s.containers {
		if !slices.ContainsFunc(held, func(h claim.Claim) bool { return h.UID == a.claim.UID && s.isKept(h) }) {
			return fmt.Errorf("process %d has %s %s, which the node does not hold", a.pid, a.claim.Name, a.claim.UID)
		}
		for _, b := range s.containers[:i] {
			for _, x := range a.holdings {
				for _, y := range b.holdings {
					if a.claim != b.claim && kind.Excludes(s.partitions[x.Name.Address], x, y) {
						return fmt.Errorf("process %d has %s, and process %d has %s", a.pid, x.Name, b.pid, y.Name)
					}
				}
			}
		}
	}
	return nil
}
