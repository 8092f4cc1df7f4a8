// SPDX-License-Identifier: Apache-2.0

package folder_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-dra/gpu-dra-driver/pkg/disk/folder"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

// watched returns a watch of a new folder.
func watched(t *testing.T) (*folder.Watch, string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "watched")
	must(t, os.Mkdir(dir, 0o700))
	w, err := folder.NewWatch(dir)
	must(t, err)
	t.Cleanup(func() { _ = w.Close() })
	return w, dir
}

var must = require.NoError

// replace writes a file as package store does.
func replace(t *testing.T, dir, name string) {
	t.Helper()
	tmp := filepath.Join(dir, name+".tmp")
	must(t, os.WriteFile(tmp, []byte("x"), 0o600))
	must(t, os.Rename(tmp, filepath.Join(dir, name)))
}

func TestAWatchListsWhatHasChanged(t *testing.T) {
	w, dir := watched(t)
	for _, step := range []struct {
		name string
		do   func()
		want []string
	}{
		{"nothing", func() {}, nil},
		{"a new file", func() { replace(t, dir, "a") }, []string{"a.tmp", "a.tmp", "a"}},
		{"nothing again", func() {}, nil},
		{"a file that is replaced", func() { replace(t, dir, "a") }, []string{"a.tmp", "a.tmp", "a"}},
		{"a file that is written in place", func() { must(t, os.WriteFile(filepath.Join(dir, "a"), nil, 0o600)) }, []string{"a"}},
		{"a file that is removed", func() { must(t, os.Remove(filepath.Join(dir, "a"))) }, []string{"a"}},
		{"a file that is moved away", func() {
			replace(t, dir, "long-name-of-a-file")
			must(t, os.Rename(filepath.Join(dir, "long-name-of-a-file"), filepath.Join(dir, "..", "away")))
		}, []string{"long-name-of-a-file.tmp", "long-name-of-a-file.tmp", "long-name-of-a-file", "long-name-of-a-file"}},
	} {
		step.do()
		got, err := w.Changed()
		if diff := cmp.Diff(step.want, got); err != nil || diff != "" {
			t.Errorf("%s: %v, changed (-want +got):\n%s", step.name, err, diff)
		}
	}
}

// More events than one read returns.
func TestAWatchListsManyChanges(t *testing.T) {
	w, dir := watched(t)
	var want []string
	for i := range 1000 {
		name := fmt.Sprintf("%d", i)
		replace(t, dir, name)
		want = append(want, name+".tmp", name+".tmp", name)
	}
	got, err := w.Changed()
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v, changed (-want +got):\n%s", err, diff)
	}
}

// The caller must know that it has missed a change.
func TestAWatchThatHasMissedChangesIsAnError(t *testing.T) {
	queue, err := os.ReadFile("/proc/sys/fs/inotify/max_queued_events")
	must(t, err)
	var most int
	_, err = fmt.Sscan(string(queue), &most)
	must(t, err)
	for name, change := range map[string]func(dir string){
		"too many changes": func(dir string) {
			replace(t, dir, "a")
			// The kernel merges an event with the last one if they are equal.
			for i := range most {
				must(t, os.Rename(filepath.Join(dir, []string{"a", "b"}[i%2]), filepath.Join(dir, []string{"b", "a"}[i%2])))
			}
		},
		"a folder that is removed": func(dir string) { must(t, os.RemoveAll(dir)) },
		"a folder that is replaced": func(dir string) {
			must(t, os.Rename(dir, dir+".before"))
			must(t, os.Mkdir(dir, 0o700))
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, dir := watched(t)
			change(dir)
			if got, err := w.Changed(); err == nil {
				t.Errorf("changed %q and no error", got)
			}
		})
	}
	if _, err := folder.NewWatch(filepath.Join(t.TempDir(), "nowhere")); err == nil {
		t.Error("a watch of no folder")
	}
}
