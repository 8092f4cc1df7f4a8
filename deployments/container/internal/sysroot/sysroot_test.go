// SPDX-License-Identifier: Apache-2.0

package sysroot

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-dra/gpu-dra-driver/deployments/container/internal/debian"
)

// pack makes the archive of a package with one library, and an absolute link to it.
func pack(t *testing.T, name, architecture, control, library string) string {
	t.Helper()
	dir := t.TempDir()
	for file, text := range map[string]string{
		"DEBIAN/control":                       "Package: " + name + "\nVersion: 2.36-9\nArchitecture: " + architecture + "\nMaintainer: A\nDescription: short\n long\n" + control,
		library:                                "ID=debian\nVERSION_ID=\"12\"\n",
		"usr/share/doc/" + name + "/copyright": "terms of " + name,
	} {
		if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(file)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/"+library, filepath.Join(dir, "usr/share", name+".so")); err != nil {
		t.Fatal(err)
	}
	archive := filepath.Join(t.TempDir(), name+".deb")
	if out, err := exec.CommandContext(t.Context(), "dpkg-deb", "--root-owner-group", "--build", dir, archive).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return archive
}

// Scanners of an image for arm64 must see the packages of arm64, not of this machine.
func TestAFileInTheFolderBelongsToThePackageOfItsArchitecture(t *testing.T) {
	dir := t.TempDir()
	err := Unpack(t.Context(), dir,
		pack(t, "libc6", "arm64", "Multi-Arch: same\nSource: glibc\n", "lib/aarch64-linux-gnu/libc.so.6"),
		pack(t, "base-files", "arm64", "", "usr/lib/os-release"))
	if err != nil {
		t.Fatal(err)
	}
	system := debian.System{Root: dir}
	library := system.Path("lib/aarch64-linux-gnu/libc.so.6")
	for file, want := range map[string]debian.Package{
		library:            {Name: "libc6", Version: "2.36-9", Architecture: "arm64", Source: "glibc", Distribution: "debian", Release: "12"},
		system.OSRelease(): {Name: "base-files", Version: "2.36-9", Architecture: "arm64", Source: "base-files", Distribution: "debian", Release: "12"},
	} {
		got, err := system.Package(t.Context(), file)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("package of %s (-want +got):\n%s", file, diff)
		}
	}
	libc, err := system.Named(t.Context(), "libc6")
	if want := "pkg:deb/debian/libc6@2.36-9?arch=arm64&distro=debian-12"; err != nil || libc.URL() != want {
		t.Errorf("package URL %s, error %v, want %s", libc.URL(), err, want)
	}
	files, err := system.Files(t.Context(), library, system.OSRelease())
	if err != nil {
		t.Fatal(err)
	}
	if got := string(files["usr/share/doc/libc6/copyright"].Content); got != "terms of libc6" {
		t.Errorf("terms %q", got)
	}
	if content, err := os.ReadFile(system.Path("usr/share/libc6.so")); err != nil || !strings.HasPrefix(string(content), "ID=debian") {
		t.Errorf("the absolute link leads to %q, error %v", content, err)
	}
	record := string(files["var/lib/dpkg/status.d/libc6"].Content)
	for _, want := range []string{"Package: libc6\n", "Architecture: arm64\n", "Version: 2.36-9\n", "Source: glibc\n"} {
		if !strings.Contains(record, want) {
			t.Errorf("the record has no %q:\n%s", want, record)
		}
	}
}

func TestAPackageThatCannotBeUnpackedIsNamed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "broken.deb")
	if err := os.WriteFile(file, []byte("no archive"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Unpack(t.Context(), t.TempDir(), file); err == nil || !strings.Contains(err.Error(), "broken.deb") {
		t.Errorf("error %v", err)
	}
}

// A compiler that is named by its folder would change Go's build IDs, and so the digests.
func TestTheCompilerFindsItsFolderByItself(t *testing.T) {
	dir, bin := t.TempDir(), t.TempDir()
	a := Architecture{"arm64", "aarch64-linux-gnu"}
	if err := a.writeCompiler(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(bin, "aarch64-linux-gnu-gcc"), []byte("#!/bin/sh\necho \"$@\"\n"), 0o755); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(dir, "cc-arm64"), "-c", "a file.c")
	cmd.Env = []string{"PATH=" + bin + ":" + os.Getenv("PATH")}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, want := range []string{"--sysroot=" + dir + "/root ", "-B" + dir + "/root/usr/lib/aarch64-linux-gnu ", "-c a file.c\n"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("the compiler is called without %q: %s", want, out)
		}
	}
}
