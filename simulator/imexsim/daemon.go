// SPDX-License-Identifier: Apache-2.0

package imexsim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/gpu-dra/gpu-dra-driver/simulator/simerr"
)

// Ready is the answer of a daemon that serves its node.
const Ready = "READY\n"

// queryTimeout limits a query of the daemon's state.
const queryTimeout = 5 * time.Second

// Run runs the daemon until ctx ends. It reads the nodes again for each value from reload,
// as nvidia-imex does for the signal USR1. It writes its log to log.
func Run(ctx context.Context, c Config, reload <-chan os.Signal, log io.Writer) error {
	nodes, err := c.readNodes()
	if err != nil {
		return err
	}
	if c.Commands == "" {
		return follow(ctx, c, nodes, reload, log)
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", c.Commands)
	if err != nil {
		return fmt.Errorf("IMEX command service: %w", err)
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	served := make(chan error, 1)
	go func() {
		served <- serve(listener)
		stop()
	}()
	err = follow(ctx, c, nodes, reload, log)
	_ = listener.Close() // it ends serve, which reports other errors
	return errors.Join(err, <-served)
}

// follow reads the nodes again for each value from reload, until ctx ends.
func follow(ctx context.Context, c Config, nodes []string, reload <-chan os.Signal, log io.Writer) error {
	for {
		if _, err := fmt.Fprintf(log, "simulated IMEX daemon: %d nodes, commands at %q\n", len(nodes), c.Commands); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-reload:
			var err error
			if nodes, err = c.readNodes(); err != nil {
				return err
			}
		}
	}
}

// serve answers each client that the daemon is ready, until the listener is closed.
func serve(listener net.Listener) error {
	for {
		client, err := listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("IMEX command service: %w", err)
		}
		// A client that has gone needs no answer. One line fits the buffer of any socket.
		_, _ = io.WriteString(client, Ready)
		_ = client.Close()
	}
}

// Query returns the state of the running daemon with that configuration, a line. It returns
// [simerr.ErrNotReady] if none answers.
func Query(ctx context.Context, c Config) (string, error) {
	if c.Commands == "" {
		return "", fmt.Errorf("query IMEX: %w: the command service is off (IMEX_CMD_ENABLED)", simerr.ErrNotReady)
	}
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	connection, err := (&net.Dialer{}).DialContext(ctx, "tcp", c.Commands)
	if err != nil {
		return "", fmt.Errorf("query IMEX: %w: %w", simerr.ErrNotReady, err)
	}
	defer connection.Close() //nolint:errcheck // it was only read
	deadline, _ := ctx.Deadline()
	if err := connection.SetReadDeadline(deadline); err != nil {
		return "", fmt.Errorf("query IMEX: %w", err)
	}
	answer, err := io.ReadAll(io.LimitReader(connection, 100))
	if err != nil {
		return "", fmt.Errorf("query IMEX: %w: %w", simerr.ErrNotReady, err)
	}
	return string(answer), nil
}
