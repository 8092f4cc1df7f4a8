// SPDX-License-Identifier: Apache-2.0

package mpssim

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strings"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// Control sends the commands in a text, one a line, to the daemon of a pipe
// directory and writes what it answers. It is [gpu.ErrNotFound] where no daemon
// answers.
func Control(ctx context.Context, pipeDir string, commands io.Reader, output io.Writer) error {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", filepath.Join(pipeDir, socketName))
	if err != nil {
		return fmt.Errorf("Cannot find MPS control daemon process: %w: %w", gpu.ErrNotFound, err) //nolint:staticcheck // the words of the real one
	}
	defer func() { _ = conn.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	encoder, decoder := json.NewEncoder(conn), json.NewDecoder(conn)
	lines := bufio.NewScanner(commands)
	for lines.Scan() {
		command := strings.TrimSpace(lines.Text())
		if command == "" {
			continue
		}
		if err := encoder.Encode(Request{Op: opCommand, Command: command}); err != nil {
			return fmt.Errorf("send %q to the MPS control daemon: %w", command, err)
		}
		var reply Reply
		if err := decoder.Decode(&reply); err != nil {
			return fmt.Errorf("answer of the MPS control daemon to %q: %w", command, err)
		}
		if reply.Error != nil {
			return reply.Error
		}
		if reply.Output != nil {
			if _, err := io.WriteString(output, *reply.Output); err != nil {
				return err
			}
		}
		if strings.Fields(command)[0] == "quit" {
			return nil
		}
	}
	return lines.Err()
}
