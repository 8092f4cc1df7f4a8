// SPDX-License-Identifier: Apache-2.0

package supervisor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"k8s.io/klog/v2"

	"github.com/gpu-dra/gpu-dra-driver/pkg/disk/folder"
)

// Leave ends a supervisor whose socket is closed. If it has no daemons, it removes the
// files of supervisors: the socket, the daemons' folder, the logs of ended daemons, the
// cgroup, and the log directory unless that is a mount point. It leaves unknown files
// alone. If it has daemons, it removes nothing: clients use them, and the next
// supervisor adopts them.
//
// The empty run directory stays: an agent in a container has it mounted and would not
// find the socket of the next supervisor in a new directory. It is on a file system that
// is empty after a boot.
func (s *Supervisor) Leave(ctx context.Context, socket string) error {
	s.end()
	s.mu.Lock()
	leaving := len(s.daemons) == 0
	s.leaving = leaving
	s.mu.Unlock()
	var err error
	if leaving {
		if err = s.removeAll(ctx, socket); err != nil {
			err = fmt.Errorf("leave %s and %s: %w", s.options.RunDir, s.options.LogDir, err)
		}
	}
	// Another supervisor can start from here on.
	return errors.Join(err, s.lock.Close())
}

func (s *Supervisor) removeAll(ctx context.Context, socket string) error {
	errs := []error{s.removeLogs(ctx), s.options.removeCgroup(), folder.Remove(s.options.daemons()), folder.Remove(s.options.LogDir)}
	if info, err := os.Lstat(socket); err == nil && info.Mode().Type() == fs.ModeSocket {
		errs = append(errs, os.Remove(socket))
	}
	return errors.Join(errs...)
}

// removeLogs removes the log folders of the daemons.
func (s *Supervisor) removeLogs(ctx context.Context) error {
	entries, err := os.ReadDir(s.options.LogDir)
	errs := []error{err}
	for _, e := range entries {
		if err := validateName(e.Name()); err != nil || !e.IsDir() {
			klog.FromContext(ctx).Info("Ignoring unknown file among logs of MPS daemons", "path", filepath.Join(s.options.LogDir, e.Name()))
			continue
		}
		path := filepath.Join(s.options.LogDir, e.Name())
		errs = append(errs, emptyFolder(ctx, path), folder.Remove(path))
	}
	return errors.Join(errs...)
}
