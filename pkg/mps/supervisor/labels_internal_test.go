// SPDX-License-Identifier: Apache-2.0

package supervisor

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// selinux is a node with SELinux, which records mounts and labels.
type selinux struct {
	off, unknown bool
	labels       map[string]string
	calls        []string
}

func (s *selinux) kernel() kernel {
	return kernel{
		mount: func(_, target, _ string, _ uintptr, data string) error {
			_, label, labelled := strings.Cut(data, ",context=")
			if labelled && s.unknown {
				return unix.EINVAL
			}
			s.calls = append(s.calls, fmt.Sprintf("mount %s %s", filepath.Base(target), label))
			s.labels[target] = label
			return nil
		},
		exists: func(path string) bool { return path == "/sys/fs/selinux/enforce" && !s.off },
		label:  func(path string) (string, error) { return s.labels[path], nil },
		setLabel: func(path, label string) error {
			s.calls = append(s.calls, fmt.Sprintf("label %s %s", filepath.Base(path), label))
			s.labels[path] = label
			return nil
		},
	}
}

func TestContainersMayUseTheFoldersOfADaemonWithSELinux(t *testing.T) {
	const label = "system_u:object_r:container_file_t:s0"
	for name, c := range map[string]struct {
		selinux selinux
		options Options
		before  func(f folders, s *selinux)
		want    []string
	}{
		"a tmpfs":             {want: []string{"mount pipe " + label, "mount shm " + label}},
		"plain folders":       {options: Options{PlainShm: true}, want: []string{"label pipe " + label, "label shm " + label}},
		"the shm of the host": {options: Options{HostShm: true}, want: []string{"label pipe " + label}},
		"folders with files of an earlier supervisor": {
			before: func(f folders, _ *selinux) { write(t, filepath.Join(f.pipe, "control")) },
			want:   []string{"mount shm " + label, "label pipe " + label},
		},
		"labelled before": {
			options: Options{PlainShm: true},
			before:  func(f folders, s *selinux) { s.labels[f.pipe], s.labels[f.shm] = label, label },
		},
		"a policy without containers": {selinux: selinux{unknown: true}, want: []string{"mount pipe ", "mount shm ", "label pipe " + label, "label shm " + label}},
		"no SELinux":                  {selinux: selinux{off: true}, want: []string{"mount pipe ", "mount shm "}},
		"no SELinux, plain folders":   {selinux: selinux{off: true}, options: Options{PlainShm: true}},
	} {
		t.Run(name, func(t *testing.T) {
			c.selinux.labels = map[string]string{}
			c.options.RunDir, c.options.LogDir = t.TempDir(), t.TempDir()
			o := c.options.withDefaults()
			o.kernel = c.selinux.kernel()
			f := o.folders("gpu-1b-00")
			must(t, f.make())
			if c.before != nil {
				c.before(f, &c.selinux)
			}
			must(t, o.mountAll(f))
			if !slices.Equal(c.selinux.calls, c.want) {
				t.Errorf("got  %q\nwant %q", c.selinux.calls, c.want)
			}
		})
	}
}

func write(t *testing.T, file string) {
	t.Helper()
	must(t, os.WriteFile(file, nil, 0o600))
}
