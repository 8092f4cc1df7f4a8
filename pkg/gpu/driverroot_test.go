// SPDX-License-Identifier: Apache-2.0

package gpu

import (
	"errors"
	"io/fs"
	"slices"
	"strings"
	"testing"
)

// files returns an os.Stat for a file system with these files only.
func files(there ...string) func(string) (fs.FileInfo, error) {
	return func(path string) (fs.FileInfo, error) {
		if slices.Contains(there, path) {
			return nil, nil
		}
		return nil, &fs.PathError{Op: "stat", Path: path, Err: fs.ErrNotExist}
	}
}

// variable returns the list that the driver's programs get in a variable.
func variable(t *testing.T, root DriverRoot, name string) []string {
	t.Helper()
	for _, v := range root.Environment() {
		if list, ok := strings.CutPrefix(v, name+"="); ok {
			return strings.Split(list, ":")
		}
	}
	t.Fatalf("no %s in %v", name, root.Environment())
	return nil
}

func TestEnvironmentPrefersTheCLibraryOfTheSystem(t *testing.T) {
	if env := DriverRoot("/").Environment(); env != nil {
		t.Errorf("a driver in / needs %v", env)
	}
	libraries := variable(t, "/run/nvidia/driver", "LD_LIBRARY_PATH")
	own, drivers := slices.Index(libraries, "/usr/lib/x86_64-linux-gnu"), slices.Index(libraries, "/run/nvidia/driver/usr/lib/x86_64-linux-gnu")
	if own < 0 || drivers < 0 || own > drivers {
		t.Errorf("the library path is %s, want the system's own first", libraries)
	}
}

func TestFindReturnsTheProgramOfEachKindOfRoot(t *testing.T) {
	for name, tc := range map[string]struct {
		root  DriverRoot
		there []string
		want  string
	}{
		"a driver on the host":  {"/", []string{"/usr/bin/nvidia-smi", "/bin/nvidia-smi"}, "/usr/bin/nvidia-smi"},
		"a driver container":    {"/run/nvidia/driver", []string{"/run/nvidia/driver/usr/bin/nvidia-smi", "/bin/nvidia-smi"}, "/run/nvidia/driver/usr/bin/nvidia-smi"},
		"GKE":                   {"/home/kubernetes/bin/nvidia", []string{"/home/kubernetes/bin/nvidia/bin/nvidia-smi", "/usr/bin/nvidia-smi"}, "/home/kubernetes/bin/nvidia/bin/nvidia-smi"},
		"installed besides all": {"/", []string{"/usr/local/bin/nvidia-smi"}, "/usr/local/bin/nvidia-smi"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := tc.root.Find("nvidia-smi", files(tc.there...))
			if err != nil || got != tc.want {
				t.Errorf("found %q, %v; want %s", got, err, tc.want)
			}
			if tc.root == "/" {
				return
			}
			// The program finds the driver's other programs by its PATH.
			dir := strings.TrimSuffix(tc.want, "/nvidia-smi")
			if path := variable(t, tc.root, "PATH"); !slices.Contains(path, dir) {
				t.Errorf("PATH is %s, want %s in it", path, dir)
			}
		})
	}
}

func TestEnvironmentHasTheLibrariesOfGKE(t *testing.T) {
	if libraries := variable(t, "/home/kubernetes/bin/nvidia", "LD_LIBRARY_PATH"); !slices.Contains(libraries, "/home/kubernetes/bin/nvidia/lib64") {
		t.Errorf("the library path is %s, want lib64 of the root", libraries)
	}
}

func TestFindNamesTheFoldersWithoutTheProgram(t *testing.T) {
	got, err := DriverRoot("/opt/nvidia").Find("nvidia-smi", files("/usr/bin/nvidia-smi"))
	if !errors.Is(err, ErrNotReady) {
		t.Fatalf("found %q, %v; want not ready", got, err)
	}
	for _, want := range []string{"/opt/nvidia", "[usr/bin bin usr/local/bin]", "--driver-root"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %q does not name %s", err, want)
		}
	}
}

func TestFindReturnsAProgramThatCannotBeRead(t *testing.T) {
	denied := func(path string) (fs.FileInfo, error) {
		return nil, &fs.PathError{Op: "stat", Path: path, Err: fs.ErrPermission}
	}
	if got, err := DriverRoot("/").Find("nvidia-smi", denied); err != nil || got != "/usr/bin/nvidia-smi" {
		t.Errorf("found %q, %v", got, err)
	}
}
