// SPDX-License-Identifier: Apache-2.0

package memoryhook

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/node/containerlimits"
)

// A hook connects to the agent's socket and waits for the line ready. Only then it sends a
// limit, as a line of JSON, and the agent answers with the line limited once it is set. The
// agent closes the connection after anything else. So a hook that has not waited to the end
// can have another process set the limit: either the agent has not received it, or has failed.
const (
	ready   = "ready\n"
	limited = "limited\n"
)

const (
	// readyPatience is the time for the agent to be ready. It is short: without the agent
	// the call takes some milliseconds longer.
	readyPatience = time.Second
	// acceptPause is the time after an error of the socket.
	acceptPause = time.Second
	// mostLimit is the limit for a request in bytes. Most of it is the path of the cgroup.
	mostLimit = 16 << 10
)

// requestLimit lets the agent at a socket set a limit. If ctx has ended, the agent may still set it.
// After another error it does not.
func requestLimit(ctx context.Context, socket string, l containerlimits.Limit) error {
	soon, cancel := context.WithTimeout(ctx, readyPatience)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(soon, "unix", socket)
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // it has the answer, or has failed
	if err := expect(soon, conn, ready); err != nil {
		return err
	}
	return sendLimit(ctx, conn, l)
}

func sendLimit(ctx context.Context, conn net.Conn, l containerlimits.Limit) error {
	line, err := json.Marshal(l)
	if err != nil {
		return err
	}
	if _, err := conn.Write(append(line, '\n')); err != nil {
		return err
	}
	err = expect(ctx, conn, limited)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		<-ctx.Done() // at the same time, but each has its own timer
	}
	if err != nil && ctx.Err() != nil {
		return notAnswered(ctx)
	}
	return err
}

// expect returns an error unless this line comes before the deadline of ctx.
func expect(ctx context.Context, conn net.Conn, want string) error {
	until, _ := ctx.Deadline() // the zero time is none
	if err := conn.SetReadDeadline(until); err != nil {
		return err
	}
	got := make([]byte, len(want))
	if _, err := io.ReadFull(conn, got); err != nil {
		return err
	}
	if string(got) != want {
		return fmt.Errorf("%w: the agent answers %q", gpu.ErrInvalid, got)
	}
	return nil
}

// Listener is the socket of an agent. Hooks wait until it serves.
type Listener struct{ socket *net.UnixListener }

// Listen makes the socket at a path and replaces another agent's. The socket stays, and
// refuses connections, after its end.
func Listen(path string) (*Listener, error) {
	l, err := listen(path)
	if err != nil {
		return nil, fmt.Errorf("listen for memory hooks: %w", err)
	}
	return &Listener{l}, nil
}

func listen(path string) (*net.UnixListener, error) {
	// Never at its path without a listener, so no hook misses it.
	own := path + "." + strconv.Itoa(os.Getpid())
	if err := os.Remove(own); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: own, Net: "unix"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false)
	if err = os.Chmod(own, 0o600); err == nil {
		err = os.Rename(own, path)
	}
	if err != nil {
		return nil, errors.Join(err, l.Close(), os.Remove(own))
	}
	return l, nil
}

// Serve sets limits for hooks until ctx ends, one at a time. While a call of the driver hangs,
// no hook is answered, and each makes its call itself. done gets the result of each call, and
// an error without a limit for each hook that is not served.
func (l *Listener) Serve(ctx context.Context, driver Driver, done func(containerlimits.Limit, error)) {
	stop := context.AfterFunc(ctx, func() { _ = l.socket.Close() })
	defer stop()
	for {
		conn, err := l.socket.AcceptUnix()
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			err = answer(ctx, conn, driver, done)
		} else {
			err = fmt.Errorf("listen for memory hooks: %w", err)
			pause(ctx) // this process may have too many files open
		}
		if err != nil {
			done(containerlimits.Limit{}, err)
		}
	}
}

func pause(ctx context.Context) {
	select {
	case <-time.After(acceptPause):
	case <-ctx.Done():
	}
}

// answer serves one hook. The error is of a peer that is not a hook. A hook that has ended
// is none.
func answer(ctx context.Context, conn *net.UnixConn, driver Driver, done func(containerlimits.Limit, error)) error {
	defer conn.Close() //nolint:errcheck // the hook has its answer, or starts its own call
	if err := checkPeer(conn); err != nil {
		return err
	}
	if err := conn.SetDeadline(time.Now().Add(readyPatience)); err != nil {
		return err
	}
	if _, err := io.WriteString(conn, ready); err != nil {
		return nil // the hook has not waited
	}
	line, err := bufio.NewReader(io.LimitReader(conn, mostLimit)).ReadBytes('\n')
	if err != nil {
		return nil // the hook has not waited
	}
	var l containerlimits.Limit
	if err := json.Unmarshal(line, &l); err != nil {
		return fmt.Errorf("request of a memory hook: %w: %w", gpu.ErrInvalid, err)
	}
	err = set(ctx, driver, l)
	done(l, err)
	if err == nil {
		_ = conn.SetDeadline(time.Now().Add(readyPatience)) // without it the write still ends with the hook
		_, _ = io.WriteString(conn, limited)                // the hook has ended, and its container has not started
	}
	return nil
}

// checkPeer returns an error that wraps [gpu.ErrPermission] unless the peer has this process'
// user, which is root. The mode of the socket says the same; it could be changed.
func checkPeer(conn *net.UnixConn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var peer *unix.Ucred
	var peerErr error
	if err := raw.Control(func(fd uintptr) { peer, peerErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); err != nil {
		return err
	}
	if peerErr != nil {
		return fmt.Errorf("user of a memory hook: %w", peerErr)
	}
	if int(peer.Uid) != os.Geteuid() {
		return fmt.Errorf("%w: user %d (process %d) may not set memory limits", gpu.ErrPermission, peer.Uid, peer.Pid)
	}
	return nil
}
