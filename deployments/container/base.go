// SPDX-License-Identifier: Apache-2.0

package main

import "github.com/gpu-dra/gpu-dra-driver/deployments/container/internal/layer"

// nonRootID is for commands that need nothing of the host, such as --print-slices.
// Other images without a system use the same number.
const nonRootID = "65532"

// base is what every program expects of a system. The layout is Debian's, with
// one place for programs and libraries.
func base() layer.Files {
	files := layer.Files{
		"etc/passwd": {Mode: 0o644, Content: []byte("root:x:0:0:root:/root:/sbin/nologin\nnobody:x:65534:65534:nobody:/nonexistent:/sbin/nologin\nnonroot:x:" + nonRootID + ":" + nonRootID + ":nonroot:/:/sbin/nologin\n")},
		"etc/group":  {Mode: 0o644, Content: []byte("root:x:0:\nnogroup:x:65534:\nnonroot:x:" + nonRootID + ":\n")},
		"tmp":        {Mode: 0o1777, Dir: true},
		"root":       {Mode: 0o700, Dir: true},
		"var/run":    {Target: "../run"},
	}
	for _, dir := range []string{"dev", "proc", "run", "sys", "usr/bin", "usr/lib", "usr/lib64", "usr/sbin", "var/lib", "var/log"} {
		files[dir] = layer.File{Mode: 0o755, Dir: true}
	}
	for _, dir := range []string{"bin", "lib", "lib64", "sbin"} {
		files[dir] = layer.File{Target: "usr/" + dir}
	}
	return files
}
