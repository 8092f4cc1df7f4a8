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
		return "", fmt.Errorf("--cdi-hook: %w: there is no %s to install: put it there, as `make build` does, or name the one of this host, such as --cdi-hook=/usr/bin/%s of NVIDIA's container toolkit", gpu.ErrNotFound, program, home.HookName)
	}
	return program, nil
}

// warnOfHook logs a missing hook before a container fails to start because of it.
// It returns no error: the path is the host's, and the agent's container may not see
// it.
func warnOfHook(ctx context.Context, path string) {
	if info, err := os.Stat(path); err != nil || info.IsDir() || info.Mode()&0o111 == 0 {
		klog.FromContext(ctx).Info("WARNING: nvidia-cdi-hook is not at --cdi-hook as far as the agent can see; if it is not there on the host either, containers with GPUs will not start. It is part of NVIDIA's container toolkit", "path", path, "err", err)
	}
}
