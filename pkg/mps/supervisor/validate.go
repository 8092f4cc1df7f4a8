// SPDX-License-Identifier: Apache-2.0

package supervisor

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

const mebibyte = 1 << 20

// The longest UUID of a device, and the longest name of a namespace.
const maxUUID, maxNamespace = 132, 64

// The forms do not count: each count is a copy of the expression, which is compiled when
// the program starts.
var (
	uuidForm      = regexp.MustCompile(`^(GPU|MIG)-[0-9A-Za-z][0-9A-Za-z/-]*$`)
	namespaceForm = regexp.MustCompile(`^[a-z0-9_]+$`)
)

// isUUID reports whether a text is the UUID of a device. UUIDs become part of an
// environment variable.
func isUUID(uuid string) bool { return len(uuid) <= maxUUID && uuidForm.MatchString(uuid) }

// isNamespace reports whether MPS accepts a name of a namespace.
func isNamespace(name string) bool {
	return len(name) <= maxNamespace && namespaceForm.MatchString(name)
}

// validate returns an error if the settings of a daemon are invalid.
func validate(d gpu.MPSDaemon) error {
	if err := validateName(d.Name); err != nil {
		return err
	}
	refuse := func(format string, args ...any) error {
		return fmt.Errorf("MPS daemon %s: %w: %s", d.Name, gpu.ErrInvalid, fmt.Sprintf(format, args...))
	}
	if len(d.Devices) == 0 {
		return refuse("it has no devices")
	}
	for _, uuid := range d.Devices {
		if !isUUID(uuid) {
			return refuse("device %q is not the UUID of a GPU or MIG device", uuid)
		}
	}
	if d.ThreadPercentage < 0 || d.ThreadPercentage > 100 {
		return refuse("thread percentage %d is not within 0 and 100", d.ThreadPercentage)
	}
	if n := len(d.MemoryLimits); n != 0 && n != len(d.Devices) {
		return refuse("%d memory limits for %d devices", n, len(d.Devices))
	}
	for _, limit := range d.MemoryLimits {
		if limit%mebibyte != 0 {
			return refuse("memory limit %d is not whole mebibytes", limit)
		}
	}
	return validateNamespaces(d, refuse)
}

// validateNamespaces returns an error if the namespaces of a daemon are invalid.
func validateNamespaces(d gpu.MPSDaemon, refuse func(format string, args ...any) error) error {
	if !d.HasNamespaces() {
		return nil
	}
	if d.ThreadPercentage != 0 || len(d.MemoryLimits) > 0 {
		return refuse("it has namespaces and ceilings")
	}
	for _, uuid := range d.Devices {
		if strings.HasPrefix(uuid, "MIG-") {
			return refuse("MPS has no namespaces on MIG device %s", uuid)
		}
	}
	for i, n := range d.Namespaces {
		switch {
		case !isNamespace(n.Name) || n.Name == defaultNamespace:
			return refuse("namespace %q: want lowercase letters, digits and underscores, and not %s", n.Name, defaultNamespace)
		case i > 0 && d.Namespaces[i-1].Name >= n.Name:
			return refuse("namespace %s is not after %s", n.Name, d.Namespaces[i-1].Name)
		case n.ThreadPercentage < 1 || n.ThreadPercentage > 100:
			return refuse("namespace %s: thread percentage %d is not within 1 and 100", n.Name, n.ThreadPercentage)
		case n.MemoryLimit%mebibyte != 0:
			return refuse("namespace %s: memory limit %d is not whole mebibytes", n.Name, n.MemoryLimit)
		}
	}
	return nil
}

// validateName returns an error unless the name is the published name of a GPU or MIG
// device. The name becomes part of a path.
func validateName(name string) error {
	parsed, err := kind.Parse(name)
	if err != nil {
		return fmt.Errorf("MPS daemon: %w", err)
	}
	if parsed.Kind.Takes() != kind.TakesMemory {
		return fmt.Errorf("MPS daemon %s: %w: only GPUs and MIG devices have one", name, gpu.ErrInvalid)
	}
	return nil
}
