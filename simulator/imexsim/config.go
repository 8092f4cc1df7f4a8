// SPDX-License-Identifier: Apache-2.0

package imexsim

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"

	"github.com/gpu-dra/gpu-dra-driver/simulator/simerr"
)

// DefaultConfig is the configuration file that both programs read without -c.
const DefaultConfig = "/etc/nvidia-imex/config.cfg"

// Config is what the simulated daemon uses of a configuration file. The names of its
// settings are in NVIDIA's IMEX guide.
type Config struct {
	// Nodes is the file with the nodes of the domain, one in each line.
	Nodes string
	// Commands is the address of the command service, or empty if it is off.
	Commands string
}

// ReadConfig reads a configuration file of lines NAME=value. It returns [simerr.ErrNotFound]
// if there is none, and [simerr.ErrInvalid] if a line has another form.
func ReadConfig(path string) (Config, error) {
	settings := map[string]string{
		"IMEX_NODE_CONFIG_FILE": "/etc/nvidia-imex/nodes_config.cfg",
		"IMEX_CMD_ENABLED":      "0",
	}
	lines, err := readLines(path)
	if err != nil {
		return Config{}, fmt.Errorf("IMEX configuration %s: %w", path, err)
	}
	for _, line := range lines {
		name, value, ok := strings.Cut(line, "=")
		if !ok {
			return Config{}, fmt.Errorf("IMEX configuration %s: %w: %q is not NAME=value", path, simerr.ErrInvalid, line)
		}
		settings[strings.TrimSpace(name)] = strings.TrimSpace(value)
	}
	c := Config{Nodes: settings["IMEX_NODE_CONFIG_FILE"]}
	if settings["IMEX_CMD_ENABLED"] != "1" {
		return c, nil
	}
	if _, err := strconv.ParseUint(settings["IMEX_CMD_PORT"], 10, 16); err != nil {
		return Config{}, fmt.Errorf("IMEX configuration %s: %w: IMEX_CMD_PORT=%q, want a port", path, simerr.ErrInvalid, settings["IMEX_CMD_PORT"])
	}
	c.Commands = net.JoinHostPort(settings["IMEX_CMD_BIND_INTERFACE_IP"], settings["IMEX_CMD_PORT"])
	return c, nil
}

// readNodes returns the nodes of the domain. It returns [simerr.ErrInvalid] if there are none.
func (c Config) readNodes() ([]string, error) {
	nodes, err := readLines(c.Nodes)
	if err == nil && len(nodes) == 0 {
		err = fmt.Errorf("%w: it names no node", simerr.ErrInvalid)
	}
	if err != nil {
		return nil, fmt.Errorf("IMEX nodes %s: %w", c.Nodes, err)
	}
	return nodes, nil
}

// readLines returns the lines of a file that are neither empty nor comments.
func readLines(path string) ([]string, error) {
	file, err := os.Open(path)
	if os.IsNotExist(err) {
		return nil, fmt.Errorf("%w: %w", simerr.ErrNotFound, err)
	}
	if err != nil {
		return nil, err
	}
	defer file.Close() //nolint:errcheck // it was only read
	var lines []string
	scanner := bufio.NewScanner(file)
	for scanner.Scan() {
		if line := strings.TrimSpace(scanner.Text()); line != "" && !strings.HasPrefix(line, "#") {
			lines = append(lines, line)
		}
	}
	return lines, scanner.Err()
}
