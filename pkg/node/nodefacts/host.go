// SPDX-License-Identifier: Apache-2.0

package nodefacts

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"

	agentv1 "github.com/gpu-dra/gpu-dra-driver/api/agent/v1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// containerdConfig is containerd's own configuration file, and crioConfig CRI-O's. The files of a
// folder of CRI-O override that one, the last one first.
const (
	containerdConfig = "etc/containerd/config.toml"
	crioConfig       = "etc/crio/crio.conf"
	crioConfigs      = "etc/crio/crio.conf.d"
)

// quoted matches a string of TOML in an array.
var quoted = regexp.MustCompile(`"([^"]*)"|'([^']*)'`)

// specDirs returns the value of cdi_spec_dirs in the configuration of a container runtime. It
// returns none if the text does not set it. The name is in one section only. The array can have several lines.
func specDirs(s string) ([]string, error) {
	var array strings.Builder
	for line := range strings.Lines(s) {
		line, _, _ = strings.Cut(line, "#")
		if array.Len() == 0 {
			key, value, _ := strings.Cut(line, "=")
			if strings.TrimSpace(key) != "cdi_spec_dirs" {
				continue
			}
			line = value
		}
		array.WriteString(line)
		if strings.Contains(line, "]") {
			break
		}
	}
	var dirs []string
	for _, found := range quoted.FindAllStringSubmatch(array.String(), -1) {
		dirs = append(dirs, found[1]+found[2])
	}
	return dirs, nil
}

// crioSpecDirs returns the folders of the last file of CRI-O that sets them.
func (r Root) crioSpecDirs() agentv1.Fact[[]string] {
	names, err := r.names(crioConfigs)
	found := factOf[[]string]("/"+crioConfig, nil, err)
	if err != nil {
		return found
	}
	paths := []string{crioConfig}
	for _, name := range names {
		paths = append(paths, filepath.Join(crioConfigs, name))
	}
	for _, path := range paths {
		if folder := readFile(r, path, specDirs); !folder.IsKnown() || len(folder.Value) > 0 {
			found = folder
		}
	}
	return found
}

const (
	// fabricManagerPackage begins the names of packages of Fabric Manager, such as
	// "nvidia-fabricmanager-550". Later ones have no number.
	fabricManagerPackage = "nvidia-fabricmanager"
	dpkgStatus           = "var/lib/dpkg/status"
	// driverContainer is the root of the driver container of the GPU operator.
	driverContainer = "run/nvidia/driver"
)

// fabricManagerRelease returns the release of the installed package of Fabric Manager. It does not
// read the database of rpm, which is binary.
func (r Root) fabricManagerRelease() agentv1.Fact[string] {
	found := readFile(r, filepath.Join(driverContainer, dpkgStatus), fabricManagerIn)
	if found.Value != "" {
		return found
	}
	return readFile(r, dpkgStatus, fabricManagerIn)
}

// fabricManagerIn returns the release of Fabric Manager in dpkg's list of packages.
func fabricManagerIn(s string) (string, error) {
	for entry := range strings.SplitSeq(s, "\n\n") {
		fields := map[string]string{}
		for line := range strings.Lines(entry) {
			if key, value, found := strings.Cut(line, ": "); found && !strings.HasPrefix(line, " ") {
				fields[key] = strings.TrimSpace(value)
			}
		}
		number, ok := strings.CutPrefix(fields["Package"], fabricManagerPackage)
		if !ok || strings.HasPrefix(number, "-dev") || fields["Status"] != "install ok installed" {
			continue
		}
		// The version is "[epoch:]release[-revision]".
		release := fields["Version"]
		if _, rest, found := strings.Cut(release, ":"); found {
			release = rest
		}
		release, _, _ = strings.Cut(release, "-")
		return release, nil
	}
	return "", nil
}

// cpuManager returns the policy in the state of the kubelet's CPU manager.
func cpuManager(s string) (string, error) {
	var state struct {
		PolicyName string `json:"policyName"`
	}
	if err := json.Unmarshal([]byte(s), &state); err != nil {
		return "", fmt.Errorf("%w: %w", gpu.ErrCorrupt, err)
	}
	return state.PolicyName, nil
}

// enableCDI returns the value of enable_cdi in the text of containerd's configuration.
// The name is in one section only, so the sections need not be read.
func enableCDI(s string) (string, error) {
	for line := range strings.Lines(s) {
		key, value, _ := strings.Cut(line, "=")
		if strings.TrimSpace(key) == "enable_cdi" {
			value, _, _ = strings.Cut(value, "#")
			return strings.TrimSpace(value), nil
		}
	}
	return "", nil
}
