// SPDX-License-Identifier: Apache-2.0

package store

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

func write(t *testing.T, path string) {
	t.Helper()
	must(t, os.WriteFile(path, []byte("not a record"), 0o600))
}

func TestWhatAStoreHolds(t *testing.T) {
	for name, tc := range map[string]struct {
		fill  func(t *testing.T, s *Store)
		empty bool
		// left after it was removed.
		left []string
	}{
		"nothing": {fill: func(*testing.T, *Store) {}, empty: true},
		"a record": {
			fill: func(t *testing.T, s *Store) {
				must(t, s.Write("a", nil))
			},
			left: []string{"a.record"},
		},
		"a record that was deleted": {
			fill: func(t *testing.T, s *Store) {
				must(t, errors.Join(s.Write("a", nil), s.Delete("a")))
			},
			empty: true,
		},
		"a damaged record": {
			fill: func(t *testing.T, s *Store) { write(t, filepath.Join(s.dir, "a.record")) },
			left: []string{"a.record"},
		},
		"a record with a key of another release": {
			fill: func(t *testing.T, s *Store) { write(t, filepath.Join(s.dir, "a_b.record")) },
			left: []string{"a_b.record"},
		},
		"a record in quarantine": {
			fill: func(t *testing.T, s *Store) {
				must(t, errors.Join(s.Write("a", nil), s.Quarantine("a", "a test")))
			},
			left: []string{"quarantine/a.record", "quarantine/a.record.reason"},
		},
		"the rest of a crashed write, however young": {
			fill:  func(t *testing.T, s *Store) { write(t, filepath.Join(s.dir, "a.tmp")) },
			empty: true,
		},
		"a user's file": {
			fill:  func(t *testing.T, s *Store) { write(t, filepath.Join(s.dir, "notes")) },
			empty: true, left: []string{"notes"},
		},
		"a user's folder with the name of a crashed write": {
			fill: func(t *testing.T, s *Store) {
				must(t, os.Mkdir(filepath.Join(s.dir, "a.tmp"), 0o700))
				write(t, filepath.Join(s.dir, "a.tmp/notes"))
			},
			empty: true, left: []string{"a.tmp/notes"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, filepath.Join(t.TempDir(), "records"))
			tc.fill(t, s)
			if empty, err := s.Empty(); empty != tc.empty || err != nil {
				t.Errorf("empty: %v, %v, want %v", empty, err, tc.empty)
			}
			if err := s.Remove(); err != nil {
				t.Error(err)
			}
			if len(tc.left) == 0 {
				_, err := os.Stat(s.dir)
				require.Error(t, "the directory", err, fs.ErrNotExist)
				return
			}
			require.Same(t, "left", tc.left, tree(t, s.dir))
		})
	}
}

func TestAStoreThatIsGoneIsEmptyAndRemoved(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "records"))
	if err := errors.Join(s.Remove(), s.Remove()); err != nil {
		t.Error(err)
	}
	if empty, err := s.Empty(); !empty || err != nil {
		t.Errorf("empty: %v, %v", empty, err)
	}
}

func TestAStoreThatCannotBeListedIsNotEmpty(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "records"))
	must(t, errors.Join(s.Remove(), os.WriteFile(s.dir, nil, 0o600)))
	if empty, err := s.Empty(); empty || err == nil || !strings.Contains(err.Error(), s.dir) {
		t.Errorf("empty: %v, %v, want an error that names the directory", empty, err)
	}
}
