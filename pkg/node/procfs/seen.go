// SPDX-License-Identifier: Apache-2.0

package procfs

import (
	"os"
	"path/filepath"
	"sync"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// mostSeen bounds the processes of each half of a [Seen]. A node has some hundreds with GPUs.
const mostSeen = 1024

// Seen remembers the pods of the processes that were read last, which may end. Its methods may be
// called from any goroutine.
type Seen struct {
	Root

	mu sync.Mutex
	// recent and older have the pods by PID. If recent is full, it replaces older.
	recent, older map[int]string
}

// Task is [Root.Task] that remembers the pod.
func (s *Seen) Task(pid int) (gpu.Task, error) {
	task, err := s.Root.Task(pid)
	if err != nil {
		return task, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.recent == nil || len(s.recent) >= mostSeen {
		s.recent, s.older = map[int]string{}, s.recent
	}
	s.recent[pid] = task.PodUID
	return task, nil
}

// PodOf returns the UID of the pod of a process. If it has ended, the last process with the PID
// counts. PodOf returns "" if no process is known, and for one that is in no pod.
func (s *Seen) PodOf(pid int) string {
	if task, err := s.Task(pid); err == nil {
		return task.PodUID
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if pod, found := s.recent[pid]; found {
		return pod
	}
	return s.older[pid]
}

// IsMachine reports whether the processes have the PIDs that the kernel logs. They have if they
// are in the machine's own PID namespace, not in that of a container that plays a node. The number
// of the machine's namespace is fixed. Source: proc/self/ns/pid; PROC_PID_INIT_INO of Linux.
func (r Root) IsMachine() bool {
	namespace, err := os.Readlink(filepath.Join(string(r), "proc/self/ns/pid"))
	return err == nil && namespace == "pid:[4026531836]"
}
