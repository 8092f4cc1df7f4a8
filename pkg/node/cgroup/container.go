// SPDX-License-Identifier: Apache-2.0

package cgroup

import "strings"

// ContainerOf returns the pod's UID and the container's ID from the path of a cgroup. Both
// are empty for a cgroup of no pod.
//
// The kubelet and the container runtime name cgroups in one of two ways:
//
//	/kubepods/burstable/pod<UID>/<container>
//	/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod<UID with _ for ->.slice/cri-containerd-<container>.scope
//
// A container can create cgroups of any name below its own, so the first pod in a path
// counts. In a cgroup namespace a path begins somewhere below the root, with "/..".
func ContainerOf(path string) (pod, container string) {
	segments := strings.Split(path, "/")
	for i, segment := range segments {
		if pod = podOf(segment); pod == "" {
			continue
		}
		if i+1 < len(segments) {
			container = containerName(segments[i+1])
		}
		return pod, container
	}
	return "", ""
}

// ContainerGroup returns the path of a container's cgroup from that of one of its
// processes. The container's cgroup is the child of its pod's. A runtime can start the
// first process in a cgroup below it: crun does with systemd. The path stays unchanged if
// it is of no pod, and the result is empty for a process in the pod's cgroup itself.
func ContainerGroup(path string) string {
	segments := strings.Split(path, "/")
	for i, segment := range segments {
		switch {
		case podOf(segment) == "":
		case i+1 == len(segments):
			return ""
		default:
			return strings.Join(segments[:i+2], "/")
		}
	}
	return path
}

// podOf returns the UID of the pod whose cgroup has the name, or "" for any other
// cgroup.
func podOf(segment string) string {
	name, systemd := strings.CutSuffix(segment, ".slice")
	if systemd {
		at := strings.LastIndex(name, "-pod")
		if at < 0 || !strings.HasPrefix(name, "kubepods") && !strings.Contains(name, "-kubepods") {
			return ""
		}
		name = name[at+1:]
	}
	uid, found := strings.CutPrefix(name, "pod")
	if systemd {
		uid = strings.ReplaceAll(uid, "_", "-")
	}
	if !found || !isUID(uid) {
		return ""
	}
	return uid
}

// isUID reports whether a text can be the UID of a pod: a UUID or, for a static pod, a
// hash of 32 digits.
func isUID(text string) bool {
	return len(text) >= 32 && strings.Trim(text, "0123456789abcdef-") == ""
}

// containerName returns the ID in the name of a container's cgroup:
// "cri-containerd-<id>.scope", "crio-<id>.scope" or "<id>".
func containerName(segment string) string {
	name := strings.TrimSuffix(segment, ".scope")
	return name[strings.LastIndexByte(name, '-')+1:]
}
