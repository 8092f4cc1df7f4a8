// SPDX-License-Identifier: Apache-2.0

package livefile_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gpu-dra/gpu-dra-driver/pkg/disk/livefile"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

// The kubelet replaces a link to the folder of a ConfigMap's keys. So a key is a link
// whose target changes.
func TestFollowSeesEachChangeOfAMountedConfigMap(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "configs.yaml")
	must := func(err error) {
		t.Helper()
		must(t, err)
	}
	mount := func(version, content string) {
		t.Helper()
		must(os.Mkdir(filepath.Join(dir, version), 0o755))
		must(os.WriteFile(filepath.Join(dir, version, "configs.yaml"), []byte(content), 0o600))
		must(os.Symlink(version, filepath.Join(dir, "..data_tmp")))
		must(os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")))
	}
	must(os.Symlink(filepath.Join("..data", "configs.yaml"), path))
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var seen []string
		done := make(chan struct{})
		go func() {
			defer close(done)
			livefile.Follow(ctx, path, func(content []byte, err error) {
				if err != nil {
					seen = append(seen, "missing")
				} else {
					seen = append(seen, string(content))
				}
			})
		}()
		after := func(change func()) {
			synctest.Wait()
			change()
			<-time.After(time.Minute)
		}
		after(func() { mount("..1", "one") })
		after(func() { mount("..2", "two") })
		after(func() { mount("..3", "two") })
		after(func() { must(os.Remove(path)) })
		cancel()
		<-done
		if want := []string{"missing", "one", "two", "missing"}; !slices.Equal(seen, want) {
			t.Errorf("saw %q, want %q", seen, want)
		}
	})
}

var must = require.NoError
