// SPDX-License-Identifier: Apache-2.0

package store

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

func open(t *testing.T, dir string) *Store {
	t.Helper()
	s, err := Open(dir, Disk{})
	must(t, err)
	return s
}

// tree lists every file under dir, relative to it.
func tree(t *testing.T, dir string) []string {
	t.Helper()
	var files []string
	must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			rel, _ := filepath.Rel(dir, path)
			files = append(files, rel)
		}
		return err
	}))
	return files
}

// fileSystems returns the implementations of FS that programs use.
func fileSystems() map[string]FS { return map[string]FS{"synced": Disk{}, "unsynced": Unsynced{}} }

func TestRecordsComeBackByteForByte(t *testing.T) {
	for name, fsys := range fileSystems() {
		t.Run(name, func(t *testing.T) { recordsComeBack(t, fsys) })
	}
}

func recordsComeBack(t *testing.T, fsys FS) {
	s, err := Open(t.TempDir(), fsys)
	must(t, err)
	payloads := map[string]string{"b": "", "a-1": "{\"x\": 1}\n", "C": "record 1 sha256:00\n\x00\xff"}
	for key, payload := range payloads {
		must(t, s.Write(key, []byte("an older one")))
		must(t, s.Write(key, []byte(payload)))
	}
	require.Same(t, "files", []string{"C.record", "a-1.record", "b.record"}, tree(t, s.dir))
	// A second store on the same directory simulates another process.
	other := open(t, s.dir)
	for key, payload := range payloads {
		got, err := other.Read(key)
		must(t, err)
		require.Same(t, key, payload, string(got))
	}
	keys, err := other.Keys()
	must(t, err)
	require.Same(t, "keys", []string{"C", "a-1", "b"}, keys)
	must(t, other.Delete("b"))
	if err := other.Delete("b"); err != nil {
		t.Errorf("deleting it again: %v", err)
	}
	_, err = s.Read("b")
	require.Error(t, "reading a deleted record", err, fs.ErrNotExist)
}

func TestFilesAreForTheOwnerOnly(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "records")
	s := open(t, dir)
	must(t, s.Write("a", nil))
	for path, want := range map[string]fs.FileMode{".": 0o700, "quarantine": 0o700, "a.record": 0o600} {
		info, err := os.Stat(filepath.Join(dir, path))
		must(t, err)
		if got := info.Mode().Perm(); got != want {
			t.Errorf("%s: mode %o, want %o", path, got, want)
		}
	}
}

func TestKeysCannotNameOtherFiles(t *testing.T) {
	s := open(t, t.TempDir())
	for _, key := range []string{"", ".", "..", "../a", "a/b", "/etc/passwd", "a.b", "-a", "a-", "a\x00", "a\n", "ä", strings.Repeat("a", 129)} {
		_, readErr := s.Read(key)
		for op, err := range map[string]error{"read": readErr, "write": s.Write(key, nil), "delete": s.Delete(key), "quarantine": s.Quarantine(key, "")} {
			if err == nil || !strings.Contains(err.Error(), "record key") {
				t.Errorf("%s %q: %v, want the key refused", op, key, err)
			}
		}
	}
}

func TestEveryDamageIsNoticed(t *testing.T) {
	good := string(encode([]byte(`{"claim":"a"}`)))
	for name, c := range map[string]struct {
		data string
		want error
	}{
		"empty, as after a power cut":    {"", ErrCorrupt},
		"cut off in the header":          {good[:10], ErrCorrupt},
		"cut off in the payload":         {good[:len(good)-1], ErrCorrupt},
		"more than was written":          {good + " ", ErrCorrupt},
		"a flipped bit":                  {strings.Replace(good, "claim", "clahm", 1), ErrCorrupt},
		"another header":                 {"{}\n" + good, ErrCorrupt},
		"a header without checksum":      {"record 1\n{}", ErrCorrupt},
		"version zero":                   {strings.Replace(good, " 1 ", " 0 ", 1), ErrCorrupt},
		"a version that is not a number": {strings.Replace(good, " 1 ", " x ", 1), ErrCorrupt},
		"the next release's format":      {strings.Replace(good, " 1 ", " 2 ", 1), ErrNewer},
		"the next release's other shape": {"record 2 blake3 zstd\n\x00", ErrNewer},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, t.TempDir())
			must(t, os.WriteFile(filepath.Join(s.dir, "a.record"), []byte(c.data), 0o600))
			_, err := s.Read("a")
			require.Error(t, "Read", err, c.want)
			keys, err := s.Keys()
			if diff := cmp.Diff([]string{"a"}, keys); diff != "" || err != nil {
				t.Errorf("an unreadable record must still be listed: %v (-want +got):\n%s", err, diff)
			}
		})
	}
}

func TestQuarantineKeepsTheRecordAndTheReason(t *testing.T) {
	s := open(t, t.TempDir())
	for _, payload := range []string{"first", "second"} {
		must(t, s.Write("a", []byte(payload)))
		must(t, s.Quarantine("a", "because of the "+payload))
	}
	want := []string{
		"quarantine/a.record", "quarantine/a.record.1",
		"quarantine/a.record.1.reason", "quarantine/a.record.reason",
	}
	require.Same(t, "files", want, tree(t, s.dir))
	reason, err := os.ReadFile(filepath.Join(s.dir, "quarantine/a.record.1.reason"))
	if diff := cmp.Diff("because of the second\n", string(reason)); diff != "" || err != nil {
		t.Errorf("reason: %v (-want +got):\n%s", err, diff)
	}
	_, err = s.Read("a")
	require.Error(t, "after quarantine", err, fs.ErrNotExist)
}

func TestOpenRemovesWhatCrashedWritesLeft(t *testing.T) {
	dir := t.TempDir()
	for name, age := range map[string]time.Duration{"old.tmp": time.Hour, "new.tmp": 0, "old.record": time.Hour, "empty.record": 0} {
		path, data := filepath.Join(dir, name), []byte(name)
		if name == "empty.record" {
			data = nil // the machine died before the disk had more of it
		}
		must(t, os.WriteFile(path, data, 0o600))
		must(t, os.Chtimes(path, time.Time{}, time.Now().Add(-age)))
	}
	s := open(t, dir)
	// The new one may be another process's write in progress.
	require.Same(t, "files", []string{"new.tmp", "old.record"}, tree(t, dir))
	must(t, s.Delete("new"))
	require.Same(t, "after deleting that key", []string{"old.record"}, tree(t, dir))
}

// failing is a disk whose operation of the given name fails. It fails after half of
// a write has reached the disk.
type failing struct {
	FS
	op  string
	err error
}

func (f failing) WriteNew(path string, data []byte) error {
	if f.op != "WriteNew" {
		return f.FS.WriteNew(path, data)
	}
	return errors.Join(f.FS.WriteNew(path, data[:len(data)/2]), f.err)
}

func (f failing) Rename(from, to string) error {
	if f.op != "Rename" {
		return f.FS.Rename(from, to)
	}
	return f.err
}

// cutDisk simulates a power failure: a directory keeps the names that it had at its
// last sync.
type cutDisk struct {
	FS
	safe map[string][]string // names in each directory
}

func (d cutDisk) SyncDir(path string) error {
	entries, err := os.ReadDir(path)
	d.safe[path] = nil
	for _, e := range entries {
		d.safe[path] = append(d.safe[path], e.Name())
	}
	return errors.Join(err, d.FS.SyncDir(path))
}

// A loss of power must not restore a deleted record that outlives the boot. It must
// not remove a written one either.
func TestRecordsSurviveAPowerCut(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "store")
	disk := cutDisk{Disk{}, map[string][]string{}}
	s, err := Open(dir, disk)
	must(t, err)
	require.Same(t, "the store itself", []string{"store"}, disk.safe[filepath.Dir(dir)])
	for _, step := range []struct {
		name       string
		act        func() error
		safe, away []string
	}{
		{"write", func() error { return s.Write("a", []byte("1")) }, []string{"a.record", "quarantine"}, nil},
		{"write another", func() error { return s.Write("b", []byte("1")) }, []string{"a.record", "b.record", "quarantine"}, nil},
		{"delete", func() error { return s.Delete("a") }, []string{"b.record", "quarantine"}, nil},
		{"quarantine", func() error { return s.Quarantine("b", "why") }, []string{"quarantine"}, []string{"b.record", "b.record.reason"}},
	} {
		must(t, step.act())
		require.Same(t, step.name+": the records", step.safe, disk.safe[dir])
		require.Same(t, step.name+": quarantine", step.away, disk.safe[filepath.Join(dir, quarantineDir)])
	}
}

func TestAFullDiskKeepsTheOldRecord(t *testing.T) {
	for name, fsys := range fileSystems() {
		t.Run(name, func(t *testing.T) { aFullDisk(t, fsys) })
	}
}

func aFullDisk(t *testing.T, fsys FS) {
	for _, op := range []string{"WriteNew", "Rename"} {
		t.Run(op, func(t *testing.T) {
			s := open(t, t.TempDir())
			must(t, s.Write("a", []byte("old")))
			s.fs = failing{FS: fsys, op: op, err: syscall.ENOSPC}
			err := s.Write("a", []byte("new"))
			require.Error(t, "Write", err, syscall.ENOSPC, "write record a: no space left on device")
			got, err := s.Read("a")
			if diff := cmp.Diff("old", string(got)); diff != "" || err != nil {
				t.Errorf("the old record: %v (-want +got):\n%s", err, diff)
			}
			if files := tree(t, s.dir); !slices.Equal(files, []string{"a.record"}) {
				t.Errorf("left behind: %q", files)
			}
		})
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(encode(nil))
	f.Add(encode([]byte(`{"version":1}`)))
	f.Add([]byte("record 2 x\n"))
	f.Add([]byte("record +1 " + checksum(nil) + "\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		payload, err := decode(data)
		switch {
		case err == nil && string(encode(payload)) != string(data):
			t.Errorf("%q is accepted and is not what would be written", data)
		case err != nil && !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrNewer):
			t.Errorf("%q: %v is neither corrupt nor newer", data, err)
		}
		if got, err := decode(encode(data)); err != nil || string(got) != string(data) {
			t.Errorf("%q comes back as %q, %v", data, got, err)
		}
	})
}

var must = require.NoError
