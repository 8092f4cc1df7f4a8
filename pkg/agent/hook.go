// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"k8s.io/klog/v2"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/home"
)

// hookToInstall returns the nvidia-cdi-hook in the folder of this program, as in the
// agent's image; empty if the configuration names one of the host.
func (c *Config) hookToInstall() (string, error) {
	if c.CDIHook != "" {
		return "", nil
	}
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	program := filepath.Join(filepath.Dir(self), home.HookName)
	if _, err := os.Stat(program); errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("%[1]s: %[2]w: there is no %[3]s to install: put it there, as `make build` does, or name the one of this host, such as %[1]s=/usr/bin/%[4]s of NVIDIA's container toolkit", c.Names.CDIHook, gpu.ErrNotFound, program, home.HookName)
	}
	return program, nil
}

// checkHook logs a missing hook before a container fails to start because of it.
// It returns no error: the path is the host's, and the agent's container may not see
// it.
func (c *Config) checkHook(ctx context.Context) {
	info, err := os.Stat(c.CDIHook)
	if err == nil && (info.IsDir() || info.Mode()&0o111 == 0) {
		err = fmt.Errorf("%w: it is not a program", gpu.ErrInvalid)
	}
	if err != nil {
		klog.FromContext(ctx).Error(err, "Cannot find nvidia-cdi-hook, containers may not start", "setting", c.Names.CDIHook, "path", c.CDIHook,
			"remedy", "install NVIDIA's container toolkit on the host, unless only the agent's container lacks the hook")
	}
}
