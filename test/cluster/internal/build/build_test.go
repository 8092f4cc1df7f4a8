// SPDX-License-Identifier: Apache-2.0

package build

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func source(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	found := FindSource(dir)
	if found == "" {
		t.Fatal("the source tree was not found from inside it")
	}
	return found
}

func defaultRelease(t *testing.T) Release {
	t.Helper()
	release, err := FindRelease("")
	if err != nil {
		t.Fatal(err)
	}
	return release
}

func TestTheModulesPinTheVersionsOfTheReleases(t *testing.T) {
	for _, release := range Releases() {
		data, err := os.ReadFile(filepath.Join(source(t), pins, release.pins))
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"k8s.io/kubernetes " + release.Version + " ", "k8s.io/api => k8s.io/api v0." + strings.TrimPrefix(release.Version, "v1.") + "\n"} {
			if !strings.Contains(string(data), want) {
				t.Errorf("the pins of release %s do not pin %s", release.Name, want)
			}
		}
	}
}

func TestAnUnknownReleaseNamesTheKnownOnes(t *testing.T) {
	if _, err := FindRelease("1.2"); err == nil || !strings.Contains(err.Error(), "1.35, 1.36, 1.37, 1.37.2") {
		t.Errorf("got %v", err)
	}
}

func TestTheSourceTreeIsFoundFromInsideOnly(t *testing.T) {
	if got := source(t); filepath.Base(got) != "cluster" {
		t.Errorf("got %s", got)
	}
	if got := FindSource(t.TempDir()); got != "" {
		t.Errorf("outside: got %s", got)
	}
}

func TestOnlyMissingAndChangedTargetsAreBuilt(t *testing.T) {
	source, bin, release := source(t), t.TempDir(), defaultRelease(t)
	for _, target := range Targets(release, Containerd) {
		if err := os.WriteFile(filepath.Join(bin, target.Name), nil, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := link(bin, target); err != nil {
			t.Fatal(err)
		}
		want, err := fingerprint(source, target)
		if err != nil {
			t.Fatal(err)
		}
		if err := recordBuilt(bin, target.Name, want); err != nil {
			t.Fatal(err)
		}
	}
	stale := func(source string) string {
		t.Helper()
		targets, err := Stale(source, bin, Targets(release, Containerd))
		if err != nil {
			t.Fatal(err)
		}
		return names(targets)
	}
	if got := stale(source); got != "" {
		t.Errorf("everything is there, but these are stale: %s", got)
	}
	if err := recordBuilt(bin, "containerd", "of other flags"); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(bin, "etcd")); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(bin, "kubelet")); err != nil {
		t.Fatal(err)
	}
	if got := stale(source); got != "containerd, etcd, kubernetes" {
		t.Errorf("stale: %s", got)
	}
	if got := stale(""); got != "etcd, kubernetes" {
		t.Errorf("stale without a source tree: %s", got)
	}
}

func TestWithoutASourceTreeTheErrorNamesTheMissingTargets(t *testing.T) {
	stale, err := Stale("", t.TempDir(), Targets(defaultRelease(t), Containerd))
	if err != nil {
		t.Fatal(err)
	}
	err = Run(t.Context(), "", "/opt/bin", stale, t.Logf)
	if err == nil || !strings.Contains(err.Error(), "kubernetes") || !strings.Contains(err.Error(), "--bin") {
		t.Errorf("got %v", err)
	}
}

func TestTargetsHaveDifferentNames(t *testing.T) {
	for _, containerRuntime := range ContainerRuntimes() {
		var all []string
		for _, target := range Targets(defaultRelease(t), containerRuntime) {
			all = append(all, target.Name)
		}
		slices.Sort(all)
		if len(slices.Compact(slices.Clone(all))) != len(all) {
			t.Errorf("%s: got %v", containerRuntime, all)
		}
	}
}
