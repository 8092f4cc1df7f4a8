// SPDX-License-Identifier: Apache-2.0

package mpssim

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/gpu-dra/gpu-dra-driver/simulator/simerr"
)

// serverConfig is a server of a configuration file.
type serverConfig struct {
	name       string
	values     map[string]string
	namespaces []namespaceConfig
}

type namespaceConfig struct {
	name   string
	values map[string]string
}

// readConfig reads the configuration file of a daemon: the part of TOML that tables of
// servers and namespaces need, and no other key than NVIDIA documents.
func readConfig(o Options) ([]serverConfig, error) {
	if o.Apply == "" {
		return nil, nil
	}
	if o.Protocol != protocolNamed {
		return nil, fmt.Errorf("--apply: %w with protocol %d", simerr.ErrInvalid, o.Protocol)
	}
	data, err := os.ReadFile(o.Apply)
	if err != nil {
		return nil, err
	}
	var servers []serverConfig
	at := map[string]string{}
	keys := []string{"schema_version"}
	for number, line := range strings.Split(string(data), "\n") {
		line = strings.TrimSpace(line)
		refuse := func(why string) error {
			return fmt.Errorf("%s:%d: %w: %s: %s", o.Apply, number+1, simerr.ErrInvalid, why, line)
		}
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if table, ok := strings.CutPrefix(line, "["); ok {
			path := strings.Split(strings.TrimSuffix(table, "]"), ".")
			at = map[string]string{}
			switch {
			case !strings.HasSuffix(table, "]"):
				return nil, refuse("no table")
			case len(path) == 2 && path[0] == "servers":
				keys = []string{"allowed_devices", "pinned_memory_limit", "active_thread_percentage", "client_priority", "uid", "locality_domains"}
				servers = append(servers, serverConfig{name: path[1], values: at})
			case len(path) == 4 && path[0] == "servers" && path[2] == "namespaces":
				i := slices.IndexFunc(servers, func(s serverConfig) bool { return s.name == path[1] })
				if i < 0 {
					return nil, refuse("no such server")
				}
				keys = []string{"pinned_memory_limit", "active_thread_percentage", "client_priority"}
				servers[i].namespaces = append(servers[i].namespaces, namespaceConfig{name: path[3], values: at})
			default:
				return nil, refuse("unknown table")
			}
			continue
		}
		key, value, ok := strings.Cut(line, "=")
		key, value = strings.TrimSpace(key), strings.TrimSpace(value)
		switch _, twice := at[key]; {
		case !ok:
			return nil, refuse("no value")
		case !slices.Contains(keys, key) || twice:
			return nil, refuse("unknown or repeated key")
		}
		if text, err := strconv.Unquote(value); err == nil {
			value = text
		} else if key != "uid" && key != "locality_domains" {
			return nil, refuse("no string")
		}
		at[key] = value
	}
	return servers, nil
}

// configure creates the servers and namespaces of a configuration file, with their
// limits. No client has connected yet: the daemon's own socket does not exist.
func (d *Daemon) configure(servers []serverConfig) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, config := range servers {
		uid := d.uid
		if text, given := config.values["uid"]; given {
			var err error
			if uid, err = strconv.Atoi(text); err != nil {
				return fmt.Errorf("server %s: %w: uid %s", config.name, simerr.ErrInvalid, text)
			}
		}
		var allowed []string
		if text := config.values["allowed_devices"]; text != "" {
			allowed = strings.Split(text, ",")
		}
		s, err := d.createServer(config.name, uid, allowed)
		if err != nil {
			return fmt.Errorf("server %s: %w", config.name, err)
		}
		if len(s.namespaces) == 0 {
			continue // it has disappeared
		}
		if err := limitAll(s.namespaces[0], config.values); err != nil {
			return fmt.Errorf("server %s: %w", config.name, err)
		}
		for _, space := range config.namespaces {
			n, err := s.find(space.name)
			if space.name != defaultNamespace {
				n, err = d.createNamespace(s, space.name)
			}
			if err == nil {
				err = limitAll(n, space.values)
			}
			if err != nil {
				return fmt.Errorf("namespace %s: %w", space.name, err)
			}
		}
	}
	return nil
}

// limitAll sets the limits among the values of a table.
func limitAll(n *namespace, values map[string]string) error {
	for key, value := range values {
		switch key {
		case "pinned_memory_limit", "active_thread_percentage", "client_priority":
			if err := n.set(strings.ReplaceAll(key, "_", "-"), value); err != nil {
				return err
			}
		}
	}
	return nil
}
