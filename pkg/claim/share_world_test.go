// SPDX-License-Identifier: Apache-2.0

package claim_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/ports"
	"github.com/gpu-dra/gpu-dra-driver/pkg/disk/store"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
	"github.com/gpu-dra/gpu-dra-driver/pkg/node/containerlimits"
)

// newShareWorld returns a world of n GPUs that can be shared in every way.
func newShareWorld(t fataler, dir string, n int) *world {
	w := newWorld(t, dir, n)
	for a, g := range w.gpus {
		g.ComputeCapability = gpu.Version{Major: 9}
		w.gpus[a] = g
	}
	w.canShare(nil)
	w.computeModes = &computeModes{gpuSetting[gpu.ComputeMode]{w: w, standard: gpu.ComputeModeDefault, now: map[gpu.PCIAddress]gpu.ComputeMode{}}}
	return w
}

// canShare adds a supervisor and time slices to the world. there returns the UUIDs of
// MIG devices.
func (w *world) canShare(there func() []string) {
	w.supervisor = &supervisor{w: w, partitions: there, daemons: map[string]gpu.MPSDaemon{}}
	w.timeSlices = &timeSlices{gpuSetting[gpu.TimeSlice]{w: w, standard: gpu.TimeSliceDefault, now: map[gpu.PCIAddress]gpu.TimeSlice{}}}
}

// sharing sets the options of a process for sharing GPUs.
func (w *world) sharing(o *claim.Options, disk store.FS) {
	o.Shares = func() catalog.ShareOffer { return w.shares }
	if w.supervisor != nil {
		o.MPS = faultyMPS{w.supervisor, w.faults}
	}
	if w.timeSlices != nil {
		intervals, err := store.Open(filepath.Join(w.dir, "intervals"), disk)
		must(w.t, err)
		o.TimeSlicing = &ports.TimeSlicing{Slices: faultyTimeSlices{w.timeSlices, w.faults}, Intervals: intervals}
	}
	if w.computeModes != nil {
		changed, err := store.Open(filepath.Join(w.dir, "compute"), disk)
		must(w.t, err)
		o.ExclusiveCompute = &ports.ExclusiveCompute{Modes: faultyComputeModes{w.computeModes, w.faults}, Changed: changed, Off: !w.exclusive}
	}
	o.Limits = &ports.MemoryLimits{Folder: faultyLimits{w.limitFolder(), w.faults}, Hook: limitHook}
	if w.options != nil {
		w.options(o)
	}
	w.faults.functions(o)
}

func (w *world) limitFolder() containerlimits.Folder {
	return containerlimits.Folder(filepath.Join(w.dir, "limits"))
}

// faultyLimits is the folder of limits for a process that may die before and after each
// call.
type faultyLimits struct {
	containerlimits.Folder
	*faults
}

func (f faultyLimits) Open(device string) error {
	return f.around(once(), "MemoryLimitFolder.Open", func() error { return f.Folder.Open(device) })
}

func (f faultyLimits) Close(device string) error {
	return f.around(once(), "MemoryLimitFolder.Close", func() error { return f.Folder.Close(device) })
}

func (f faultyLimits) Devices() (ids []string, err error) {
	err = f.call(once(), "MemoryLimitFolder.Devices", func() error { ids, err = f.Folder.Devices(); return err })
	return ids, err
}

func limitHook(device string, address gpu.PCIAddress, bytes uint64, containers int) (gpu.Hook, error) {
	return gpu.Hook{Path: "/hook", Args: []string{"hook", device, address.String(), fmt.Sprint(bytes), fmt.Sprint(containers)}, Timeout: time.Second}, nil
}

// supervisor is a fake MPS supervisor that refuses the same requests as the real one.
type supervisor struct {
	w          *world
	partitions func() []string

	mu      sync.Mutex
	daemons map[string]gpu.MPSDaemon
	stray   string   // name of a daemon that serves the wrong devices
	err     error    // error of every call, if set
	all     bool     // serves all users
	log     []string // calls
}

var mpsDevice = regexp.MustCompile(`^(GPU|MIG)-[0-9A-Za-z][0-9A-Za-z/-]{0,127}$`)

func (s *supervisor) EnsureMPS(_ context.Context, d gpu.MPSDaemon) (gpu.MPSDirs, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.refuse(d); err != nil {
		return gpu.MPSDirs{}, err
	}
	verb := "start"
	if _, runs := s.daemons[d.Name]; runs {
		verb = "set"
	}
	d.Devices, d.MemoryLimits, d.Namespaces = slices.Clone(d.Devices), slices.Clone(d.MemoryLimits), slices.Clone(d.Namespaces)
	if old := s.daemons[d.Name]; verb == "start" || renderDaemon(old) != renderDaemon(d) {
		s.log = append(s.log, verb+" "+renderDaemon(d))
	}
	s.daemons[d.Name] = d
	if d.Name == s.stray {
		return gpu.MPSDirs{}, fmt.Errorf("%s: %w: its process is for other devices: stop it first", renderDaemon(d), gpu.ErrInUse)
	}
	dirs := gpu.MPSDirs{Pipe: "/run/sup/" + d.Name + "/pipe", Shm: "/run/sup/" + d.Name + "/shm"}
	if d.HasNamespaces() {
		dirs.Pipe += "/s"
	}
	return dirs, nil
}

// mpsNamespace matches the names of namespaces.
var mpsNamespace = regexp.MustCompile(`^[a-z0-9_]{1,64}$`)

// refuseNamespaces refuses a daemon with invalid namespaces, or with another protocol
// than the running one.
func (s *supervisor) refuseNamespaces(d gpu.MPSDaemon) error {
	if old, runs := s.daemons[d.Name]; runs && old.HasNamespaces() != d.HasNamespaces() {
		return fmt.Errorf("%s: %w: stop %s with the other protocol first", renderDaemon(d), gpu.ErrInUse, renderDaemon(old))
	}
	if d.HasNamespaces() && (d.ThreadPercentage != 0 || d.MemoryLimits != nil || strings.HasPrefix(d.Devices[0], "MIG-")) {
		return fmt.Errorf("%s: %w", renderDaemon(d), gpu.ErrInvalid)
	}
	for i, n := range d.Namespaces {
		if !mpsNamespace.MatchString(n.Name) || n.ThreadPercentage < 1 || n.ThreadPercentage > 100 || n.MemoryLimit%(1<<20) != 0 || i > 0 && n.Name <= d.Namespaces[i-1].Name {
			return fmt.Errorf("%s: %w", renderDaemon(d), gpu.ErrInvalid)
		}
	}
	return nil
}

func (s *supervisor) refuse(d gpu.MPSDaemon) error {
	if s.err != nil {
		return s.err
	}
	name, err := kind.Parse(d.Name)
	if err != nil || name.Kind != kind.GPU && name.Kind != kind.MIG {
		return fmt.Errorf("daemon %q: %w", d.Name, gpu.ErrInvalid)
	}
	if len(d.Devices) == 0 || d.ThreadPercentage < 0 || d.ThreadPercentage > 100 || len(d.MemoryLimits) != 0 && len(d.MemoryLimits) != len(d.Devices) {
		return fmt.Errorf("%s: %w", renderDaemon(d), gpu.ErrInvalid)
	}
	if err := s.refuseNamespaces(d); err != nil {
		return err
	}
	for _, limit := range d.MemoryLimits {
		if limit%(1<<20) != 0 {
			return fmt.Errorf("%s: %w", renderDaemon(d), gpu.ErrInvalid)
		}
	}
	if old, runs := s.daemons[d.Name]; runs && !slices.Equal(old.Devices, d.Devices) {
		return fmt.Errorf("%s: %w: stop %s first", renderDaemon(d), gpu.ErrInUse, renderDaemon(old))
	}
	for _, uuid := range d.Devices {
		if !mpsDevice.MatchString(uuid) || !slices.Contains(s.there(), uuid) {
			return fmt.Errorf("%s: %w: no device %q", renderDaemon(d), gpu.ErrNotFound, uuid)
		}
		for name, other := range s.daemons {
			if name != d.Name && slices.Contains(other.Devices, uuid) {
				return fmt.Errorf("%s: %w by %s", renderDaemon(d), gpu.ErrInUse, renderDaemon(other))
			}
		}
	}
	return nil
}

func (s *supervisor) there() []string {
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	var uuids []string
	for _, g := range s.w.gpus {
		uuids = append(uuids, g.UUID)
	}
	if s.partitions != nil {
		uuids = append(uuids, s.partitions()...)
	}
	return uuids
}

func (s *supervisor) StopMPS(_ context.Context, name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	parsed, err := kind.Parse(name)
	if err != nil || parsed.Kind != kind.GPU && parsed.Kind != kind.MIG {
		return fmt.Errorf("daemon %q: %w", name, gpu.ErrInvalid)
	}
	if s.err != nil {
		return s.err
	}
	if _, runs := s.daemons[name]; runs {
		s.log = append(s.log, "stop "+name)
	}
	delete(s.daemons, name)
	if name == s.stray {
		s.stray = ""
	}
	return nil
}

func (s *supervisor) MPSDaemons(context.Context) ([]gpu.MPSStatus, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []gpu.MPSStatus
	for _, name := range slices.Sorted(maps.Keys(s.daemons)) {
		all = append(all, gpu.MPSStatus{Daemon: s.daemons[name], State: gpu.MPSReady})
	}
	return all, s.err
}

func (s *supervisor) MultiUser(context.Context) (bool, error) { return s.all, s.err }

// String renders the daemons, one a line.
func (s *supervisor) String() string {
	var b strings.Builder
	all, _ := s.MPSDaemons(context.Background())
	for _, status := range all {
		b.WriteString(renderDaemon(status.Daemon) + "\n")
	}
	return b.String()
}

// renderDaemon renders a daemon, for example as "gpu-00-00 of GPU-0=10240M, 25%".
func renderDaemon(d gpu.MPSDaemon) string {
	var devices []string
	for i, uuid := range d.Devices {
		if i < len(d.MemoryLimits) && d.MemoryLimits[i] > 0 {
			uuid += fmt.Sprintf("=%dM", d.MemoryLimits[i]>>20)
		}
		devices = append(devices, uuid)
	}
	text := d.Name + " of " + strings.Join(devices, ",")
	if d.ThreadPercentage > 0 {
		text += fmt.Sprintf(", %d%%", d.ThreadPercentage)
	}
	for _, n := range d.Namespaces {
		text += fmt.Sprintf("; %s %d%% %dM", n.Name, n.ThreadPercentage, n.MemoryLimit>>20)
	}
	return text
}

// faultyMPS is the supervisor of a process that may die before and after each call.
type faultyMPS struct {
	*supervisor
	*faults
}

func (f faultyMPS) EnsureMPS(ctx context.Context, d gpu.MPSDaemon) (dirs gpu.MPSDirs, err error) {
	err = f.around(ctx, "MPS.EnsureMPS", func() error { dirs, err = f.supervisor.EnsureMPS(ctx, d); return err })
	return dirs, err
}

func (f faultyMPS) StopMPS(ctx context.Context, name string) error {
	return f.around(ctx, "MPS.StopMPS", func() error { return f.supervisor.StopMPS(ctx, name) })
}

func (f faultyMPS) MPSDaemons(ctx context.Context) (all []gpu.MPSStatus, err error) {
	err = f.call(ctx, "MPS.MPSDaemons", func() error { all, err = f.supervisor.MPSDaemons(ctx); return err })
	return all, err
}

func (f faultyMPS) MultiUser(ctx context.Context) (all bool, err error) {
	err = f.call(ctx, "MPS.MultiUser", func() error { all, err = f.supervisor.MultiUser(ctx); return err })
	return all, err
}

// gpuSetting is a setting of the world's GPUs.
type gpuSetting[V ~string] struct {
	w        *world
	standard V
	mu       sync.Mutex
	now      map[gpu.PCIAddress]V // without GPUs that have the standard
	err      error                // error of changing it, if set
}

func (s *gpuSetting[V]) get(a gpu.PCIAddress) (V, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.w.gpus[a]; !ok {
		return "", gpu.ErrNotFound
	}
	return cmp.Or(s.now[a], s.standard), nil
}

func (s *gpuSetting[V]) set(a gpu.PCIAddress, value V) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.w.gpus[a]; !ok || value == "" {
		return fmt.Errorf("%q of %s: %w", value, a, gpu.ErrInvalid)
	}
	if s.err != nil {
		return s.err
	}
	s.now[a] = value
	if value == s.standard {
		delete(s.now, a)
	}
	return nil
}

// String renders the values that are not the standard, one a line.
func (s *gpuSetting[V]) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var lines []string
	for a, value := range s.now {
		lines = append(lines, fmt.Sprintf("%s %s\n", a.DeviceName(), value))
	}
	slices.Sort(lines)
	return strings.Join(lines, "")
}

// timeSlices are the time slices of the world's GPUs.
type timeSlices struct{ gpuSetting[gpu.TimeSlice] }

func (s *timeSlices) TimeSlice(_ context.Context, a gpu.PCIAddress) (gpu.TimeSlice, error) {
	return s.get(a)
}

func (s *timeSlices) SetTimeSlice(_ context.Context, a gpu.PCIAddress, slice gpu.TimeSlice) error {
	return s.set(a, slice)
}

type faultyTimeSlices struct {
	*timeSlices
	*faults
}

func (f faultyTimeSlices) SetTimeSlice(ctx context.Context, a gpu.PCIAddress, slice gpu.TimeSlice) error {
	return f.around(ctx, "TimeSlices.SetTimeSlice", func() error { return f.timeSlices.SetTimeSlice(ctx, a, slice) })
}

func (f faultyTimeSlices) TimeSlice(ctx context.Context, a gpu.PCIAddress) (slice gpu.TimeSlice, err error) {
	err = f.call(ctx, "TimeSlices.TimeSlice", func() error { slice, err = f.timeSlices.TimeSlice(ctx, a); return err })
	return slice, err
}

// computeModes are the compute modes of the world's GPUs, none of which is in MIG mode.
// The log of the supervisor has the changes.
type computeModes struct{ gpuSetting[gpu.ComputeMode] }

func (c *computeModes) ComputeMode(_ context.Context, a gpu.PCIAddress) (gpu.ComputeMode, error) {
	return c.get(a)
}

func (c *computeModes) SetComputeMode(_ context.Context, a gpu.PCIAddress, mode gpu.ComputeMode) error {
	err := c.set(a, mode)
	if err == nil {
		c.w.supervisor.mu.Lock()
		defer c.w.supervisor.mu.Unlock()
		c.w.supervisor.log = append(c.w.supervisor.log, fmt.Sprintf("mode of %s: %s", a.DeviceName(), mode))
	}
	return err
}

// faultyComputeModes are the compute modes of a process that may die before and after
// each change. They ignore the end of a context, as time to wait; see once.
type faultyComputeModes struct {
	ports.ComputeModes
	*faults
}

func (f faultyComputeModes) ComputeMode(ctx context.Context, a gpu.PCIAddress) (mode gpu.ComputeMode, err error) {
	err = f.call(ctx, "ComputeModes.ComputeMode", func() error {
		mode, err = f.ComputeModes.ComputeMode(context.WithoutCancel(ctx), a)
		return err
	})
	return mode, err
}

func (f faultyComputeModes) SetComputeMode(ctx context.Context, a gpu.PCIAddress, mode gpu.ComputeMode) error {
	return f.around(ctx, "ComputeModes.SetComputeMode", func() error { return f.ComputeModes.SetComputeMode(context.WithoutCancel(ctx), a, mode) })
}

// modes renders the compute modes that are not the default, one a line.
func (w *world) modes() string {
	w.t.Helper()
	var lines []string
	for a := range w.gpus {
		mode, err := w.computeModes.ComputeMode(context.Background(), a)
		switch {
		case errors.Is(err, gpu.ErrNotSupported):
		case err != nil:
			w.t.Fatalf("%v", err)
		case mode != gpu.ComputeModeDefault:
			lines = append(lines, fmt.Sprintf("%s %s\n", a.DeviceName(), mode))
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "")
}

// left renders the remaining state: files, claims, daemons, time slices and compute
// modes.
func (w *world) left(m *claim.Manager) string {
	w.t.Helper()
	files := slices.DeleteFunc(strings.SplitAfter(w.files(), "\n"), func(f string) bool { return strings.HasSuffix(f, ".tmp\n") })
	return strings.Join(files, "") + w.held(m) + w.supervisor.String() + w.timeSlices.String() + w.modes()
}

// piece is an allocation of a device, or of a share of it, to a claim's request.
type piece struct {
	device  string
	memory  string // "" for the whole
	compute string
	seats   int
	config  string // of the request, "" for none
	request string // "" for one of its own
}

// pieces returns a claim that was allocated the pieces.
func pieces(name string, all ...piece) *resourceapi.ResourceClaim {
	c := newClaim(name)
	for i, p := range all {
		if p.request == "" {
			p.request = fmt.Sprintf("gpu-%d", i)
		}
		id := types.UID(fmt.Sprintf("share-%s-%d", name, i))
		result := resourceapi.DeviceRequestAllocationResult{Request: p.request, Driver: driver, Pool: pool, Device: p.device, ShareID: &id}
		result.ConsumedCapacity = map[resourceapi.QualifiedName]resource.Quantity{}
		if p.memory != "" {
			result.ConsumedCapacity["memory"] = resource.MustParse(p.memory)
		}
		if p.compute != "" {
			result.ConsumedCapacity["compute"] = resource.MustParse(p.compute)
		}
		if strings.HasSuffix(p.device, "-ts") {
			result.ConsumedCapacity["slots"] = resource.MustParse("1")
		}
		if p.seats > 0 {
			result.ConsumedCapacity["seats"] = *resource.NewQuantity(int64(p.seats), resource.DecimalSI)
		}
		devices := &c.Status.Allocation.Devices
		devices.Results = append(devices.Results, result)
		if p.config != "" {
			devices.Config = append(devices.Config, opaque(resourceapi.AllocationConfigSourceClaim, driver, p.config, p.request))
		}
	}
	return c
}

// config returns a configuration of the kind with the fields.
func config(kind, fields string) string {
	if fields != "" {
		fields = "," + fields
	}
	return `{"apiVersion":"gpu.nvidia.com/v1alpha1","kind":"` + kind + `"` + fields + `}`
}

const (
	plain    = `"strategy":"Plain"`
	together = `"sharing":{"strategy":"MPS"}`
)

func interval(slice gpu.TimeSlice) string {
	return config("GpuConfig", `"sharing":{"strategy":"TimeSlicing","timeSlicing":{"interval":"`+string(slice)+`"}}`)
}

// edits renders the CDI edits of a claim without device nodes, one paragraph for each
// CDI device.
func (w *world) edits(c *resourceapi.ResourceClaim) string {
	w.t.Helper()
	data, err := os.ReadFile(w.specPath(c))
	var spec specs.Spec
	if err = errors.Join(err, json.Unmarshal(data, &spec)); err != nil {
		w.t.Fatalf("%v", err)
	}
	var b strings.Builder
	for _, d := range spec.Devices {
		b.WriteString(d.Name + "\n")
		for _, env := range d.ContainerEdits.Env {
			b.WriteString("  " + env + "\n")
		}
		for _, m := range d.ContainerEdits.Mounts {
			b.WriteString("  " + m.HostPath + " at " + m.ContainerPath + "\n")
		}
	}
	return b.String()
}
