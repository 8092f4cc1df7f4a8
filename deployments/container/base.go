// SPDX-License-Identifier: Apache-2.0

package main

import "github.com/gpu-dra/gpu-dra-driver/deployments/container/internal/layer"

// nonRootID may be used by what needs nothing of the host, such as
// --print-slices; it is the number that other images without a system use.
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
