// SPDX-License-Identifier: Apache-2.0

package image

import (
	"archive/tar"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
)

// contents maps each path of an image to its content, link target or "dir".
func contents(t *testing.T, img v1.Image) map[string]string {
	t.Helper()
	files := map[string]string{}
	stream := mutate.Extract(img)
	defer stream.Close() //nolint:errcheck // only read
	r := tar.NewReader(stream)
	for {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		switch header.Typeflag {
		case tar.TypeDir:
			files[filepath.Clean(header.Name)] = "dir"
		case tar.TypeSymlink:
			files[header.Name] = "-> " + header.Linkname
		default:
			data, err := io.ReadAll(r)
			if err != nil {
				t.Fatal(err)
			}
			files[header.Name] = string(data)
		}
	}
}

func program(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(path, []byte(content), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestTheProbeImageHasAShellAndWhatHooksNeed(t *testing.T) {
	img, err := Probe(program(t, "probe"), program(t, "busybox"), []string{"sh", "busybox", "ls"})
	if err != nil {
		t.Fatal(err)
	}
	files := contents(t, img)
	for path, want := range map[string]string{
		"usr/bin/probe":   "probe",
		"usr/bin/busybox": "busybox",
		"usr/bin/sh":      "-> busybox",
		"bin":             "-> usr/bin",
		"lib":             "-> usr/lib",
		"etc":             "dir", "tmp": "dir", "usr/lib": "dir", "etc/ld.so.conf.d": "dir",
	} {
		if files[path] != want {
			t.Errorf("%s is %q, want %q", path, files[path], want)
		}
	}
	config, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"/usr/bin/probe", "hold"}, append(config.Config.Entrypoint, config.Config.Cmd...)); diff != "" {
		t.Errorf("command (-want +got):\n%s", diff)
	}
}

func TestAnImageOfAProgramRunsIt(t *testing.T) {
	img, err := Program(program(t, "manager"), "0:0")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"program": "manager"}, contents(t, img)); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	config, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"/program", "0:0", "PATH=/:/usr/bin"}, append(config.Config.Entrypoint, config.Config.User, config.Config.Env[0])); diff != "" {
		t.Errorf("command, user and environment (-want +got):\n%s", diff)
	}
}
