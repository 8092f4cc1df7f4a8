// SPDX-License-Identifier: Apache-2.0

package claim_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"golang.org/x/sys/unix"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/ports"
	"github.com/gpu-dra/gpu-dra-driver/pkg/disk/store"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/use"
	"github.com/gpu-dra/gpu-dra-driver/pkg/node/cdi"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

const (
	driver = "gpu.nvidia.com"
	pool   = "node-1"
	memory = 80 << 30
)

// fataler is the common part of testing.TB and rapid.T.
type fataler interface {
	Helper()
	Cleanup(func())
	Fatalf(format string, args ...any)
}

// world is a machine with GPUs, disk and CDI directory. Processes of the agent can
// run, fail and die on it.
type world struct {
	t    fataler
	dir  string
	boot int
	// processes that were started since the last restart.
	processes []*claim.Manager

	mu   sync.Mutex
	gpus map[gpu.PCIAddress]gpu.GPU
	// conditions of the GPUs; a GPU that is missing is healthy.
	conditions map[gpu.PCIAddress]use.Conditions
	gpuOf      func(gpu.PCIAddress) error // what asking for a GPU fails with, if set

	// faults of processes started later, unless disk is set.
	faults *faults
	disk   store.FS
	// partitioning returns the options of a process; nil if it prepares no MIG
	// devices.
	partitioning func(store.FS) *ports.Partitioning
	// supervisor and timeSlices are nil if the world has none.
	supervisor *supervisor
	timeSlices *timeSlices
	// computeModes is nil if the world changes no compute modes, and exclusive is set
	// if processes started later put GPUs with MPS shares into EXCLUSIVE_PROCESS.
	computeModes ports.ComputeModes
	exclusive    bool
	// shares are the shares that the node offers.
	shares catalog.ShareOffer
	// limits is set if the driver limits the memory of containers.
	limits bool
	// options changes the options of a process, if set.
	options func(*claim.Options)
}

// newWorld returns a world of n GPUs named gpu-00-00 and so on.
func newWorld(t fataler, dir string, n int) *world {
	w := &world{t: t, dir: dir, boot: 1, gpus: make(map[gpu.PCIAddress]gpu.GPU), faults: &faults{}, shares: catalog.ShareOffer{Smallest: 1 << 30}}
	for i := range n {
		a := gpu.PCIAddress{Bus: uint8(i)}
		w.gpus[a] = gpu.GPU{Address: a, UUID: fmt.Sprintf("GPU-%d", i), Minor: i, MemoryBytes: memory}
	}
	return w
}

func (w *world) GPU(_ context.Context, a gpu.PCIAddress) (use.GPU, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.gpuOf != nil {
		if err := w.gpuOf(a); err != nil {
			return use.GPU{}, err
		}
	}
	g, ok := w.gpus[a]
	if !ok {
		return use.GPU{}, fmt.Errorf("%w: no GPU at %s", gpu.ErrNotFound, a)
	}
	g.MemoryLimits = w.limits
	return use.GPU{GPU: g, Conditions: w.conditions[a]}, nil
}

func (w *world) GPUs(context.Context) ([]use.GPU, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.gpus) == 0 {
		return nil, fmt.Errorf("%w: no GPU answers", gpu.ErrNotReady)
	}
	var gpus []use.GPU
	for _, a := range slices.SortedFunc(maps.Keys(w.gpus), gpu.PCIAddress.Compare) {
		gpus = append(gpus, use.GPU{GPU: w.gpus[a], Conditions: w.conditions[a]})
	}
	return gpus, nil
}

func (w *world) Edits(context.Context) (*specs.ContainerEdits, error) {
	return &specs.ContainerEdits{Env: []string{"NVIDIA_VISIBLE_DEVICES=void"}}, nil
}

// start starts a process of the agent without recovery. wrap may wrap its CDI
// writer.
func (w *world) start(wrap ...func(ports.CDI) ports.CDI) *claim.Manager {
	w.t.Helper()
	must(w.t, os.MkdirAll(w.dir, 0o700))
	var disk store.FS = faultyDisk{w.faults}
	if w.disk != nil {
		disk = w.disk
	}
	records, err := store.Open(filepath.Join(w.dir, "records"), disk)
	must(w.t, err)
	writer, err := cdi.NewWriter(cdi.Options{Dir: w.cdiDir(), DriverName: driver, Edits: w})
	must(w.t, err)
	var specs ports.CDI = faultyCDI{writer, w.faults}
	if w.disk != nil {
		specs = writer
	}
	for _, f := range wrap {
		specs = f(specs)
	}
	var partitioning *ports.Partitioning
	if w.partitioning != nil {
		partitioning = w.partitioning(disk)
	}
	options := claim.Options{
		DriverName: driver,
		PoolName:   pool,
		Node:       ports.Node{BootID: fmt.Sprintf("boot-%d", w.boot), Inventory: faultyInventory{w, w.faults}, CDI: specs, Partitioning: partitioning},
		LockFile:   filepath.Join(w.dir, "lock"),
		Records:    records,
		Attributes: func(n kind.Name) kind.Attributes {
			address := n.Address.String()
			return kind.Attributes{"resource.kubernetes.io/pciBusID": {StringValue: &address}}
		},
	}
	w.sharing(&options, disk)
	m, err := claim.New(options)
	must(w.t, err)
	if w.processes == nil {
		w.t.Cleanup(w.end)
	}
	w.processes = append(w.processes, m)
	return m
}

// end ends what the processes watch. The machine has not enough watches for all tests.
func (w *world) end() {
	for _, m := range w.processes {
		_ = m.Close()
	}
	w.processes = w.processes[:0]
}

// restart starts a process with recovery, as the agent does, on a machine without
// faults. The earlier processes have ended.
func (w *world) restart(ctx context.Context) (*claim.Manager, claim.Report) {
	w.t.Helper()
	w.end()
	w.faults = &faults{}
	m := w.start()
	// Claims on one GPU wait for each other.
	report, err := m.Recover(context.WithoutCancel(ctx))
	if err != nil {
		w.t.Fatalf("recover: %v", err)
	}
	return m, report
}

func (w *world) cdiDir() string { return filepath.Join(w.dir, "cdi") }

func (w *world) recordPath(c *resourceapi.ResourceClaim) string {
	return filepath.Join(w.dir, "records", string(c.UID)+".record")
}

func (w *world) specPath(c *resourceapi.ResourceClaim) string {
	return filepath.Join(w.cdiDir(), driver+"-claim-"+string(c.UID)+".json")
}

// files renders every file of the machine except the lock file, one line each.
func (w *world) files() string {
	w.t.Helper()
	var lines []string
	err := filepath.WalkDir(w.dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && d.Name() != "lock" {
			rel, _ := filepath.Rel(w.dir, path)
			lines = append(lines, rel+"\n")
		}
		return err
	})
	must(w.t, err)
	slices.Sort(lines)
	return strings.Join(lines, "")
}

// preparedFiles returns the result of files if exactly these claims are prepared.
func preparedFiles(claims ...*resourceapi.ResourceClaim) string {
	var lines []string
	for _, c := range claims {
		lines = append(lines, fmt.Sprintf("cdi/%s-claim-%s.json\n", driver, c.UID), fmt.Sprintf("records/%s.record\n", c.UID))
	}
	slices.Sort(lines)
	return strings.Join(lines, "")
}

// held renders the claims and their devices.
func (w *world) held(m *claim.Manager) string {
	w.t.Helper()
	all, err := m.Held(context.Background())
	if err != nil {
		w.t.Fatalf("held: %v", err)
	}
	var b strings.Builder
	for _, h := range all {
		fmt.Fprintf(&b, "%s/%s %s", h.Namespace, h.Name, h.Phase)
		for _, d := range h.Devices {
			b.WriteString(" " + d.Name.String())
		}
		b.WriteString("\n")
	}
	return b.String()
}

// newClaim returns a claim that was allocated the devices for the requests gpu-0,
// gpu-1 and so on.
func newClaim(name string, devices ...string) *resourceapi.ResourceClaim {
	c := &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: name, UID: types.UID("uid-" + name)},
		Status:     resourceapi.ResourceClaimStatus{Allocation: &resourceapi.AllocationResult{}},
	}
	for i, d := range devices {
		c.Status.Allocation.Devices.Results = append(c.Status.Allocation.Devices.Results, resourceapi.DeviceRequestAllocationResult{
			Request: fmt.Sprintf("gpu-%d", i), Driver: driver, Pool: pool, Device: d,
		})
	}
	return c
}

// once returns a context without time to wait: a call makes one attempt.
func once() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// crash is the panic value of a dying process.
type crash struct{}

// dies reports whether the process died in act, and returns the error of act if not.
func dies(act func() error) (died bool, err error) {
	defer func() {
		if r := recover(); r != nil {
			if _, ok := r.(crash); !ok {
				panic(r)
			}
			died = true
		}
	}()
	return false, act()
}

// faults is the boundary between one process and the machine. Every call to a part of the
// machine passes it by its name. One of the calls fails in some way, or the process dies.
type faults struct {
	mu    sync.Mutex
	count int
	// dieAt is the number, from 1, of the point at which the process dies: before or within a
	// call that changes the machine.
	dieAt int
	dead  bool
	// full is the number of the point from which the disk is full.
	full int
	err  error
	// calls are the names of the calls so far. failAt is the number, from 1, of the one that
	// fails, in one of the ways.
	calls  []string
	failAt int
	way    way
	broken string // the call that fails each time
	// before has the point before the first call of each name, if it is not nil.
	before map[string]int
}

// way is how a call fails.
type way string

const (
	// failsOnce: the call does nothing, and says that it can be tried again.
	failsOnce way = "fails once"
	// failsAlways: the call does nothing, and nor do later ones of its name.
	failsAlways way = "fails always"
	// hangs: the call acts, and answers with an error when its context ends. A call without
	// a context answers at once.
	hangs way = "hangs"
)

// point is called where the process may die.
func (f *faults) point() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.count++
	if f.dead || f.count == f.dieAt {
		f.dead = true // whatever else this process would do does not happen
		panic(crash{})
	}
}

// call passes a call. It returns the error of act unless the call fails.
func (f *faults) call(ctx context.Context, name string, act func() error) error {
	f.mu.Lock()
	f.calls = append(f.calls, name)
	hit, way := len(f.calls) == f.failAt || f.broken == name, f.way
	if hit && way == failsAlways {
		f.broken = name
	}
	dead := f.dead
	f.mu.Unlock()
	switch {
	case dead:
		panic(crash{})
	case !hit:
		return act()
	case way == failsAlways:
		return fmt.Errorf("%s: %w", name, errBroken)
	case way == hangs:
		_ = act() // its result is lost
		<-ctx.Done()
		return fmt.Errorf("%s: %w", name, gpu.ErrTimeout)
	case slices.Contains([]string{"MIG.SetMIGMode", "MIG.DestroyPartition", "MPS.EnsureMPS"}, name):
		return fmt.Errorf("%s: %w", name, gpu.ErrInUse)
	default:
		return fmt.Errorf("%s: %w", name, gpu.ErrNotReady)
	}
}

// around passes a call that changes the machine, after a point. A process that dies after the
// call leaves what one leaves that dies before its next change.
func (f *faults) around(ctx context.Context, name string, change func() error) error {
	f.point()
	if _, known := f.before[name]; f.before != nil && !known {
		f.before[name] = f.count
	}
	return f.call(ctx, name, change)
}

// grow is a point that needs space on the disk.
func (f *faults) grow() error {
	f.point()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.full > 0 && f.count >= f.full {
		return f.err
	}
	return nil
}

// faultyDisk is the disk under the records. A call without a context does not hang.
type faultyDisk struct{ *faults }

func (d faultyDisk) WriteNew(path string, data []byte) error {
	if err := d.grow(); err != nil {
		return errors.Join(err, os.WriteFile(path, data[:len(data)/2], 0o600))
	}
	if err := os.WriteFile(path, data[:len(data)/2], 0o600); err != nil {
		return err
	}
	d.point()
	return d.call(once(), "FS.WriteNew", func() error { return os.WriteFile(path, data, 0o600) })
}

func (d faultyDisk) Rename(from, to string) error {
	d.point()
	return d.call(once(), "FS.Rename", func() error { return store.Unsynced{}.Rename(from, to) })
}

func (d faultyDisk) Remove(path string) error {
	d.point()
	return d.call(once(), "FS.Remove", func() error { return os.Remove(path) })
}

func (d faultyDisk) SyncDir(string) error {
	return d.call(once(), "FS.SyncDir", func() error { return nil })
}

// faultyCDI is the CDI directory.
type faultyCDI struct {
	*cdi.Writer
	*faults
}

func (c faultyCDI) Write(ctx context.Context, uid types.UID, owner types.NamespacedName, injections []gpu.Injection) (ids []string, err error) {
	if err := c.grow(); err != nil {
		return nil, err
	}
	path := filepath.Join(c.Dir, driver+"-claim-"+string(uid)+".json.tmp")
	if err := os.WriteFile(path, []byte("{"), 0o644); err != nil {
		return nil, err
	}
	c.point()
	if err := os.Remove(path); err != nil {
		return nil, err
	}
	err = c.call(ctx, "CDI.Write", func() error { ids, err = c.Writer.Write(ctx, uid, owner, injections); return err })
	return ids, err
}

func (c faultyCDI) Close(ctx context.Context, uid types.UID, owner types.NamespacedName, injections []gpu.Injection) error {
	return c.call(ctx, "CDI.Close", func() error { return c.Writer.Close(ctx, uid, owner, injections) })
}

func (c faultyCDI) Remove(ctx context.Context, uid types.UID) error {
	c.point()
	return c.call(ctx, "CDI.Remove", func() error { return c.Writer.Remove(ctx, uid) })
}

func (c faultyCDI) List(ctx context.Context) (claims []types.UID, err error) {
	err = c.call(ctx, "CDI.List", func() error { claims, err = c.Writer.List(ctx); return err })
	return claims, err
}

func (c faultyCDI) Read(ctx context.Context, uid types.UID) (owner types.NamespacedName, injections []gpu.Injection, err error) {
	err = c.call(ctx, "CDI.Read", func() error { owner, injections, err = c.Writer.Read(ctx, uid); return err })
	return owner, injections, err
}

// faultyInventory is the inventory of a process.
type faultyInventory struct {
	ports.Inventory
	*faults
}

func (i faultyInventory) GPU(ctx context.Context, a gpu.PCIAddress) (g use.GPU, err error) {
	err = i.call(ctx, "Inventory.GPU", func() error { g, err = i.Inventory.GPU(ctx, a); return err })
	return g, err
}

func (i faultyInventory) GPUs(ctx context.Context) (all []use.GPU, err error) {
	err = i.call(ctx, "Inventory.GPUs", func() error { all, err = i.Inventory.GPUs(ctx); return err })
	return all, err
}

// memoryDir is a tmpfs.
const memoryDir = "/dev/shm"

// TestMain puts the temporary folders of all tests into memory. The tests run
// thousands of agents, each with its own files. It also discards the log; a test that
// reads log messages has a logger of its own.
func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	klog.SetLogger(klog.Logger{})
	if err := flag.Set("rapid.checks", checksPerProperty()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if unix.Access(memoryDir, unix.W_OK) != nil {
		return m.Run()
	}
	dir, err := os.MkdirTemp(memoryDir, "claim-test-")
	if err == nil {
		defer func() { _ = os.RemoveAll(dir) }() // after tests that failed
		err = os.Setenv("TMPDIR", dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// checksPerProperty returns the number of random sequences of a property test. The race
// detector makes them seven times slower and gets fewer, so `make unit` also runs the
// package without it.
func checksPerProperty() string {
	if racing() {
		return "20"
	}
	return "100"
}

// racing reports whether the race detector is in this program.
func racing() bool {
	build, _ := debug.ReadBuildInfo()
	return slices.Contains(build.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}

func must(t fataler, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%v", err)
	}
}

// errOf returns the error of a call with two results.
func errOf[T any](_ T, err error) error { return err }

// wantNothing checks that a rendered state is empty.
func wantNothing(t *testing.T, left string) {
	t.Helper()
	if left != "" {
		t.Errorf("left behind:\n%s", left)
	}
}

// wantShort checks that the event of an error says what failed and why in at most 200
// characters. What to do follows.
func wantShort(t *testing.T, err error) {
	t.Helper()
	cause, _, _ := strings.Cut(fmt.Sprint(err), "; ")
	if n := utf8.RuneCountInString(cause); n > 200 {
		t.Errorf("an event of %d characters: %s", n, cause)
	}
}

// wantRefused checks that the manager refuses a claim, and leaves nothing of it.
func wantRefused(t *testing.T, m *claim.Manager, left func(*claim.Manager) string, c *resourceapi.ResourceClaim, is error, says ...string) {
	t.Helper()
	before := left(m)
	devices, err := m.Prepare(once(), c)
	require.Error(t, "prepare", err, is, says...)
	wantShort(t, err)
	if len(devices) > 0 {
		t.Errorf("got devices %v", devices)
	}
	require.Same(t, "left", before, left(m))
}
