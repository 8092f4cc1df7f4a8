// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	cdiapi "tags.cncf.io/container-device-interface/pkg/cdi"
	"tags.cncf.io/container-device-interface/pkg/parser"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// class is the second part of a spec's kind, "<driver name>/claim". Upstream's
// metadata specs of the same driver have the class "metadata".
const class = "claim"

// The annotations of a spec name the claim it was written for.
const (
	annotationNamespace = "/claim-namespace"
	annotationName      = "/claim-name"
)

// Render returns the spec of a claim: one CDI device per injection, in their order, and
// the driver's edits for every container that uses any of the devices. devRoot is the
// directory on the host that holds dev. The version is the lowest that supports all
// fields in use. The error wraps [gpu.ErrInvalid] if a runtime would refuse the spec or
// an injection could reach outside its folders.
//
// The driver's edits belong to the spec and not to a device, because runtimes append the
// hooks of all devices of a container, also of a device that is named twice. They apply
// the edits of a spec once.
func Render(driverName, devRoot string, owner types.NamespacedName, driver *specs.ContainerEdits, injections []gpu.Injection) (*specs.Spec, error) {
	spec := &specs.Spec{
		Kind: driverName + "/" + class,
		Annotations: map[string]string{
			driverName + annotationNamespace: owner.Namespace,
			driverName + annotationName:      owner.Name,
		},
	}
	if driver != nil {
		spec.ContainerEdits = *driver
	}
	for _, in := range injections {
		edits, err := renderDevice(devRoot, in)
		if err != nil {
			return nil, fmt.Errorf("CDI device %q: %w: %w", in.ID, gpu.ErrInvalid, err)
		}
		device := specs.Device{Name: in.ID, ContainerEdits: edits}
		for key, value := range in.Annotations {
			if device.Annotations == nil {
				device.Annotations = make(map[string]string, len(in.Annotations))
			}
			device.Annotations[driverName+"/"+key] = value
		}
		spec.Devices = append(spec.Devices, device)
	}
	version, err := specs.MinimumRequiredVersion(spec)
	if err != nil {
		return nil, fmt.Errorf("CDI spec: %w", err)
	}
	spec.Version = version
	if err := validate(spec); err != nil {
		return nil, fmt.Errorf("CDI spec: %w: %w", gpu.ErrInvalid, err)
	}
	return spec, nil
}

func renderDevice(devRoot string, injection gpu.Injection) (specs.ContainerEdits, error) {
	edits := specs.ContainerEdits{Env: injection.Env}
	for _, node := range injection.DeviceNodes {
		if filepath.Clean(node) != node || !strings.HasPrefix(node, "/dev/") {
			return edits, fmt.Errorf("device node %q: want a clean path under /dev", node)
		}
		rendered := &specs.DeviceNode{Path: node}
		if host := filepath.Join(devRoot, node); host != node {
			rendered.HostPath = host
		}
		edits.DeviceNodes = append(edits.DeviceNodes, rendered)
	}
	for _, m := range injection.Mounts {
		for _, path := range []string{m.HostPath, m.ContainerPath} {
			if !filepath.IsAbs(path) || filepath.Clean(path) != path {
				return edits, fmt.Errorf("mount %q: want clean, absolute paths", path)
			}
		}
		options := []string{"ro", "nosuid", "nodev", "rbind", "rprivate"}
		if !m.ReadOnly {
			// Several pods may write here: none may run programs of another.
			options = []string{"rw", "nosuid", "nodev", "noexec", "rbind", "rprivate"}
		}
		edits.Mounts = append(edits.Mounts, &specs.Mount{HostPath: m.HostPath, ContainerPath: m.ContainerPath, Options: options})
	}
	for _, h := range injection.Hooks {
		if !filepath.IsAbs(h.Path) || filepath.Clean(h.Path) != h.Path {
			return edits, fmt.Errorf("hook %q: want a clean, absolute path", h.Path)
		}
		seconds := int(h.Timeout.Seconds())
		edits.Hooks = append(edits.Hooks, &specs.Hook{HookName: cdiapi.CreateRuntimeHook, Path: h.Path, Args: h.Args, Timeout: &seconds})
	}
	for _, env := range injection.Env {
		if strings.ContainsAny(env, "\x00\n") {
			return edits, fmt.Errorf("environment variable %q holds a line break or a NUL", env)
		}
	}
	return edits, nil
}

// validate runs the checks with which the CDI library reads a spec file. It does
// not convert the spec to YAML as the library's reader does.
func validate(spec *specs.Spec) error {
	vendor, class := parser.ParseQualifier(spec.Kind)
	errs := []error{
		specs.ValidateVersion(spec),
		parser.ValidateVendorName(vendor),
		parser.ValidateClassName(class),
		(&cdiapi.ContainerEdits{ContainerEdits: &spec.ContainerEdits}).Validate(),
	}
	if len(spec.Devices) == 0 {
		errs = append(errs, errors.New("no devices"))
	}
	seen := make(map[string]bool)
	for i := range spec.Devices {
		device := &spec.Devices[i]
		if seen[device.Name] {
			errs = append(errs, fmt.Errorf("device %q appears twice", device.Name))
		}
		seen[device.Name] = true
		edits := &device.ContainerEdits
		if len(edits.DeviceNodes)+len(edits.Mounts)+len(edits.Env) == 0 {
			errs = append(errs, fmt.Errorf("device %q changes nothing in a container", device.Name))
		}
		errs = append(errs,
			parser.ValidateDeviceName(device.Name),
			(&cdiapi.ContainerEdits{ContainerEdits: edits}).Validate())
	}
	return errors.Join(errs...)
}
