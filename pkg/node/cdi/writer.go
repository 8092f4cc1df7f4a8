// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"tags.cncf.io/container-device-interface/pkg/parser"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/gpu-dra/gpu-dra-driver/pkg/disk/file"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// Edits provides the edits of the driver that every container with a GPU needs.
type Edits interface {
	// Edits returns the current edits, which the caller must not change. The error
	// wraps [gpu.ErrNotReady] while no driver is loaded.
	Edits(ctx context.Context) (*specs.ContainerEdits, error)
}

// Options of a [Writer].
type Options struct {
	// Dir is a directory that the container runtime reads specs from, such as
	// /var/run/cdi.
	Dir string
	// DriverName is the vendor of the specs and the start of their file names.
	DriverName string
	// DevRoot is the directory on the host that holds dev; "/" if empty.
	DevRoot string
	// LocalDevRoot is the path of DevRoot for this process. If it is empty, Write
	// does not check that device nodes exist.
	LocalDevRoot string
	Edits        Edits
}

// Writer keeps one spec file per claim:
//
//	<driver name>-claim-<claim UID>.json
//
// Calls for different claims may run at the same time, in this and in other
// processes; calls for one claim may not.
type Writer struct {
	Options
}

// NewWriter returns a writer and creates its directory if it is missing.
func NewWriter(o Options) (*Writer, error) {
	if o.DevRoot == "" {
		o.DevRoot = "/"
	}
	if err := os.MkdirAll(o.Dir, dirMode); err != nil {
		return nil, fmt.Errorf("create CDI directory: %w", err)
	}
	return &Writer{o}, nil
}

const (
	dirMode    = 0o755
	specSuffix = ".json"
	tmpSuffix  = ".tmp" // runtimes read .json and .yaml only
)

func (w *Writer) prefix() string { return w.DriverName + "-" + class + "-" }

func (w *Writer) path(claim types.UID) (string, error) {
	if !file.IsName(string(claim)) {
		return "", fmt.Errorf("claim UID %q: %w: want %s", claim, gpu.ErrInvalid, file.NameForm)
	}
	return filepath.Join(w.Dir, w.prefix()+string(claim)+specSuffix), nil
}

// Write writes the claim's spec file and returns the qualified IDs of its devices. The
// IDs ("<driver name>/claim=<injection ID>") are in the order of the injections. It
// leaves a file with the same content alone. The error wraps [gpu.ErrNotReady] if a
// device node is missing: containers of the claim could not be created.
//
// The file need not survive a crash of the machine, so Write does not sync it: the
// directory is usually in memory, and the agent writes the specs of prepared claims
// again when it starts.
func (w *Writer) Write(ctx context.Context, claim types.UID, owner types.NamespacedName, injections []gpu.Injection) ([]string, error) {
	path, err := w.path(claim)
	if err != nil {
		return nil, err
	}
	driver, err := w.Edits.Edits(ctx)
	if err != nil {
		return nil, err
	}
	spec, err := Render(w.DriverName, w.DevRoot, owner, driver, injections)
	if err != nil {
		return nil, err
	}
	if err := w.checkNodes(injections); err != nil {
		return nil, err
	}
	if err := save(path, spec); err != nil {
		return nil, err
	}
	ids := make([]string, 0, len(injections))
	for _, in := range injections {
		ids = append(ids, parser.QualifiedName(w.DriverName, class, in.ID))
	}
	return ids, nil
}

// Close writes the claim's spec file with the device nodes of the injections, of which at least one does not exist, and
// without the driver's edits. So no container can be created with it. It removes a file that it cannot replace.
func (w *Writer) Close(ctx context.Context, claim types.UID, owner types.NamespacedName, injections []gpu.Injection) error {
	path, err := w.path(claim)
	if err != nil {
		return err
	}
	spec, err := Render(w.DriverName, w.DevRoot, owner, nil, injections)
	if err == nil {
		err = save(path, spec)
	}
	if err != nil {
		return errors.Join(err, w.Remove(ctx, claim))
	}
	return nil
}

// save writes a spec file unless it has the same content.
func save(path string, spec *specs.Spec) error {
	data, err := json.MarshalIndent(spec, "", "  ")
	if err != nil {
		return fmt.Errorf("encode CDI spec: %w", err)
	}
	if old, err := file.Read(path); err == nil && bytes.Equal(old, data) {
		return nil
	}
	if err := replace(path, data); err != nil {
		return fmt.Errorf("write CDI spec: %w", err)
	}
	return nil
}

// checkNodes returns an error if a device node does not exist. Their paths are clean.
func (w *Writer) checkNodes(injections []gpu.Injection) error {
	if w.LocalDevRoot == "" {
		return nil
	}
	for _, in := range injections {
		for _, node := range in.DeviceNodes {
			path := filepath.Join(w.LocalDevRoot, node)
			info, err := os.Stat(path)
			switch {
			case errors.Is(err, fs.ErrNotExist):
				return fmt.Errorf("device node %s: %w: it does not exist: run nvidia-smi as root on the node, which makes those of all GPUs", path, gpu.ErrNotReady)
			case err != nil:
				return fmt.Errorf("device node: %w: %w", gpu.ErrNotReady, err)
			case info.IsDir():
				return fmt.Errorf("device node %s: %w: it is a folder: remove it, and run nvidia-smi as root on the node, which makes the node", path, gpu.ErrNotReady)
			}
		}
	}
	return nil
}

// replace writes a temporary file and renames it, so that a runtime never reads half a
// spec.
func replace(path string, data []byte) error {
	tmp := path + tmpSuffix
	err := file.Write(tmp, data, 0o644)
	if errors.Is(err, fs.ErrNotExist) {
		// The directory may have been removed: it is below /var/run.
		if err = os.MkdirAll(filepath.Dir(path), dirMode); err == nil {
			err = file.Write(tmp, data, 0o644)
		}
	}
	if err == nil {
		err = os.Rename(tmp, path)
	}
	if err != nil {
		return errors.Join(err, remove(tmp))
	}
	return nil
}

// remove removes a file. It succeeds if there is none.
func remove(path string) error {
	if err := file.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Remove deletes the claim's spec file and its temporary file, which a crash may have
// left. It succeeds if neither exists.
func (w *Writer) Remove(_ context.Context, claim types.UID) error {
	path, err := w.path(claim)
	if err != nil {
		return err
	}
	if err := errors.Join(remove(path), remove(path+tmpSuffix)); err != nil {
		return fmt.Errorf("remove CDI spec: %w", err)
	}
	return nil
}

// List returns the claims that have a spec file, or the temporary file of one, in
// ascending order. It returns none if the directory is missing.
func (w *Writer) List(_ context.Context) ([]types.UID, error) {
	entries, err := os.ReadDir(w.Dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list CDI specs: %w", err)
	}
	var claims []types.UID
	for _, e := range entries {
		name, ours := strings.CutPrefix(strings.TrimSuffix(e.Name(), tmpSuffix), w.prefix())
		uid, isSpec := strings.CutSuffix(name, specSuffix)
		if ours && isSpec && file.IsName(uid) {
			claims = append(claims, types.UID(uid))
		}
	}
	slices.Sort(claims)
	return slices.Compact(claims), nil
}

// Read returns the owner of a claim's spec file, and the injections' IDs and
// annotations. The error wraps [gpu.ErrNotFound] or [gpu.ErrCorrupt].
func (w *Writer) Read(_ context.Context, claim types.UID) (types.NamespacedName, []gpu.Injection, error) {
	path, err := w.path(claim)
	if err != nil {
		return types.NamespacedName{}, nil, err
	}
	data, err := file.Read(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return types.NamespacedName{}, nil, fmt.Errorf("read CDI spec: %w: %w", gpu.ErrNotFound, err)
	case err != nil:
		return types.NamespacedName{}, nil, fmt.Errorf("read CDI spec: %w", err)
	}
	var spec specs.Spec
	if err := json.Unmarshal(data, &spec); err != nil {
		return types.NamespacedName{}, nil, fmt.Errorf("read CDI spec %s: %w: %w", path, gpu.ErrCorrupt, err)
	}
	owner := types.NamespacedName{
		Namespace: spec.Annotations[w.DriverName+annotationNamespace],
		Name:      spec.Annotations[w.DriverName+annotationName],
	}
	var injections []gpu.Injection
	for _, device := range spec.Devices {
		injection := gpu.Injection{ID: device.Name}
		for key, value := range device.Annotations {
			if ours, ok := strings.CutPrefix(key, w.DriverName+"/"); ok {
				if injection.Annotations == nil {
					injection.Annotations = make(map[string]string, len(device.Annotations))
				}
				injection.Annotations[ours] = value
			}
		}
		injections = append(injections, injection)
	}
	return owner, injections, nil
}
