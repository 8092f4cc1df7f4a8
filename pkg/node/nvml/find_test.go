// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

func TestFindLibrary(t *testing.T) {
	const versioned = "libnvidia-ml.so.570.86.15"
	for _, c := range []struct {
		name string
		// files and links (path to target) below the driver root.
		files []string
		links map[string]string
		want  string
	}{
		{"Debian", []string{"usr/lib/x86_64-linux-gnu/" + versioned}, map[string]string{"usr/lib/x86_64-linux-gnu/" + libraryName: versioned}, "usr/lib/x86_64-linux-gnu/" + versioned},
		{"Red Hat", []string{"usr/lib64/" + versioned}, map[string]string{"usr/lib64/" + libraryName: versioned}, "usr/lib64/" + versioned},
		{"ARM", []string{"usr/lib/aarch64-linux-gnu/" + libraryName}, nil, "usr/lib/aarch64-linux-gnu/" + libraryName},
		{"a cloud vendor's image", []string{"usr/local/nvidia/lib64/" + libraryName}, nil, "usr/local/nvidia/lib64/" + libraryName},
		{"an absolute link is one inside the root", []string{"opt/nvidia/" + versioned}, map[string]string{"usr/lib64/" + libraryName: "/opt/nvidia/" + versioned}, "opt/nvidia/" + versioned},
		{"a link to nothing is passed over", []string{"lib64/" + libraryName}, map[string]string{"usr/lib64/" + libraryName: versioned}, "lib64/" + libraryName},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := t.TempDir()
			for _, file := range c.files {
				mkdir(t, root, file)
				must(t, os.WriteFile(filepath.Join(root, file), nil, 0o644))
			}
			for link, target := range c.links {
				mkdir(t, root, link)
				must(t, os.Symlink(target, filepath.Join(root, link)))
			}
			got, err := FindLibrary(root)
			must(t, err)
			if want := filepath.Join(root, c.want); got != want {
				t.Errorf("found %s, want %s", got, want)
			}
		})
	}
}

func mkdir(t *testing.T, root, file string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Join(root, filepath.Dir(file)), 0o755))
}

func TestADriverRootWithoutADriverIsNotReady(t *testing.T) {
	root := t.TempDir()
	_, err := FindLibrary(root)
	require.Error(t, "FindLibrary", err, gpu.ErrNotReady)
	l := Open(root)
	_, err = l.Snapshot(t.Context())
	require.Error(t, "Snapshot", err, gpu.ErrNotReady)
	if err := l.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
}

func TestADamagedLibraryIsNotReady(t *testing.T) {
	root := t.TempDir()
	file := "usr/lib64/" + libraryName
	mkdir(t, root, file)
	must(t, os.WriteFile(filepath.Join(root, file), []byte("not an ELF file"), 0o644))
	_, err := Open(root).Snapshot(t.Context())
	require.Error(t, "Snapshot", err, gpu.ErrNotReady)
}

var must = require.NoError
