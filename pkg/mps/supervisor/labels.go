// SPDX-License-Identifier: Apache-2.0

package supervisor

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"
)

// containerLabel is the SELinux label of files that every container may use: the type that
// container_t may write, without categories, which each container dominates with its own.
// NVIDIA's device plugin labels its folders of MPS in the same way.
const containerLabel = "system_u:object_r:container_file_t:s0"

const (
	// selinuxFile exists while the kernel has an SELinux policy.
	selinuxFile = "/sys/fs/selinux/enforce"
	// labelAttribute is the extended attribute with the label of a file.
	labelAttribute = "security.selinux"
)

// kernel is the system calls that mount and label, replaced in tests.
type kernel struct {
	mount  func(source, target, fstype string, flags uintptr, data string) error
	exists func(path string) bool
	// label returns the label of a file, and setLabel changes it.
	label    func(path string) (string, error)
	setLabel func(path, label string) error
}

func ownKernel() kernel {
	return kernel{
		mount: unix.Mount,
		exists: func(path string) bool {
			_, err := os.Stat(path)
			return err == nil
		},
		label: func(path string) (string, error) {
			var value [256]byte
			n, err := unix.Lgetxattr(path, labelAttribute, value[:])
			if err != nil {
				return "", &fs.PathError{Op: "read the SELinux label of", Path: path, Err: err}
			}
			return string(bytes.TrimRight(value[:n], "\x00")), nil
		},
		setLabel: func(path, label string) error {
			if err := unix.Lsetxattr(path, labelAttribute, append([]byte(label), 0), 0); err != nil {
				return &fs.PathError{Op: "label", Path: path, Err: err}
			}
			return nil
		},
	}
}

// mountTmpfs mounts a tmpfs whose files all containers may use if the node has SELinux. A
// policy that does not know the label gets a tmpfs without it.
func (k kernel) mountTmpfs(s fileSystem) error {
	options := s.options
	if k.exists(selinuxFile) {
		options += ",context=" + containerLabel
	}
	err := k.mount("gpu-mps", s.path, "tmpfs", s.flags, options)
	if errors.Is(err, unix.EINVAL) && options != s.options {
		klog.Background().Info("SELinux does not know the label of containers' files", "path", s.path, "label", containerLabel)
		err = k.mount("gpu-mps", s.path, "tmpfs", s.flags, s.options)
	}
	if err != nil {
		return unprivileged(fmt.Errorf("mount a tmpfs on %s: %w", s.path, err))
	}
	return nil
}

// labelFolder labels a folder for containers if the node has SELinux: a plain one, or one
// that an earlier supervisor has mounted. New files in it get the label of the folder. A
// failure is logged only, because SELinux may not enforce.
func (k kernel) labelFolder(path string) {
	if !k.exists(selinuxFile) {
		return
	}
	label, err := k.label(path)
	if err == nil && label != containerLabel {
		err = k.setLabel(path, containerLabel)
	}
	if err != nil {
		klog.Background().Error(err, "Cannot label a folder of an MPS daemon, shares may fail", "label", containerLabel)
	}
}
