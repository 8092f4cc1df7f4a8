// SPDX-License-Identifier: Apache-2.0

package gpu

import (
	"regexp"

	"k8s.io/component-base/version"
)

// Repository is the address of the source code.
const Repository = "https://github.com/gpu-dra/gpu-dra-driver"

// released matches the version of a release. A development build has a commit after it.
var released = regexp.MustCompile(`^v\d+\.\d+\.\d+(-(alpha|beta|rc)\.\d+)?$`)

// Page returns the address of a page of the documents, such as "docs/user/share.md#amounts". Users
// have no copy of the repository.
func Page(path string) string { return pageOf(version.Get().GitVersion, path) }

// pageOf returns the address of a page for a version: the documents of the release, or those of the
// branch main.
func pageOf(version, path string) string {
	if !released.MatchString(version) {
		version = "main"
	}
	return Repository + "/blob/" + version + "/" + path
}
