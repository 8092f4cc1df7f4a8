// SPDX-License-Identifier: Apache-2.0

package memoryhook_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/node/containerlimits"
	"github.com/gpu-dra/gpu-dra-driver/pkg/node/memoryhook"
	"github.com/gpu-dra/gpu-dra-driver/simulator/cgroup/cgrouptest"
	"github.com/gpu-dra/gpu-dra-driver/test/files/mountns"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

// asked is a container on a node with an agent.
type asked struct {
	*testing.T
	limits containerlimits.Folder
	socket string
	// folder is the cgroup of the container, and pid its process.
	folder string
	pid    int
	// program calls the driver, and called has its arguments.
	program, called string
}

func newAsked(t *testing.T) *asked {
	t.Helper()
	// The path of a socket has at most 107 bytes.
	dir, err := os.MkdirTemp("", "hook") //nolint:usetesting // see above
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	a := &asked{T: t, limits: containerlimits.Folder(filepath.Join(dir, "limits")), socket: filepath.Join(dir, "hooks.sock"), folder: cgrouptest.New(t), program: "/bin/sh", called: filepath.Join(dir, "called")}
	a.pid = cgrouptest.Process(t, a.folder)
	must(t, a.limits.Open(device))
	return a
}

// serve starts an agent with a driver, and returns its end. results has the results of
// its calls.
func (a *asked) serve(d memoryhook.Driver) (results <-chan error, end func()) {
	a.Helper()
	listener, err := memoryhook.Listen(a.socket)
	must(a, err)
	ctx, cancel := context.WithCancel(a.Context())
	all := make(chan error, 16)
	var serving sync.WaitGroup
	serving.Go(func() { listener.Serve(ctx, d, func(_ containerlimits.Limit, err error) { all <- err }) })
	end = func() {
		cancel()
		serving.Wait()
	}
	a.Cleanup(end)
	return all, end
}

// run runs the hook. Its own call of the driver succeeds.
func (a *asked) run(arguments ...string) error {
	a.Helper()
	all := []string{"gpu-memory-hook", "--limits", string(a.limits), "--device", device, "--gpu", "0000:1b:00.0", "--bytes", "4096", "--agent", a.socket}
	all = append(append(all, arguments...), "--", a.program, "-c", `echo "$*" >> `+a.called, "call")
	return memoryhook.Run(a.Context(), all, strings.NewReader(fmt.Sprintf(`{"ociVersion":"1.2.0","id":"a-container","status":"creating","pid":%d}`, a.pid)))
}

// wantCalls reports an error unless the hook has made this number of calls itself.
func (a *asked) wantCalls(want int) {
	a.Helper()
	text, err := os.ReadFile(a.called)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		a.Fatal(err)
	}
	line := fmt.Sprintf("--gpu 0000:1b:00.0 --cgroup %s --id %s --bytes 4096 --timeout ", a.folder, idOf(a.T, a.folder))
	if strings.Count(string(text), line) != want || strings.Count(string(text), "\n") != want {
		a.Errorf("the hook's own calls are:\n%s\nwant %d like %s", text, want, line)
	}
}

func TestTheAgentSetsTheLimit(t *testing.T) {
	a, d := newAsked(t), driver{}
	_, end := a.serve(&d)
	must(t, a.run())
	end()
	if want := a.folder + ": 4096 on 0000:1b:00.0"; len(d.set) != 1 || d.set[0] != want {
		t.Errorf("the agent has set %q, want %q", d.set, want)
	}
	a.wantCalls(0)
	// Its socket is still there.
	if err := a.run(); err != nil {
		t.Errorf("after the agent's end: %v", err)
	}
	a.wantCalls(1)
}

func TestTheHookCallsTheDriverIfTheAgentCannot(t *testing.T) {
	for name, c := range map[string]struct {
		agent func(a *asked)
	}{
		"no socket": {func(*asked) {}},
		"the driver refuses the agent": {func(a *asked) {
			a.serve(&driver{call: func(context.Context) error { return gpu.ErrPermission }})
		}},
		"the agent ends while it calls": {func(a *asked) {
			var end func()
			_, end = a.serve(&driver{call: func(ctx context.Context) error {
				go end()
				<-ctx.Done()
				return ctx.Err()
			}})
		}},
		"another program is at the socket": {func(a *asked) {
			listener, err := new(net.ListenConfig).Listen(a.Context(), "unix", a.socket)
			must(a, err)
			a.Cleanup(func() { _ = listener.Close() })
			go func() {
				conn, err := listener.Accept()
				if err != nil {
					return
				}
				_, _ = io.WriteString(conn, "220 mail.example.com")
				_ = conn.Close()
			}()
		}},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAsked(t)
			c.agent(a)
			must(t, a.run())
			a.wantCalls(1)
		})
	}
}

// Two calls for one cgroup could end in any order. So after the agent has begun its call, the
// hook makes none.
func TestWhileTheDriverHangsTheHookOfThatCallFails(t *testing.T) {
	a := newAsked(t)
	begun := make(chan struct{})
	a.serve(&driver{call: func(ctx context.Context) error {
		close(begun)
		<-ctx.Done()
		return ctx.Err()
	}})
	a.program = "/a/second/call/would/fail/to/start"
	require.Error(t, "run", a.run("--timeout", "1s"), gpu.ErrTimeout)
	a.program = "/bin/sh"
	<-begun
	if all, err := a.limits.Containers(device); err != nil || len(all) > 0 {
		t.Errorf("the container that did not start counts: %v, %v", all, err)
	}
	// The agent is not ready for another one.
	if err := a.run(); err != nil {
		t.Errorf("while the agent hangs: %v", err)
	}
	a.wantCalls(1)
}

func TestAPeerThatSaysNothingDoesNotKeepTheAgent(t *testing.T) {
	a := newAsked(t)
	a.serve(&driver{})
	conn, err := new(net.Dialer).DialContext(t.Context(), "unix", a.socket)
	must(t, err)
	defer conn.Close() //nolint:errcheck // nothing was written
	must(t, conn.SetReadDeadline(time.Now().Add(time.Minute)))
	if said, err := io.ReadAll(conn); err != nil || string(said) != "ready\n" {
		t.Errorf("the agent says %q: %v, want that it is ready, and the end", said, err)
	}
}

// Two agents of a rolling update start at the same time.
func TestAgentsListenSideBySide(t *testing.T) {
	a := newAsked(t)
	self, err := os.Executable()
	must(t, err)
	var agents []*exec.Cmd
	for range 3 {
		agent := exec.CommandContext(t.Context(), self)
		agent.Env = []string{agentSocket + "=" + a.socket}
		agent.Stderr = t.Output()
		must(t, agent.Start())
		agents = append(agents, agent)
	}
	for _, agent := range agents {
		if err := agent.Wait(); err != nil {
			t.Errorf("an agent cannot listen with others: %v", err)
		}
	}
}

// During a rolling update the new agent takes over, and the old one ends later.
func TestTheNewestAgentAnswers(t *testing.T) {
	a := newAsked(t)
	var older, newer driver
	_, end := a.serve(&older)
	_, endNewer := a.serve(&newer)
	end()
	must(t, a.run())
	endNewer()
	if len(older.set) != 0 || len(newer.set) != 1 {
		t.Errorf("the older agent has set %q, the newer one %q", older.set, newer.set)
	}
	a.wantCalls(0)
}

// Only root may limit memory, also if the folder and the socket are open to all.
func TestRequestsThatTheAgentRefuses(t *testing.T) {
	a := newAsked(t)
	request := fmt.Sprintf(`{"cgroup":%q,"id":%s,"gpu":"0000:1b:00.0","bytes":1}`, a.folder, idOf(t, a.folder))
	for name, c := range map[string]struct {
		request string
		user    uint32
		want    error
	}{
		"not JSON":             {request: "limit", want: gpu.ErrInvalid},
		"another GPU":          {request: strings.Replace(request, "0000:1b", "1b", 1), want: gpu.ErrInvalid},
		"another cgroup":       {request: fmt.Sprintf(`{"cgroup":%q,"id":99999999,"gpu":"0000:1b:00.0","bytes":1}`, a.folder), want: gpu.ErrNotFound},
		"a folder of the disk": {request: fmt.Sprintf(`{"cgroup":%q,"id":1,"gpu":"0000:1b:00.0","bytes":1}`, t.TempDir()), want: gpu.ErrNotSupported},
		"another user":         {request: request, user: 65532, want: gpu.ErrPermission},
	} {
		t.Run(name, func(t *testing.T) {
			var d driver
			results, end := a.serve(&d)
			must(t, os.Chmod(a.socket, 0o777))
			must(t, os.Chmod(filepath.Dir(a.socket), 0o755)) //nolint:gosec // so that another user gets to the socket
			self, err := os.Executable()
			must(t, err)
			client := exec.CommandContext(t.Context(), self)
			client.Env = []string{clientSocket + "=" + a.socket}
			client.Stdin = strings.NewReader(c.request + "\n")
			if c.user != 0 {
				// The user may not read the test's folder.
				file, err := os.Open(self)
				must(t, err)
				defer file.Close() //nolint:errcheck // it was only read
				client.Path, client.ExtraFiles = "/proc/self/fd/3", []*os.File{file}
				client.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: c.user, Gid: c.user}}
			}
			out, err := client.CombinedOutput()
			if err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			require.Error(t, "the agent's answer", <-results, c.want)
			end()
			if len(d.set) > 0 || strings.Contains(string(out), "limited") {
				t.Errorf("set %q, answered %q", d.set, out)
			}
		})
	}
}

// clientSocket names the socket to which this program sends its standard input, as another
// user would.
const clientSocket = "TEST_CLIENT_OF"

// agentSocket names the socket at which this program listens again and again.
const agentSocket = "TEST_AGENT_AT"

func TestMain(m *testing.M) {
	if socket := os.Getenv(agentSocket); socket != "" {
		for range 300 {
			if _, err := memoryhook.Listen(socket); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
		}
		return
	}
	socket := os.Getenv(clientSocket)
	if socket == "" {
		mountns.Enter()
		os.Exit(m.Run())
	}
	conn, err := new(net.Dialer).DialContext(context.Background(), "unix", socket)
	if err == nil {
		_, _ = io.Copy(conn, os.Stdin)
		_, _ = io.Copy(os.Stdout, conn)
	} else {
		fmt.Println(err)
		os.Exit(1)
	}
}
