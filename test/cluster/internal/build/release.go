// SPDX-License-Identifier: Apache-2.0

package build

import (
	"fmt"
	"slices"
	"strings"
)

// Release is a release of Kubernetes that a cluster can run.
type Release struct {
	// Name is what users type, such as "1.36".
	Name string
	// Version is the version that the module pins.
	Version string
	// FeatureGates are the gates that the driver's tests need beyond the defaults. An older
	// release does not know them and refuses to start.
	FeatureGates map[string]bool
	// Serve lists API versions that are off by default and in manifests of users.
	Serve []string

	pins string
}

// DefaultRelease is the name of the release that a cluster runs unless told otherwise.
const DefaultRelease = "1.37"

// Releases returns all releases, the oldest first.
func Releases() []Release {
	groups := map[string]bool{"GenericWorkload": true, "DRAWorkloadResourceClaims": true}
	beta := []string{"resource.k8s.io/v1beta1", "resource.k8s.io/v1beta2"}
	withGroups := append(slices.Clone(beta), "scheduling.k8s.io/v1beta1")
	return []Release{
		{Name: "1.35", Version: "v1.35.4", Serve: beta, pins: "1.35.mod"},
		{Name: "1.36", Version: "v1.36.4", Serve: beta, pins: "1.36.mod"},
		{Name: DefaultRelease, Version: "v1.37.1", FeatureGates: groups, Serve: withGroups, pins: "go.mod"},
		{Name: "1.37.2", Version: "v1.37.2", FeatureGates: groups, Serve: withGroups, pins: "1.37.2.mod"},
	}
}

// FindRelease returns the release of that name; an empty name is the default.
func FindRelease(name string) (Release, error) {
	if name == "" {
		name = DefaultRelease
	}
	var known []string
	for _, r := range Releases() {
		if r.Name == name {
			return r, nil
		}
		known = append(known, r.Name)
	}
	return Release{}, fmt.Errorf("unknown release %q of Kubernetes: want one of %s", name, strings.Join(known, ", "))
}

// Folder returns the name of the folder for the binaries, below .build.
func (r Release) Folder() string {
	if r.Name == DefaultRelease {
		return "cluster"
	}
	return "cluster-" + r.Name
}

// components are the names of Kubernetes' program, each a component.
var components = []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy", "kubectl", "kubelet"}

// target returns the program of Kubernetes. All releases share its source.
func (r Release) target() Target {
	major, rest, _ := strings.Cut(strings.TrimPrefix(r.Version, "v"), ".")
	minor, _, _ := strings.Cut(rest, ".")
	const version = "k8s.io/component-base/version."
	flags := fmt.Sprintf("%s -X %sgitVersion=%s -X %sgitMajor=%s -X %sgitMinor=%s", plainFlags, version, r.Version, version, major, version, minor)
	return Target{Name: "kubernetes", Module: pins, Pins: r.pins, Package: "kubernetes.go", ldflags: flags, links: components}
}
