// SPDX-License-Identifier: Apache-2.0

package build

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func source(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	must(t, err)
	found := FindSource(dir)
	if found == "" {
		t.Fatal("the source tree was not found from inside it")
	}
	return found
}

func defaultRelease(t *testing.T) Release {
	t.Helper()
	release, err := FindRelease("")
	must(t, err)
	return release
}

func TestTheModulesPinTheVersionsOfTheReleases(t *testing.T) {
	for _, release := range Releases() {
		data, err := os.ReadFile(filepath.Join(source(t), pins, release.pins))
		must(t, err)
		for _, want := range []string{"k8s.io/kubernetes " + release.Version + " ", "k8s.io/api => k8s.io/api v0." + strings.TrimPrefix(release.Version, "v1.") + "\n"} {
			if !strings.Contains(string(data), want) {
				t.Errorf("the pins of release %s do not pin %s", release.Name, want)
			}
		}
	}
}

func TestOnlyMissingAndChangedTargetsAreBuilt(t *testing.T) {
	source, bin, release := source(t), t.TempDir(), defaultRelease(t)
	for _, target := range Targets(release, Containerd) {
		must(t, os.WriteFile(filepath.Join(bin, target.Name), nil, 0o755))
		must(t, link(bin, target))
		want, err := fingerprint(source, target)
		must(t, err)
		must(t, recordBuilt(bin, target.Name, want))
	}
	stale := func(source string) string {
		t.Helper()
		targets, err := Stale(source, bin, Targets(release, Containerd))
		must(t, err)
		return names(targets)
	}
	if got := stale(source); got != "" {
		t.Errorf("everything is there, but these are stale: %s", got)
	}
	must(t, recordBuilt(bin, "containerd", "of other flags"))
	must(t, os.Remove(filepath.Join(bin, "etcd")))
	must(t, os.Remove(filepath.Join(bin, "kubelet")))
	if got := stale(source); got != "containerd, etcd, kubernetes" {
		t.Errorf("stale: %s", got)
	}
	if got := stale(""); got != "etcd, kubernetes" {
		t.Errorf("stale without a source tree: %s", got)
	}
}

func TestWithoutASourceTreeTheErrorNamesTheMissingTargets(t *testing.T) {
	stale, err := Stale("", t.TempDir(), Targets(defaultRelease(t), Containerd))
	must(t, err)
	err = Run(t.Context(), "", "/opt/bin", stale, t.Logf)
	if err == nil || !strings.Contains(err.Error(), "kubernetes") || !strings.Contains(err.Error(), "--bin") {
		t.Errorf("got %v", err)
	}
}

// must ends the test unless err is nil.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
