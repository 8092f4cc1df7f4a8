// SPDX-License-Identifier: Apache-2.0

package imexsim_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/gpu-dra/gpu-dra-driver/simulator/imexsim"
	"github.com/gpu-dra/gpu-dra-driver/simulator/simerr"
)

// config writes a configuration with a free port and with these nodes.
func config(t *testing.T, nodes string) (path, nodesPath string) {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must(t, err)
	_, port, err := net.SplitHostPort(listener.Addr().String())
	must(t, err)
	must(t, listener.Close())
	nodesPath = write(t, "nodes.cfg", nodes)
	return write(t, "config.cfg", fmt.Sprintf("# a comment\nDAEMONIZE=0\n\nIMEX_NODE_CONFIG_FILE=%s\nIMEX_CMD_ENABLED=1\nIMEX_CMD_BIND_INTERFACE_IP=127.0.0.1\nIMEX_CMD_PORT=%s\n", nodesPath, port)), nodesPath
}

func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	must(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func TestADaemonIsReadyWhileItRuns(t *testing.T) {
	path, nodes := config(t, "10.0.0.1\n")
	c, err := imexsim.ReadConfig(path)
	must(t, err)
	if answer, err := imexsim.Query(t.Context(), c); !errors.Is(err, simerr.ErrNotReady) {
		t.Errorf("before the daemon runs: %q, %v, want not ready", answer, err)
	}

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	out, log := io.Pipe()
	reload, ended := make(chan os.Signal, 1), make(chan error, 1)
	go func() {
		err := imexsim.Run(ctx, c, reload, log)
		ended <- errors.Join(err, log.Close())
	}()
	lines := bufio.NewScanner(out)
	if !lines.Scan() || !strings.Contains(lines.Text(), "1 nodes") {
		t.Errorf("the log has %q, want one node", lines.Text())
	}
	if answer, err := imexsim.Query(t.Context(), c); err != nil || answer != imexsim.Ready {
		t.Errorf("while the daemon runs: %q, %v", answer, err)
	}
	must(t, os.WriteFile(nodes, []byte("10.0.0.1\n10.0.0.2\n"), 0o600))
	reload <- syscall.SIGUSR1
	if !lines.Scan() || !strings.Contains(lines.Text(), "2 nodes") {
		t.Errorf("after the signal the log has %q, want two nodes", lines.Text())
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if _, err := imexsim.Query(t.Context(), c); !errors.Is(err, simerr.ErrNotReady) {
		t.Errorf("after the daemon: %v, want not ready", err)
	}
}

func TestBadConfigurationsAreRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		text string
		want error
	}{
		"no value": {"IMEX_CMD_ENABLED\n", simerr.ErrInvalid},
		"port":     {"IMEX_CMD_ENABLED=1\nIMEX_CMD_PORT=70000\n", simerr.ErrInvalid},
		"no port":  {"IMEX_CMD_ENABLED=1\n", simerr.ErrInvalid},
	} {
		if _, err := imexsim.ReadConfig(write(t, "config.cfg", tc.text)); !errors.Is(err, tc.want) {
			t.Errorf("%s: %v, want %v", name, err, tc.want)
		}
	}
	if _, err := imexsim.ReadConfig("/nowhere"); !errors.Is(err, simerr.ErrNotFound) {
		t.Errorf("no file: %v", err)
	}
	path, _ := config(t, "# nothing\n")
	c, err := imexsim.ReadConfig(path)
	must(t, err)
	if err := imexsim.Run(t.Context(), c, nil, io.Discard); !errors.Is(err, simerr.ErrInvalid) {
		t.Errorf("a domain without nodes: %v, want invalid", err)
	}
}

// must ends the test unless err is nil.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
