// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/nvidia-container-toolkit/pkg/nvcdi"
	"github.com/NVIDIA/nvidia-container-toolkit/pkg/nvcdi/transform"
	"github.com/NVIDIA/nvidia-container-toolkit/pkg/nvcdi/transform/root"
	securejoin "github.com/cyphar/filepath-securejoin"
	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"
	cdiapi "tags.cncf.io/container-device-interface/pkg/cdi"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// Roots are the directories in which the driver is installed. An empty one is "/"; an
// empty Host field is the same path as for this process.
type Roots struct {
	// Driver is the root of libraries and binaries, and Dev the parent directory of
	// dev. Both are paths for this process.
	Driver, Dev string
	// HostDriver and HostDev are the same directories as paths for the container
	// runtime.
	HostDriver, HostDev string
}

func (r Roots) withDefaults() Roots {
	for _, field := range []*string{&r.Driver, &r.Dev} {
		if *field == "" {
			*field = "/"
		}
		*field = filepath.Clean(*field)
	}
	if r.HostDriver == "" {
		r.HostDriver = r.Driver
	}
	if r.HostDev == "" {
		r.HostDev = r.Dev
	}
	return r
}

// controlNode is a device node that all GPUs share.
type controlNode struct {
	name string
	// remedy is how an administrator creates the node; empty if CUDA programs run
	// without it.
	remedy string
}

// controlNodes are the device nodes that CUDA programs open in addition to the one of
// their GPU. Most distributions create nvidia-uvm when the first CUDA program runs on
// the node itself; a container cannot create it.
var controlNodes = []controlNode{
	{name: "nvidiactl", remedy: "load the kernel module nvidia and run nvidia-smi as root on the node, which makes it"},
	{name: "nvidia-uvm", remedy: "run nvidia-modprobe -u -c 0 as root on the node, which loads the kernel module nvidia-uvm and makes it, and have that done at boot"},
	{name: "nvidia-uvm-tools"},
	{name: "nvidia-modeset"},
}

// Driver is the loaded driver.
type Driver interface {
	// DriverVersion returns the version, such as "570.86.15". A GPU that hangs must
	// not keep it from returning. The error wraps [gpu.ErrNotReady] while no driver
	// is loaded.
	DriverVersion(ctx context.Context) (string, error)
}

// DriverEdits implements [Edits] with the files that nvcdi finds in a driver
// installation. Finding them takes much longer than preparing a claim may, so it
// happens once per driver, and again only if the driver's version or control device
// nodes change or its libraries are missing. It calls no GPU.
type DriverEdits struct {
	driver   Driver
	roots    Roots
	hookPath string
	directs  []gpu.Direct

	mu sync.Mutex
	// last is the latest generation; nil before the first.
	last *generation
}

// generation is one run of nvcdi.
type generation struct {
	// fingerprint of the driver that the edits are for.
	fingerprint string
	done        chan struct{} // closed once the fields below are set
	edits       *specs.ContainerEdits
	err         error
	// library is the path of one of the driver's libraries for this process.
	library string
}

// NewDriverEdits returns the edits of the driver that is installed in the roots.
// hookPath is the path of nvidia-cdi-hook on the host. The edits include the nodes and
// mounts of the interfaces of GPUDirect, if they exist.
func NewDriverEdits(driver Driver, roots Roots, hookPath string, directs ...gpu.Direct) *DriverEdits {
	return &DriverEdits{driver: driver, roots: roots.withDefaults(), hookPath: hookPath, directs: directs}
}

// Edits implements [Edits]. The error wraps [gpu.ErrNotReady] also if a device node that
// every CUDA program needs is missing, and [gpu.ErrTimeout] if ctx ends first.
func (d *DriverEdits) Edits(ctx context.Context) (*specs.ContainerEdits, error) {
	version, err := d.driver.DriverVersion(ctx)
	if err != nil {
		return nil, err
	}
	nodes, err := d.stateOfNodes()
	if err != nil {
		return nil, err
	}
	g := d.generation(ctx, version, version+nodes)
	select {
	case <-g.done:
		return g.edits, g.err
	case <-ctx.Done():
		return nil, fmt.Errorf("find the driver's files under %s: %w: %w", d.roots.Driver, gpu.ErrTimeout, context.Cause(ctx))
	}
}

// stateOfNodes returns a text that differs if the control device nodes differ. It takes
// microseconds.
func (d *DriverEdits) stateOfNodes() (string, error) {
	var b strings.Builder
	for _, node := range controlNodes {
		path := filepath.Join(d.roots.Dev, "dev", node.name)
		var stat unix.Stat_t
		switch err := unix.Stat(path, &stat); {
		// Container runtimes create a folder in the place of a missing file that they
		// should mount.
		case err == nil && stat.Mode&unix.S_IFMT != unix.S_IFDIR:
			fmt.Fprintf(&b, " %s=%d:%d", node.name, unix.Major(stat.Rdev), unix.Minor(stat.Rdev))
		case node.remedy == "":
		case err == nil:
			return "", fmt.Errorf("device node %s: %w: it is a folder, and no CUDA program runs without the node: remove the folder and %s", path, gpu.ErrNotReady, node.remedy)
		case errors.Is(err, fs.ErrNotExist):
			return "", fmt.Errorf("device node %s: %w: it does not exist, and no CUDA program runs without it: %s", path, gpu.ErrNotReady, node.remedy)
		default:
			return "", fmt.Errorf("device node %s: %w: %w", path, gpu.ErrNotReady, err)
		}
	}
	for _, direct := range d.directs {
		for _, path := range d.directNodes(direct) {
			var stat unix.Stat_t
			if err := unix.Stat(path, &stat); err == nil {
				fmt.Fprintf(&b, " %s=%d:%d", filepath.Base(path), unix.Major(stat.Rdev), unix.Minor(stat.Rdev))
			}
		}
	}
	return b.String(), nil
}

// directNodes returns the paths of the interface's device nodes, in order.
func (d *DriverEdits) directNodes(direct gpu.Direct) []string {
	var paths []string
	for _, pattern := range direct.Nodes() {
		// The patterns are valid, and an unreadable folder has no node to add.
		found, _ := filepath.Glob(filepath.Join(d.roots.Dev, "dev", pattern))
		paths = append(paths, found...)
	}
	return paths
}

// generation returns the generation for the driver with the fingerprint, and starts it
// if there is none. It continues when ctx ends, for the next caller.
func (d *DriverEdits) generation(ctx context.Context, version, fingerprint string) *generation {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.last != nil && d.last.fingerprint == fingerprint && d.last.serves() {
		return d.last
	}
	g := &generation{fingerprint: fingerprint, done: make(chan struct{})}
	d.last = g
	logger := klog.FromContext(ctx)
	go func() {
		defer close(g.done)
		if err := d.generate(logger, version, g); err != nil {
			g.err = fmt.Errorf("find the driver's files under %s: %w: %w", d.roots.Driver, gpu.ErrNotReady, err)
			return
		}
		logger.Info("Generated the driver's CDI edits", "driver", fingerprint,
			"mounts", len(g.edits.Mounts), "deviceNodes", len(g.edits.DeviceNodes), "hooks", len(g.edits.Hooks))
	}()
	return g
}

// serves reports whether the generation is under way, or has succeeded and the driver's
// library still exists.
func (g *generation) serves() bool {
	select {
	case <-g.done:
	default:
		return true
	}
	if g.err != nil {
		return false
	}
	_, err := os.Stat(g.library)
	return g.library == "" || err == nil
}

func (d *DriverEdits) generate(logger klog.Logger, version string, g *generation) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("nvcdi wants more of NVML than the driver's version: %v", r)
		}
	}()
	log := &nvcdiLog{logger: logger}
	lib, err := d.newLibrary(log, version, nvcdi.ModeNvml)
	if err != nil {
		return err
	}
	common, err := lib.GetCommonEdits()
	if err != nil {
		return err
	}
	for _, m := range common.Mounts {
		if strings.HasPrefix(filepath.Base(m.HostPath), "libcuda.so.") {
			g.library = m.HostPath
		}
	}
	usePrograms(common.Mounts, g.library)
	for _, direct := range d.directs {
		if err := d.addDirect(log, version, direct, common); err != nil {
			return fmt.Errorf("GPUDirect interface %s: %w", direct, err)
		}
	}
	if log.warnings > 0 {
		logger.Info("The driver has not all files that it can have, details at verbosity 4", "missing", log.warnings, "driverRoot", d.roots.Driver)
	}
	spec := &specs.Spec{ContainerEdits: *common.ContainerEdits}
	transforms := []transform.Transformer{transform.NewSimplifier()}
	if d.roots.HostDriver != d.roots.Driver || d.roots.HostDev != d.roots.Dev {
		transforms = append(transforms, root.NewDriverTransformer(
			root.WithDriverRoot(d.roots.Driver), root.WithTargetDriverRoot(d.roots.HostDriver),
			root.WithDevRoot(d.roots.Dev), root.WithTargetDevRoot(d.roots.HostDev),
		))
	}
	for _, t := range transforms {
		if err := t.Transform(spec); err != nil {
			return err
		}
	}
	g.edits = &spec.ContainerEdits
	g.edits.Mounts = slices.DeleteFunc(g.edits.Mounts, func(m *specs.Mount) bool { return m.ContainerPath == defaultMPSPipe })
	return nil
}

// usePrograms mounts the programs of the folder bin next to the library's folder, if there are such.
// An installation in a folder of its own can have scripts in the system's folders that start its
// programs, and that a container cannot run.
func usePrograms(mounts []*specs.Mount, library string) {
	if library == "" {
		return
	}
	folder := filepath.Join(filepath.Dir(filepath.Dir(library)), "bin")
	for _, m := range mounts {
		program := filepath.Join(folder, filepath.Base(m.HostPath))
		if filepath.Base(filepath.Dir(m.ContainerPath)) != "bin" {
			continue
		}
		if info, err := os.Stat(program); err == nil && info.Mode().IsRegular() {
			m.HostPath = program
		}
	}
}

func (d *DriverEdits) newLibrary(log *nvcdiLog, version string, mode nvcdi.Mode) (nvcdi.Interface, error) {
	return nvcdi.New(
		nvcdi.WithLogger(log),
		nvcdi.WithMode(mode),
		nvcdi.WithNvmlLib(versionOnly{version: version}),
		nvcdi.WithDriverRoot(d.roots.Driver),
		nvcdi.WithLibrarySearchPaths(d.linkedFolder()),
		nvcdi.WithDevRoot(d.roots.Dev),
		nvcdi.WithNVIDIACDIHookPath(d.hookPath),
		// It would load a second vendor library for facts that NVML has too.
		nvcdi.WithFeatureFlags(nvcdi.FeatureDisableNvsandboxUtils),
	)
}

// linkedFolder returns the folder of the driver's libraries if an absolute link leads to it. nvcdi
// follows such links from "/", and not below the driver root. It searches its own folders for nil.
func (d *DriverEdits) linkedFolder() []string {
	const library = "libcuda.so.1"
	for _, dir := range gpu.LibraryDirs() {
		path, err := securejoin.SecureJoin(d.roots.Driver, filepath.Join(dir, library))
		if err != nil {
			continue
		}
		_, direct := os.Stat(filepath.Join(d.roots.Driver, dir, library))
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			if direct == nil {
				return nil
			}
			return []string{filepath.Dir(path)}
		}
	}
	return nil
}

// addDirect adds the nodes and mounts of an interface of GPUDirect to the edits. A node
// without the kernel module has none: programs then use a slower path, as without the
// setting.
func (d *DriverEdits) addDirect(log *nvcdiLog, version string, direct gpu.Direct, edits *cdiapi.ContainerEdits) error {
	lib, err := d.newLibrary(log, version, nvcdi.Mode(direct))
	if err != nil {
		return err
	}
	devices, err := lib.GetDeviceSpecsByID("all")
	if err != nil {
		return err
	}
	nodes := 0
	for i := range devices {
		nodes += len(devices[i].ContainerEdits.DeviceNodes)
		edits.Append(&cdiapi.ContainerEdits{ContainerEdits: &devices[i].ContainerEdits})
	}
	if nodes == 0 {
		log.logger.Info("No device nodes of a GPUDirect interface, containers go without it", "interface", direct, "want", direct.Nodes(), "devRoot", d.roots.Dev)
	}
	return nil
}

// versionOnly is an NVML that returns the driver's version and panics in every other
// method. nvcdi needs no more for the common edits, and with the whole NVML it might
// call a GPU that hangs.
type versionOnly struct {
	nvml.Interface
	version string
}

func (versionOnly) Init() nvml.Return { return nvml.SUCCESS }

func (versionOnly) Shutdown() nvml.Return { return nvml.SUCCESS }

func (v versionOnly) SystemGetDriverVersion() (string, nvml.Return) { return v.version, nvml.SUCCESS }

// defaultMPSPipe is the folder in which CUDA finds an MPS daemon that the environment
// does not name. nvcdi mounts a daemon of the host from there into every container
// (v1.20.1 skips folders by accident). Each process of a claim would become its client
// and escape the limits of the claim's own daemon, even if the claim has a whole GPU.
const defaultMPSPipe = "/tmp/nvidia-mps"

// nvcdiLog writes nvcdi's log messages to a contextual logger. It counts the warnings: most name
// a file that a server does not have, and there are a hundred for each generation.
type nvcdiLog struct {
	logger   klog.Logger
	warnings int
}

func (l *nvcdiLog) Tracef(format string, args ...any) {
	l.logger.V(6).Info(fmt.Sprintf(format, args...))
}
func (l *nvcdiLog) Debugf(format string, args ...any) {
	l.logger.V(5).Info(fmt.Sprintf(format, args...))
}
func (l *nvcdiLog) Infof(format string, args ...any) {
	l.logger.V(5).Info(fmt.Sprintf(format, args...))
}
func (l *nvcdiLog) Errorf(format string, args ...any) { l.logger.Info(fmt.Sprintf(format, args...)) }

func (l *nvcdiLog) Warningf(format string, args ...any) {
	l.warnings++
	l.logger.V(4).Info(fmt.Sprintf(format, args...))
}
