// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// cgroups is where the hierarchies of cgroup v1 are, one for each controller.
const cgroups = "/sys/fs/cgroup"

// Stuck is a process of a pod that no signal ends, like one waiting in a GPU
// driver. It is frozen, and a frozen process handles no signal. It does not belong
// to the pod's containers, so to the kubelet the pod has ended.
type Stuck struct {
	cmd    *exec.Cmd
	frozen string // its cgroup of the freezer
}

// NewStuck starts such a process. The caller ends it with [Stuck.End].
func NewStuck(ctx context.Context, pod types.UID) (_ *Stuck, err error) {
	s := &Stuck{cmd: exec.CommandContext(context.WithoutCancel(ctx), "sleep", "infinity")}
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("make a process of pod %s that is stuck: %w", pod, errors.Join(err, s.End()))
		}
	}()
	groups, err := cgroupsOf(pod)
	if err != nil {
		return nil, err
	}
	for _, group := range groups {
		if err := s.join(group); err != nil {
			return nil, err
		}
	}
	s.frozen = filepath.Join(cgroups, "freezer", fmt.Sprintf("gpu-dra-stuck-%d", s.PID()))
	if err := os.Mkdir(s.frozen, 0o755); err != nil {
		return nil, err
	}
	if err := s.join(s.frozen); err != nil {
		return nil, err
	}
	return s, os.WriteFile(filepath.Join(s.frozen, "freezer.state"), []byte("FROZEN"), 0o600)
}

// PID of the process.
func (s *Stuck) PID() int { return s.cmd.Process.Pid }

// End thaws and ends the process. It may be called twice.
func (s *Stuck) End() error {
	if s.cmd.ProcessState != nil {
		return nil
	}
	var errs []error
	if s.frozen != "" {
		errs = append(errs, os.WriteFile(filepath.Join(s.frozen, "freezer.state"), []byte("THAWED"), 0o600))
	}
	errs = append(errs, s.cmd.Process.Kill())
	_ = s.cmd.Wait() // it was killed
	if s.frozen != "" {
		errs = append(errs, os.Remove(s.frozen))
	}
	return errors.Join(errs...)
}

func (s *Stuck) join(group string) error {
	return os.WriteFile(filepath.Join(group, "cgroup.procs"), []byte(strconv.Itoa(s.PID())), 0o600)
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
		return nil, fmt.Errorf("pod %s has no cgroup below %s; this needs cgroup v1, as the test cluster has it", pod, cgroups)
	}
	return groups, nil
}
