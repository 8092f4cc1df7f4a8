// SPDX-License-Identifier: Apache-2.0

package mpssim

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/gpu-dra/gpu-dra-driver/simulator/simerr"
)

// namedRelease is the first release of the driver with protocol 3.
const namedRelease = 615

// Invocation is a call of nvidia-cuda-mps-control.
type Invocation struct {
	// Options of the daemon, from the arguments and the environment.
	Options Options
	// Foreground and Background start a daemon, and Help prints the help. Without any
	// of them, the program sends a command.
	Foreground, Background, Help bool
	// Command contains the words of a command of protocol 3. It is empty if the
	// standard input has the commands, one a line.
	Command []string
}

// Parse reads the arguments and the environment of nvidia-cuda-mps-control. Its flags
// are not in the style of other programs here. Drivers older than release 615 know
// neither protocol 3 nor its options.
func Parse(driverVersion string, args []string) (Invocation, error) {
	call := Invocation{Options: OptionsFromEnvironment()}
	release, _, _ := strings.Cut(driverVersion, ".")
	number, err := strconv.Atoi(release)
	if err != nil {
		return call, fmt.Errorf("driver version %q: %w", driverVersion, simerr.ErrInvalid)
	}
	named := number >= namedRelease
	for i := 0; i < len(args); i++ {
		option := args[i]
		unknown := fmt.Errorf("nvidia-cuda-mps-control: %w: unknown option %s", simerr.ErrInvalid, option)
		value := func() string {
			if i++; i < len(args) {
				return args[i]
			}
			return ""
		}
		switch name := strings.TrimLeft(option, "-"); {
		case name == option && named:
			call.Command, i = args[i:], len(args)
		case name == "f", name == "foreground" && named:
			call.Foreground = true
		case name == "d", name == "daemon" && named:
			call.Background = true
		case name == "M", name == "multiuser-server", named && (name == "m" || name == "multiuser"):
			call.Options.MultiUser = true
		case !named:
			return call, unknown
		case name == "h", name == "help":
			call.Help = true
		case name == "q", name == "quit":
			call.Command = []string{"--quit"}
		case name == "a", name == "apply":
			call.Options.Apply = value()
		case name == "p", name == "protocol":
			if call.Options.Protocol, err = protocolOf(value()); err != nil {
				return call, err
			}
		default:
			return call, unknown
		}
	}
	if text := os.Getenv("CUDA_MPS_PROTOCOL_VERSION"); text != "" && named {
		call.Options.Protocol, err = protocolOf(text)
	}
	return call, err
}

func protocolOf(text string) (int, error) {
	if text != "2" && text != "3" {
		return 0, fmt.Errorf("nvidia-cuda-mps-control: %w: protocol %q is neither 2 nor 3", simerr.ErrInvalid, text)
	}
	return int(text[0] - '0'), nil
}

// HelpText returns the help of the protocol.
func HelpText(protocol int) string {
	if protocol != protocolNamed {
		return "usage: nvidia-cuda-mps-control [-d | -f] [-multiuser-server]\n"
	}
	return `usage: nvidia-cuda-mps-control [options] | <module> <verb> [arguments]
modules:
  server      named servers
  namespace   namespaces of a server
  client      clients of servers
options:
  -h, --help  -d, --daemon  -f, --foreground  -m, --multiuser
  -a, --apply <file>  -p, --protocol <2|3>  -q, --quit
`
}
