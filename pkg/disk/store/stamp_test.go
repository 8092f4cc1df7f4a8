// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"io/fs"
	"testing"

	"github.com/gpu-dra/gpu-dra-driver/pkg/disk/store"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

func TestVersionsHaveDifferentStamps(t *testing.T) {
	s, err := store.Open(t.TempDir(), store.Disk{})
	must(t, err)
	_, err = s.Stamp("key")
	require.Error(t, "a record that is not there", err, fs.ErrNotExist)
	var last store.Stamp
	for _, payload := range []string{"one", "two", "three"} {
		must(t, s.Write("key", []byte(payload)))
		stamp, err := s.Stamp("key")
		must(t, err)
		if stamp == last {
			t.Errorf("%s has the stamp of the version before", payload)
		}
		if again, err := s.Stamp("key"); err != nil || again != stamp {
			t.Errorf("%s: stamp %v, then %v, %v", payload, stamp, again, err)
		}
		last = stamp
	}
}

func TestAStampOfAStrangeKey(t *testing.T) {
	s, err := store.Open(t.TempDir(), store.Disk{})
	must(t, err)
	if _, err := s.Stamp("../key"); err == nil {
		t.Error("it was looked for outside of the directory")
	}
}

var must = require.NoError
