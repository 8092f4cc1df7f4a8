// SPDX-License-Identifier: Apache-2.0

package layer

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// list renders a layer, one line for each entry.
func list(t *testing.T, files Files) string {
	t.Helper()
	l, err := Cache{}.Layer(files)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := l.Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close() //nolint:errcheck // only read from
	var out strings.Builder
	r := tar.NewReader(stream)
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return out.String()
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&out, "%c %04o %d:%d %d %s %s%s\n", h.Typeflag, h.Mode, h.Uid, h.Gid, h.ModTime.Unix(), h.Name, h.Linkname, content)
	}
}

func TestALayerIsItsFilesInOrderAndNothingElse(t *testing.T) {
	got := list(t, Files{
		"usr/bin/b": {Mode: 0o755, Content: []byte("B")},
		"usr/bin/a": {Target: "b"},
		"tmp":       {Mode: 0o1777, Dir: true},
		"etc/empty": {Mode: 0o644},
	})
	want := `5 0755 0:0 0 etc/ 
0 0644 0:0 0 etc/empty 
5 1777 0:0 0 tmp/ 
5 0755 0:0 0 usr/ 
5 0755 0:0 0 usr/bin/ 
2 0777 0:0 0 usr/bin/a b
0 0755 0:0 0 usr/bin/b B
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("layer (-want +got):\n%s", diff)
	}
}

func TestInvalidLayersAreRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		files Files
		want  string
	}{
		"a leading slash":         {Files{"/etc/passwd": {}}, `path "/etc/passwd"`},
		"a way out":               {Files{"../etc/passwd": {}}, `path "../etc/passwd"`},
		"a file below a link":     {Files{"lib": {Target: "usr/lib"}, "lib/libc.so.6": {}}, "lib/libc.so.6 is below lib, which is not a directory"},
		"a file below a file":     {Files{"a": {Content: []byte("x")}, "a/b/c": {}}, "a/b/c is below a, which is not a directory"},
		"a directory with an end": {Files{"etc/": {Dir: true}}, `path "etc/"`},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := (Cache{}).Layer(tc.files); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want %q in it", err, tc.want)
			}
		})
	}
}

func TestTwoFilesOfOnePathAreRefused(t *testing.T) {
	files := Files{"etc/passwd": {}}
	if err := files.Add(Files{"etc/group": {}}); err != nil {
		t.Error(err)
	}
	if err := files.Add(Files{"etc/passwd": {}}); err == nil || !strings.Contains(err.Error(), "etc/passwd") {
		t.Errorf("error %v, want one that names the file", err)
	}
}
