package nvml

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// ResetWith resets GPUs with the nvidia-smi of the driver that is installed
// below driverRoot ("/" for the host's own), which refuses a GPU in use.
func ResetWith(driverRoot string) ResetFunc {
	return func(ctx context.Context, address gpu.PCIAddress) error {
		cmd := exec.CommandContext(ctx, "/usr/bin/nvidia-smi", "--gpu-reset", "-i", address.String())
		if filepath.Clean(driverRoot) != "/" {
			// Its libraries are the driver's, too.
			cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: driverRoot}
			cmd.Dir = "/"
		}
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("reset it with nvidia-smi: %w: %w: %s", gpu.ErrInUse, err, strings.TrimSpace(string(out)))
		}
		return nil
	}
}
