package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// hookName is nvidia-cdi-hook's, in the agent's image and on the host.
const hookName = "nvidia-cdi-hook"

// newInstallHook is the command that an init container of the agent's pod runs:
// the container runtime starts the hook on the host, where an image's files
// are not.
func newInstallHook() *cobra.Command {
	var from, to string
	cmd := &cobra.Command{
		Use:   "install-cdi-hook --to DIR",
		Short: "Put nvidia-cdi-hook where the container runtime finds it, and exit",
		Long: `install-cdi-hook copies nvidia-cdi-hook, which comes in the agent's image, to a folder
of the host. The agent is then told of it with --cdi-hook=DIR/nvidia-cdi-hook. A hook that is
there already is replaced in one step, so that containers may start meanwhile, and left
alone if it is the same.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if to == "" {
				return fmt.Errorf("--to is not given: %w: want the folder of the host", gpu.ErrInvalid)
			}
			if from == "" {
				self, err := os.Executable()
				if err != nil {
					return err
				}
				from = filepath.Join(filepath.Dir(self), hookName)
			}
			file := filepath.Join(to, hookName)
			changed, err := installProgram(from, file)
			if err != nil {
				return fmt.Errorf("install the CDI hook: %w", err)
			}
			what := "is up to date"
			if changed {
				what = "installed"
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s %s\n", file, what)
			return err
		},
	}
	cmd.Flags().StringVar(&to, "to", "", "`DIR` on the host, at the same path in this container; made if it is missing")
	cmd.Flags().StringVar(&from, "from", "", "`FILE` to install (default: nvidia-cdi-hook beside this program)")
	// The agent's own help is grouped by its flags.
	cmd.SetHelpFunc((&cobra.Command{}).HelpFunc())
	cmd.SetUsageFunc((&cobra.Command{}).UsageFunc())
	return cmd
}

// installProgram makes to an executable copy of from and tells whether it had
// to. Who opens to finds the old program or the new one, whole, also after a
// crash.
func installProgram(from, to string) (changed bool, err error) {
	program, err := os.ReadFile(from)
	if err != nil {
		return false, err
	}
	if same, err := isInstalled(program, to); same || err != nil {
		return false, err
	}
	dir := filepath.Dir(to)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return false, err
	}
	tmp, err := os.CreateTemp(dir, "."+filepath.Base(to)+"-*")
	if err != nil {
		return false, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(tmp.Name()))
		}
	}()
	_, err = tmp.Write(program)
	if err == nil {
		// Whatever the umask.
		err = tmp.Chmod(0o755)
	}
	if err == nil {
		err = tmp.Sync()
	}
	// A program that is open for writing cannot be run.
	if err = errors.Join(err, tmp.Close()); err != nil {
		return false, err
	}
	return true, os.Rename(tmp.Name(), to)
}

// isInstalled tells whether file is the program and may be run by everybody.
func isInstalled(program []byte, file string) (bool, error) {
	info, err := os.Lstat(file)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if info.IsDir() {
		return false, fmt.Errorf("%s is a directory", file)
	}
	if !info.Mode().IsRegular() || info.Mode().Perm() != 0o755 || info.Size() != int64(len(program)) {
		return false, nil
	}
	have, err := os.ReadFile(file)
	return bytes.Equal(have, program), err
}
