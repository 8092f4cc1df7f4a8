// SPDX-License-Identifier: Apache-2.0

package nvmlsim

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
)

// changingFile exists while a change of the tree and the state is under way. A program that
// was killed leaves it.
func (s *Sim) changingFile() string { return filepath.Join(s.dir, "changing") }

// commit changes the tree and then the state. The caller holds the lock. If it is killed in
// between, [Sim.repair] makes the tree follow the state, which is the old or the new one.
func (s *Sim) commit(before, after *State) error {
	if !changesTree(before, after) {
		return s.save(after)
	}
	if err := os.WriteFile(s.changingFile(), nil, 0o644); err != nil {
		return fmt.Errorf("change the simulated node: %w", err)
	}
	if err := s.tree().sync(before, after); err != nil {
		return err
	}
	if err := s.save(after); err != nil {
		return err
	}
	return s.unmark()
}

// changesTree reports whether the tree may differ between two states. The rest of the state
// is not in it.
func changesTree(before, after *State) bool {
	if before.BootID != after.BootID {
		return true
	}
	for i := range before.GPUs {
		b, a := before.GPUs[i], after.GPUs[i]
		// nvidia-smi does not print processes.
		b.Processes, a.Processes = nil, nil
		if !reflect.DeepEqual(b, a) {
			return true
		}
	}
	return false
}

// repair makes the tree follow the state if a program was killed while it changed the node.
// The caller holds the lock.
func (s *Sim) repair(st *State) error {
	if _, err := os.Lstat(s.changingFile()); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := s.tree().restore(st); err != nil {
		return fmt.Errorf("repair the simulated node: %w", err)
	}
	return s.unmark()
}

func (s *Sim) unmark() error {
	if err := os.Remove(s.changingFile()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("change the simulated node: %w", err)
	}
	return nil
}

// repairOpened repairs the node when it is opened. A process that may not change the node leaves
// the repair to the next one that may.
func (s *Sim) repairOpened() error {
	if _, err := os.Lstat(s.changingFile()); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	unlock, err := lock(s.dir)
	if err == nil {
		defer unlock()
		var st *State
		// Another process may have repaired it meanwhile.
		if st, err = s.load(); err == nil {
			err = s.repair(st)
		}
	}
	if isRefused(err) {
		return nil
	}
	return err
}
