// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"k8s.io/apimachinery/pkg/types"
)

// cgroups is where the hierarchies of cgroup v1 are, one for each controller.
const cgroups = "/sys/fs/cgroup"

// stuckScript starts a process and prints its PID. It ends the process when its standard input ends, and so at the
// latest with the program that has the other end. Its argument is the cgroup for the process. A frozen process
// handles SIGKILL only when it is thawed.
const stuckScript = `mkdir "$0" || exit
sleep infinity &
echo $!
read -r _
kill -KILL $!
echo THAWED >"$0/freezer.state"
wait
rmdir "$0"`

// Stuck is a process of a pod that no signal ends, like one waiting in a GPU
// driver. It is frozen, and a frozen process handles no signal. It does not belong
// to the pod's containers, so to the kubelet the pod has ended.
type Stuck struct {
	script *exec.Cmd
	stdin  io.Closer
	pid    int
}

// NewStuck starts such a process. It ends with [Stuck.End], or with this program. NewStuck
// returns [errors.ErrUnsupported] if the machine has cgroup v2 only: SIGKILL, which the
// kubelet sends to all processes of a pod, ends a process that cgroup v2 has frozen.
func NewStuck(ctx context.Context, pod types.UID) (_ *Stuck, err error) {
	freezer := filepath.Join(cgroups, "freezer")
	if _, err := os.Stat(freezer); err != nil {
		return nil, fmt.Errorf("make a process of pod %s that is stuck, with cgroup v1: %w: %w", pod, errors.ErrUnsupported, err)
	}
	frozen := filepath.Join(freezer, "gpu-dra-stuck-"+string(pod))
	s := &Stuck{script: exec.CommandContext(context.WithoutCancel(ctx), "sh", "-c", stuckScript, frozen)}
	s.script.Stderr = os.Stderr
	// An interrupt from the terminal does not reach it.
	s.script.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if s.stdin, err = s.script.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := s.script.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := s.script.Start(); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("make a process of pod %s that is stuck: %w", pod, errors.Join(err, s.End()))
		}
	}()
	if _, err := fmt.Fscan(stdout, &s.pid); err != nil {
		return nil, fmt.Errorf("read its PID: %w", err)
	}
	groups, err := cgroupsOf(pod)
	if err != nil {
		return nil, err
	}
	for _, group := range append(groups, frozen) {
		if err := os.WriteFile(filepath.Join(group, "cgroup.procs"), []byte(strconv.Itoa(s.pid)), 0o600); err != nil {
			return nil, err
		}
	}
	return s, os.WriteFile(filepath.Join(frozen, "freezer.state"), []byte("FROZEN"), 0o600)
}

// PID of the process.
func (s *Stuck) PID() int { return s.pid }

// End ends the process. It may be called twice.
func (s *Stuck) End() error {
	if s.script.ProcessState != nil {
		return nil
	}
	return errors.Join(s.stdin.Close(), s.script.Wait())
}

// cgroupsOf returns the folders of a pod's cgroups in all hierarchies but the
// freezer's.
func cgroupsOf(pod types.UID) ([]string, error) {
	hierarchies, err := os.ReadDir(cgroups)
	if err != nil {
		return nil, err
	}
	var groups []string
	for _, h := range hierarchies {
		if h.Name() == "freezer" || h.Name() == "unified" {
			continue
		}
		err := filepath.WalkDir(filepath.Join(cgroups, h.Name()), func(path string, entry fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil // another pod has ended meanwhile
			}
			if err == nil && entry.IsDir() && strings.HasSuffix(entry.Name(), "pod"+string(pod)) {
				groups = append(groups, path)
				return fs.SkipDir
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	if len(groups) == 0 {
		return nil, fmt.Errorf("pod %s has no cgroup below %s", pod, cgroups)
	}
	return groups, nil
}
