// SPDX-License-Identifier: Apache-2.0

package mpssim

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strings"

	"github.com/gpu-dra/gpu-dra-driver/simulator/simerr"
)

// Control sends commands to the daemon of a pipe directory and writes the answers. The
// command is the arguments of the program; without arguments, commands are read from a
// text, one a line. the arguments of the program, or, without any, the commands in a
// text, one a line. The error wraps [simerr.ErrNotFound] if no daemon answers.
func Control(ctx context.Context, pipeDir string, commands io.Reader, output io.Writer, args ...string) error {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", filepath.Join(pipeDir, socketName))
	if err != nil {
		return fmt.Errorf("Cannot find MPS control daemon process: %w: %w", simerr.ErrNotFound, err) //nolint:staticcheck // the words of the real one
	}
	defer func() { _ = conn.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	encoder, decoder := json.NewEncoder(conn), json.NewDecoder(conn)
	if len(args) > 0 {
		return send(encoder, decoder, Request{Op: opCommand, Command: strings.Join(args, " "), Protocol: protocolNamed}, output)
	}
	lines := bufio.NewScanner(commands)
	for lines.Scan() {
		command := strings.TrimSpace(lines.Text())
		if command == "" {
			continue
		}
		if err := send(encoder, decoder, Request{Op: opCommand, Command: command, Protocol: protocolLegacy}, output); err != nil {
			return err
		}
		if strings.Fields(command)[0] == "quit" {
			return nil
		}
	}
	return lines.Err()
}

// errRefused is the error for a command that the daemon has refused in words.
var errRefused = errors.New("refused")

// send sends a command and writes the answer.
func send(encoder *json.Encoder, decoder *json.Decoder, r Request, output io.Writer) error {
	if err := encoder.Encode(r); err != nil {
		return fmt.Errorf("send %q to the MPS control daemon: %w", r.Command, err)
	}
	var reply Reply
	if err := decoder.Decode(&reply); err != nil {
		return fmt.Errorf("answer of the MPS control daemon to %q: %w", r.Command, err)
	}
	if reply.Error != nil {
		return reply.Error
	}
	if reply.Output != nil {
		if _, err := io.WriteString(output, *reply.Output); err != nil {
			return err
		}
	}
	if reply.Status != 0 {
		return fmt.Errorf("command %q: %w", r.Command, errRefused)
	}
	return nil
}
