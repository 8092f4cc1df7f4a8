// SPDX-License-Identifier: Apache-2.0

package supervisor_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gpu-dra/gpu-dra-driver/test/files/mountns"
)

// The test binary plays nvidia-cuda-mps-control where it is started under that
// name. Faults are files in the folder "faults" of its driver root:
//
//	dead     the daemon ends at once, with a message
//	deaf     the daemon runs and opens no socket; "deaf UUID" is for the daemon of
//	         one device
//	hung     commands are never answered
//	refuse   memory limits are refused, in words and with success
//	vague    it answers to a question for a limit in words
//	endless  the list of servers never ends
//	crowd    the list of servers has a thousand
//	zombie   it does not quit when told
//	parent   the daemon starts a process that outlives it, as a server may
//	planted  where it writes its PID, there is a link to the file
//	         "precious" of its driver root

func TestMain(m *testing.M) {
	switch filepath.Base(os.Args[0]) {
	case "nvidia-cuda-mps-control":
		if root := simulatedRoot(); root != "" {
			playSimulator(root)
			return
		}
		if err := playControl(); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
	default:
		mountns.Enter()
		os.Exit(m.Run())
	}
}

func faulty(name string) bool {
	_, err := os.Stat(filepath.Join(filepath.Dir(os.Args[0]), "../../faults", name))
	return err == nil
}

func playControl() error {
	socket := filepath.Join(os.Getenv("CUDA_MPS_PIPE_DIRECTORY"), "control")
	if len(os.Args) == 1 {
		return playCommandLine(socket)
	}
	go endWithTest()
	if os.Args[1] == "server" {
		select {} // until it is killed
	}
	if faulty("dead") {
		return errors.New("no CUDA-capable device is detected")
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if faulty("deaf") || faulty("deaf "+os.Getenv("CUDA_VISIBLE_DEVICES")) {
		<-ctx.Done()
		return nil
	}
	log, err := os.OpenFile(filepath.Join(os.Getenv("CUDA_MPS_LOG_DIRECTORY"), "commands"), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	_, _ = fmt.Fprintf(log, "start %s on %s\n", strings.Join(os.Args[1:], " "), os.Getenv("CUDA_VISIBLE_DEVICES"))
	pidFile := filepath.Join(filepath.Dir(socket), "nvidia-cuda-mps-control.pid")
	if faulty("planted") {
		if err := os.Symlink(filepath.Join(filepath.Dir(os.Args[0]), "../../precious"), pidFile); err != nil {
			return err
		}
	}
	if err := os.WriteFile(pidFile, []byte(strconv.Itoa(os.Getpid())), 0o644); err != nil {
		return err
	}
	if faulty("parent") {
		server := exec.Command(os.Args[0], "server")
		if err := server.Start(); err != nil {
			return err
		}
		_, _ = fmt.Fprintf(log, "server %d\n", server.Process.Pid)
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	d := doubleDaemon{log: log, values: map[string]string{}}
	for {
		conn, err := listener.Accept()
		if err != nil {
			return err
		}
		if faulty("hung") {
			continue
		}
		go d.serve(conn)
	}
}

// endWithTest ends a daemon or a server when the test that it is of has: one that
// fails or is killed stops none of them.
func endWithTest() {
	root := filepath.Join(filepath.Dir(os.Args[0]), "../..")
	test, err := strconv.Atoi(os.Getenv("TEST_PROCESS"))
	for range time.Tick(100 * time.Millisecond) {
		if _, gone := os.Stat(root); err != nil || gone != nil || syscall.Kill(test, 0) != nil {
			os.Exit(1)
		}
	}
}

// playCommandLine sends its input and prints the answers.
func playCommandLine(socket string) error {
	conn, err := net.Dial("unix", socket)
	if err != nil {
		return fmt.Errorf("Cannot find MPS control daemon process: %w", err)
	}
	commands, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	if _, err := conn.Write(commands); err != nil {
		return err
	}
	if err := conn.(*net.UnixConn).CloseWrite(); err != nil {
		return err
	}
	_, err = io.Copy(os.Stdout, conn)
	return err
}

type doubleDaemon struct {
	mu     sync.Mutex
	log    *os.File
	values map[string]string
}

// serverPID is the server that the double says it has while the file "server"
// is among the faults.
const serverPID = "4711"

func (d *doubleDaemon) serve(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	lines := bufio.NewScanner(conn)
	for lines.Scan() {
		d.mu.Lock()
		if words := strings.Fields(lines.Text()); len(words) > 0 {
			if !strings.HasPrefix(words[0], "get_") {
				_, _ = fmt.Fprintln(d.log, lines.Text())
			}
			_, _ = fmt.Fprint(conn, d.answer(words))
		}
		d.mu.Unlock()
	}
}

func (d *doubleDaemon) answer(words []string) string {
	name, args := words[0], words[1:]
	switch {
	case name == "quit":
		if !faulty("zombie") {
			os.Exit(0)
		}
		return ""
	case name == "get_server_list" && faulty("endless"):
		return strings.Repeat(serverPID+"\n", 1<<20)
	case name == "get_server_list" && faulty("crowd"):
		return strings.Repeat(serverPID+"\n", 1000)
	case name == "get_server_list" && faulty("server"):
		return serverPID + "\n"
	case name == "get_server_list":
		return ""
	case name == "get_server_status":
		return "ACTIVE\n"
	case name == "get_client_list":
		return "101\n102\n"
	case strings.HasPrefix(name, "set_") && strings.HasSuffix(name, "mem_limit") && faulty("refuse"):
		return "Invalid value\n"
	case strings.HasPrefix(name, "set_"):
		last := len(args) - 1
		d.values[strings.TrimPrefix(name, "set_")+strings.Join(args[:last], " ")] = args[last]
		if strings.HasSuffix(name, "percentage") {
			return args[last] + ".0\n"
		}
		return ""
	case strings.HasPrefix(name, "get_") && strings.HasSuffix(name, "percentage"):
		return d.values[strings.TrimPrefix(name, "get_")+strings.Join(args, " ")] + ".0\n"
	case strings.HasPrefix(name, "get_") && faulty("vague"):
		return "Device 0 pinned memory limit\n"
	case strings.HasPrefix(name, "get_"):
		return d.values[strings.TrimPrefix(name, "get_")+strings.Join(args, " ")] + "\n"
	default:
		return "Unknown command\n"
	}
}
