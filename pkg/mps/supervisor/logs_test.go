// SPDX-License-Identifier: Apache-2.0

package supervisor_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
)

func TestLogsOfADaemonAreBounded(t *testing.T) {
	const limit = 64 << 10
	clock := clocktesting.NewFakeClock(time.Now())
	w := newWorld(t)
	w.options.Clock, w.options.LogLimit = clock, limit
	w.start()
	w.ensure(shareOfA)
	dir := filepath.Join(w.options.LogDir, "gpu-1a-00")
	size := func(path string) int64 {
		info, err := os.Stat(path)
		must(t, err)
		return info.Size()
	}
	// The supervisor checks them in this order.
	files := map[string]struct {
		flags  int
		length int
		cut    bool
	}{
		"a-small.log":  {os.O_APPEND, limit / 2, false},
		"b-notes":      {os.O_APPEND, 2 * limit, false},
		"c-append.log": {os.O_APPEND, 2 * limit, true},
		"d-offset.log": {0, 2 * limit, true},
	}
	open := map[string]*os.File{}
	for name, f := range files {
		file, err := os.OpenFile(filepath.Join(dir, name), os.O_CREATE|os.O_WRONLY|f.flags, 0o600)
		must(t, err)
		t.Cleanup(func() { _ = file.Close() })
		_, err = file.Write(make([]byte, f.length))
		must(t, err)
		open[name] = file
	}
	clock.Step(time.Hour)
	w.until("the last of the files is cut", func() bool { return size(filepath.Join(dir, "d-offset.log")) == 0 })
	for name, f := range files {
		want := int64(f.length)
		if f.cut {
			want = 0
		}
		if got := size(filepath.Join(dir, name)); got != want {
			t.Errorf("%s has %d bytes, want %d", name, got, want)
		}
	}
	// The writer continues, and a file with a hole takes little of the disk.
	for name, f := range files {
		if _, err := open[name].WriteString("more"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if f.cut && f.flags == os.O_APPEND {
			if got := size(filepath.Join(dir, name)); got != int64(len("more")) {
				t.Errorf("%s has %d bytes, want those written since", name, got)
			}
		}
	}
	_, err := open["c-append.log"].Write(make([]byte, 2*limit))
	must(t, err)
	clock.Step(time.Hour)
	w.until("the log that has grown again is cut", func() bool { return size(filepath.Join(dir, "c-append.log")) == 0 })
	if got := size(filepath.Join(dir, "d-offset.log")); got != 2*limit+int64(len("more")) {
		t.Errorf("d-offset.log has %d bytes, want it left alone with its hole", got)
	}
}
