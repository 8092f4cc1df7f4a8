// SPDX-License-Identifier: Apache-2.0

package procfs

import (
	"fmt"
	"os"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// Pods is one reading of the processes of pods.
type Pods struct {
	root   Root
	living map[string]int
	// first has the smallest PID of each container.
	first map[container]int
}

type container struct{ pod, id string }

// Pods reads the processes of pods. The error is not nil if any process could not be read:
// its pod is then unknown.
//
// The cgroup of a process decides, and no container can leave the cgroup of its pod.
// Sources: proc/PID/cgroup of each process, and proc/PID/stat of those in pods.
func (r Root) Pods() (Pods, error) {
	pods := Pods{root: r, living: map[string]int{}, first: map[container]int{}}
	err := r.eachGroups(func(pid int, groups string) error {
		var of container
		of.pod, of.id = containerOf(groups)
		if of.pod == "" {
			return nil
		}
		if known, ok := pods.first[of]; !ok || pid < known {
			pods.first[of] = pid
		}
		if pods.living[of.pod] != 0 {
			return nil
		}
		lives, err := r.lives(pid)
		if lives {
			pods.living[of.pod] = pid
		}
		return err
	})
	if err != nil {
		return Pods{}, err
	}
	return pods, nil
}

// Living returns the UIDs of the pods of which a process lived, each with the PID of one. A
// process that has ended and waits for its parent does not live.
func (p Pods) Living() map[string]int { return p.living }

// threadsField is the position of the number of threads in proc/PID/stat after the name:
// field 20 of all.
const threadsField = 20 - 3

// lives reports whether a thread of the process lives. A process is in the state of its
// first thread, which can end before the others.
func (r Root) lives(pid int) (bool, error) {
	stat, err := r.file(pid, "stat")
	if hasEnded(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	fields := fieldsOf(stat)
	if len(fields) <= threadsField {
		return false, fmt.Errorf("%w: stat %q", gpu.ErrCorrupt, stat)
	}
	dead := fields[0] == "Z" || fields[0] == "X"
	return !dead || fields[threadsField] != "0" && fields[threadsField] != "1", nil
}

// SeesPods reports whether this process sees the processes of pods: it is in the PID
// namespace of the host, and not in that of its pod. Source: proc/1/cgroup.
func (r Root) SeesPods() (bool, error) {
	if os.Getpid() == 1 {
		return false, nil
	}
	groups, err := r.file(1, "cgroup")
	if err != nil {
		return false, fmt.Errorf("process 1: %w", err)
	}
	pod, _ := containerOf(groups)
	return pod == "", nil
}
