package cdi

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/nvidia-container-toolkit/pkg/nvcdi"
	"github.com/NVIDIA/nvidia-container-toolkit/pkg/nvcdi/transform"
	"github.com/NVIDIA/nvidia-container-toolkit/pkg/nvcdi/transform/root"
	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// Roots say where the driver is installed. Empty means "/", and an empty Host
// field that the host sees the same path as this process.
type Roots struct {
	// Driver is the root under which libraries and binaries are found, Dev the
	// directory that holds dev, both as this process sees them.
	Driver, Dev string
	// HostDriver and HostDev are the same as the container runtime sees them.
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

// controlNodes are the device nodes that every CUDA program opens beside that
// of its GPU. Some come into being only with the first use of the driver.
var controlNodes = []string{"nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset"}

// DriverEdits implements [Edits] with what nvcdi finds in a driver
// installation. It looks for it once per driver, which takes many times as long
// as a claim may: again only when the driver's version or its control device
// nodes are others.
type DriverEdits struct {
	lib      nvml.Interface
	roots    Roots
	hookPath string

	mu sync.Mutex
	// edits were generated when the driver was as fingerprint says.
	edits       *specs.ContainerEdits
	fingerprint string
}

// NewDriverEdits takes the library to ask for the driver's version, the places
// of the driver, and the path of nvidia-cdi-hook on the host.
func NewDriverEdits(lib nvml.Interface, roots Roots, hookPath string) *DriverEdits {
	return &DriverEdits{lib: lib, roots: roots.withDefaults(), hookPath: hookPath}
}

// Edits implements [Edits].
func (d *DriverEdits) Edits(ctx context.Context) (*specs.ContainerEdits, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	fingerprint, err := d.look()
	if err != nil {
		return nil, err
	}
	if d.edits == nil || d.fingerprint != fingerprint {
		edits, err := d.generate(ctx)
		if err != nil {
			return nil, fmt.Errorf("find the driver's files under %s: %w: %w", d.roots.Driver, gpu.ErrNotReady, err)
		}
		d.edits, d.fingerprint = edits, fingerprint
		klog.FromContext(ctx).Info("Generated the driver's CDI edits", "driver", fingerprint,
			"mounts", len(edits.Mounts), "deviceNodes", len(edits.DeviceNodes), "hooks", len(edits.Hooks))
	}
	return d.edits, nil
}

// look tells one state of the driver from another, within microseconds.
func (d *DriverEdits) look() (string, error) {
	if ret := d.lib.Init(); ret != nvml.SUCCESS {
		return "", fmt.Errorf("initialize NVML: %w: %w", gpu.ErrNotReady, ret)
	}
	version, ret := d.lib.SystemGetDriverVersion()
	// Init and Shutdown are counted; the result of giving back our own count
	// tells nothing.
	_ = d.lib.Shutdown()
	if ret != nvml.SUCCESS {
		return "", fmt.Errorf("read the driver version: %w: %w", gpu.ErrNotReady, ret)
	}
	parts := []string{version}
	for _, node := range controlNodes {
		var stat unix.Stat_t
		if err := unix.Stat(filepath.Join(d.roots.Dev, "dev", node), &stat); err == nil {
			parts = append(parts, fmt.Sprintf("%s=%d:%d", node, unix.Major(stat.Rdev), unix.Minor(stat.Rdev)))
		}
	}
	return strings.Join(parts, " "), nil
}

func (d *DriverEdits) generate(ctx context.Context) (*specs.ContainerEdits, error) {
	lib, err := nvcdi.New(
		nvcdi.WithLogger(logger{klog.FromContext(ctx)}),
		nvcdi.WithMode(nvcdi.ModeNvml),
		nvcdi.WithNvmlLib(d.lib),
		nvcdi.WithDriverRoot(d.roots.Driver),
		nvcdi.WithDevRoot(d.roots.Dev),
		nvcdi.WithNVIDIACDIHookPath(d.hookPath),
		// It would load a second vendor library for what NVML tells too.
		nvcdi.WithFeatureFlags(nvcdi.FeatureDisableNvsandboxUtils),
	)
	if err != nil {
		return nil, err
	}
	common, err := lib.GetCommonEdits()
	if err != nil {
		return nil, err
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
			return nil, err
		}
	}
	edits := &spec.ContainerEdits
	edits.Mounts = slices.DeleteFunc(edits.Mounts, func(m *specs.Mount) bool { return m.ContainerPath == defaultMPSPipe })
	return edits, nil
}

// defaultMPSPipe is where CUDA looks for an MPS daemon that the environment does
// not name. nvcdi looks for one of the host's there (v1.20.1 happens to pass over
// folders) and would mount it into every container: each process of a claim
// would become its client, besides the limits of the claim's own daemon, and
// even where the claim has a GPU for itself.
const defaultMPSPipe = "/tmp/nvidia-mps"

// logger makes nvcdi's log lines contextual ones.
type logger struct{ klog.Logger }

func (l logger) Tracef(format string, args ...any)   { l.V(6).Info(fmt.Sprintf(format, args...)) }
func (l logger) Debugf(format string, args ...any)   { l.V(5).Info(fmt.Sprintf(format, args...)) }
func (l logger) Infof(format string, args ...any)    { l.V(4).Info(fmt.Sprintf(format, args...)) }
func (l logger) Warningf(format string, args ...any) { l.V(2).Info(fmt.Sprintf(format, args...)) }
func (l logger) Errorf(format string, args ...any)   { l.Info(fmt.Sprintf(format, args...)) }
