// SPDX-License-Identifier: Apache-2.0

package claim_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	vendor "github.com/NVIDIA/go-nvml/pkg/nvml"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpu-dra/gpu-dra-driver/pkg/claim"
	"github.com/gpu-dra/gpu-dra-driver/pkg/disk/store"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/simulator/nvmlsim"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

// eachCall visits the calls to the machine in the options of a process: the functions and methods
// that return an error. The field is a function, or not valid for a method.
func eachCall(in reflect.Value, visit func(name string, field reflect.Value)) {
	fails := func(f reflect.Type) bool { return f.NumOut() > 0 && f.Out(f.NumOut()-1) == reflect.TypeFor[error]() }
	for field, value := range in.Fields() {
		of := field.Type
		if of == reflect.TypeFor[*store.Store]() {
			of = reflect.TypeFor[store.FS]()
		}
		switch of.Kind() {
		case reflect.Pointer:
			if value.IsNil() {
				value = reflect.New(of.Elem())
			}
			eachCall(value.Elem(), visit)
		case reflect.Struct:
			eachCall(value, visit)
		case reflect.Func:
			if fails(of) {
				visit(in.Type().Name()+"."+field.Name, value)
			}
		case reflect.Interface:
			for method := range of.Methods() {
				if fails(method.Type) {
					visit(of.Name()+"."+method.Name, reflect.Value{})
				}
			}
		}
	}
}

// functions lets the calls of the functions in the options pass the faults.
func (f *faults) functions(o *claim.Options) {
	eachCall(reflect.ValueOf(o).Elem(), func(name string, field reflect.Value) {
		if !field.IsValid() || field.IsNil() {
			return
		}
		inner, last := reflect.ValueOf(field.Interface()), field.Type().NumOut()-1
		field.Set(reflect.MakeFunc(field.Type(), func(args []reflect.Value) []reflect.Value {
			ctx := once()
			if len(args) > 0 {
				if of, ok := args[0].Interface().(context.Context); ok {
					ctx = of
				}
			}
			results := make([]reflect.Value, last+1)
			for i := range results {
				results[i] = reflect.Zero(field.Type().Out(i))
			}
			err := f.call(ctx, name, func() error {
				results = inner.Call(args)
				err, _ := results[last].Interface().(error)
				return err
			})
			results[last] = reflect.ValueOf(&err).Elem()
			return results
		}))
	})
}

// faultyHardware lists the processes on the GPUs for a process of the agent.
type faultyHardware struct {
	claim.Hardware
	*faults
}

func (h faultyHardware) Check(ctx context.Context, a gpu.PCIAddress) error {
	return h.call(ctx, "Hardware.Check", func() error { return h.Hardware.Check(ctx, a) })
}

func (h faultyHardware) Processes(ctx context.Context, a gpu.PCIAddress) (all []gpu.Process, err error) {
	err = h.call(ctx, "Hardware.Processes", func() error { all, err = h.Hardware.Processes(ctx, a); return err })
	return all, err
}

// story is the life of a kind of claim on a machine. A neighbor is prepared all the time.
type story struct {
	machine         func(t *testing.T, dir string) *scene
	neighbor, claim *resourceapi.ResourceClaim
	// before is a claim that has come and gone: its partition may stay.
	before *resourceapi.ResourceClaim
	// seesKubelet is set if the agent can read the pods of the kubelet.
	seesKubelet bool
	// halfway is a call of prepare. Recovery after a death within it is a case of its own.
	halfway string
}

// scene is the machine of a story.
type scene struct {
	*world
	story
	t    *testing.T
	left func(*claim.Manager) string
	// loses removes what the driver and the supervisor know of claims, as a reset does.
	loses func()
	// reboots starts the machine again.
	reboots func()
	// keepsNone changes the layout so that no partition stays, or back. It is nil on a machine
	// without a layout.
	keepsNone func(bool)
	// isBusy makes the first partition to be destroyed busy, until isFree.
	isBusy, isFree func()
	occupants      *occupants
	points
}

// points are points of prepare: the last one, and the one before each kind of call.
type points struct {
	lastOfPrepare int
	prepareCalls  map[string]int
}

// migUUID matches what is new each time a partition is made.
var migUUID = regexp.MustCompile(`MIG-[0-9a-f-]{36}`)

// state renders all that is left on the machine, with the specs.
func (s *scene) state(m *claim.Manager) string {
	s.t.Helper()
	text := s.left(m)
	found, err := filepath.Glob(filepath.Join(s.cdiDir(), "*.json"))
	must(s.t, err)
	for _, path := range found {
		data, err := os.ReadFile(path)
		must(s.t, err)
		text += string(data) + "\n"
	}
	limited, err := s.limitFolder().Devices() // they are folders
	must(s.t, err)
	return migUUID.ReplaceAllString(text+strings.Join(limited, "\n"), "MIG")
}

// another starts a process without a watch of the records. It takes the kernel long to end one.
func (s *scene) another(f *faults) *claim.Manager {
	s.t.Helper()
	s.faults = f
	m := s.start()
	must(s.t, m.Close())
	return m
}

var errLate = errors.New("no answer in time")

// inTime limits a call to the time of the kubelet, and returns errLate if it takes longer.
func inTime(call func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), 45*time.Second)
	defer cancel()
	err := call(ctx)
	if ctx.Err() != nil {
		return errors.Join(err, errLate)
	}
	return err
}

func prepare(m *claim.Manager, c *resourceapi.ResourceClaim) error {
	return inTime(func(ctx context.Context) error { return errOf(m.Prepare(ctx, c)) })
}

func unprepare(m *claim.Manager, c *resourceapi.ResourceClaim) error {
	return inTime(func(ctx context.Context) error { return m.Unprepare(ctx, c.UID) })
}

// recovers ends in its own time: a list of what there is to recover has no other limit.
func recovers(m *claim.Manager, _ *resourceapi.ResourceClaim) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	return errOf(m.Recover(ctx))
}

// begin prepares the neighbor, and the claim that was before.
func (s *scene) begin() *claim.Manager {
	m := s.another(&faults{})
	s.meetNeighbor(m)
	if s.before != nil {
		must(s.t, prepare(m, s.before))
		must(s.t, unprepare(m, s.before))
	}
	return m
}

// meetNeighbor prepares the neighbor. Then a pod joins its claim without a call to the driver.
func (s *scene) meetNeighbor(m *claim.Manager) {
	s.t.Helper()
	if s.neighbor == nil {
		return
	}
	clear(s.occupants.on)
	must(s.t, prepare(m, s.neighbor))
	for a := range s.gpus {
		if strings.HasPrefix(s.neighbor.Status.Allocation.Devices.Results[0].Device, a.DeviceName()) {
			s.occupants.runs(a.Bus, 4711, "pod-late")
		}
	}
	pods := map[types.UID][]types.UID{s.neighbor.UID: {"pod-late"}}
	if s.occupants.pods = pods; s.seesKubelet {
		s.occupants.kubelet = pods
	}
}

// leaves unprepares the neighbor. Nothing is left.
func (s *scene) leaves(m *claim.Manager) {
	s.t.Helper()
	if s.neighbor != nil {
		clear(s.occupants.on)
		must(s.t, unprepare(m, s.neighbor))
	}
	if s.keepsNone != nil {
		s.keepsNone(true)
		must(s.t, recovers(m, nil))
	}
	wantNothing(s.t, s.state(m))
}

// dies prepares or unprepares the claim in a process that dies at a point.
func (s *scene) dies(at int, do func(*claim.Manager, *resourceapi.ResourceClaim) error) {
	m := s.another(&faults{dieAt: at})
	if died, err := dies(func() error { return do(m, s.claim) }); !died {
		s.t.Fatalf("the process has not died: %v", err)
	}
}

// act is one thing that the agent does for a claim.
type act struct {
	// begin brings the machine to where the act begins.
	begin func(s *scene, m *claim.Manager)
	do    func(*claim.Manager, *resourceapi.ResourceClaim) error
	// keeps is set if the claim is prepared all the time. Otherwise succeeds is the phase
	// that the act leads to, and a failure leaves the claim in either.
	keeps    bool
	succeeds claim.Phase
	// forgets is set if the neighbor is gone too.
	forgets bool
}

// withoutLayout is for machines on which a partition has stayed.
const withoutLayout = "recover without a layout"

// withoutGPU is for a kind of claim with one GPU.
const withoutGPU = "recover a claim whose GPU is gone"

// halfPrepared is for kinds of claims with a call halfway.
const halfPrepared = "recover a claim that is half prepared"

// acts are prepare, unprepare and recovery after each.
var acts = map[string]act{
	"prepare": {begin: func(*scene, *claim.Manager) {}, do: prepare, succeeds: claim.Prepared},
	"unprepare": {
		begin: func(s *scene, m *claim.Manager) {
			must(s.t, prepare(m, s.claim))
			s.isBusy()
		},
		do: unprepare, succeeds: claim.Absent,
	},
	"unprepare without a record": {
		begin: func(s *scene, m *claim.Manager) {
			must(s.t, prepare(m, s.claim))
			must(s.t, os.Remove(s.recordPath(s.claim)))
		},
		do: unprepare, succeeds: claim.Absent,
	},
	"recover a prepared claim": {
		begin: func(s *scene, m *claim.Manager) { must(s.t, prepare(m, s.claim)) },
		do:    recovers, keeps: true,
	},
	"repair a prepared claim": {
		begin: func(s *scene, m *claim.Manager) {
			must(s.t, prepare(m, s.claim))
			must(s.t, os.Remove(s.specPath(s.claim)))
			s.loses()
		},
		do: recovers, keeps: true,
	},
	withoutGPU: {
		begin: func(s *scene, m *claim.Manager) {
			must(s.t, prepare(m, s.claim))
			s.gpuOf = func(a gpu.PCIAddress) error {
				if a == (gpu.PCIAddress{}) {
					return gpu.ErrLost
				}
				return nil
			}
			s.isFree = func() { s.gpuOf = nil }
		},
		do: func(m *claim.Manager, c *resourceapi.ResourceClaim) error {
			if err := recovers(m, c); !errors.Is(err, gpu.ErrLost) || errors.Is(err, errBroken) {
				return err
			}
			return nil
		},
		keeps: true,
	},
	"recover a claim that is almost prepared": {
		begin: func(s *scene, _ *claim.Manager) { s.dies(s.lastOfPrepare, prepare) },
		do:    recovers, succeeds: claim.Absent,
	},
	"recover a claim that is half unprepared": {
		begin: func(s *scene, m *claim.Manager) {
			must(s.t, prepare(m, s.claim))
			s.dies(5, unprepare)
		},
		do: recovers, succeeds: claim.Absent,
	},
	halfPrepared: {
		begin: func(s *scene, _ *claim.Manager) { s.dies(s.prepareCalls[s.halfway]+1, prepare) },
		do:    recovers, succeeds: claim.Absent,
	},
	"recover after a reboot": {
		begin: func(s *scene, _ *claim.Manager) {
			at := s.lastOfPrepare
			if s.halfway != "" {
				at = s.prepareCalls[s.halfway] + 1
			}
			s.dies(at, prepare)
			s.reboots()
		},
		do: recovers, succeeds: claim.Absent, forgets: true,
	},
	withoutLayout: {
		begin: func(s *scene, _ *claim.Manager) { s.keepsNone(true) },
		do:    recovers, succeeds: claim.Absent, forgets: true,
	},
	"check the memory limits": {
		begin: func(s *scene, m *claim.Manager) { must(s.t, prepare(m, s.claim)) },
		do:    func(m *claim.Manager, _ *resourceapi.ResourceClaim) error { return errOf(m.CheckLimits(once())) },
		keeps: true,
	},
}

// boundaries runs the acts of a story with each fault.
type boundaries struct {
	story
	points
	t   *testing.T
	dir string
	n   int // scenes
	// absent and prepared are the states of a machine without faults. begun is absent too,
	// before any partition stays.
	begun, absent, prepared string
}

func (b *boundaries) scene(t *testing.T) *scene {
	b.n++
	s := b.machine(t, fmt.Sprintf("%s/%d", b.dir, b.n))
	s.story, s.points, s.t = b.story, b.points, t
	s.occupants = s.occupied()
	s.occupants.living = map[string]int{}
	occupied := s.options
	s.options = func(o *claim.Options) {
		occupied(o)
		o.Occupancy.Hardware = faultyHardware{s.occupants, s.faults}
		o.Occupancy.Admitted = func(context.Context, string) ([]string, error) { return nil, nil }
	}
	return s
}

// learn runs the story without faults.
func (b *boundaries) learn() {
	synctest.Test(b.t, func(t *testing.T) {
		s := b.scene(t)
		s.begin()
		f := &faults{}
		m := s.another(f)
		b.begun = s.state(m)
		f.count, f.before = 0, map[string]int{}
		must(t, prepare(m, b.claim))
		b.points = points{f.count, f.before}
		b.prepared = s.state(m)
		must(t, unprepare(m, b.claim))
		b.absent = s.state(m)
		s.leaves(m)
	})
}

// run does an act with a fault, and checks that nothing is lost and nothing leaks. It returns
// the calls, and the number of points to die at.
func (b *boundaries) run(what string, a act, f *faults) (calls []string, points int) {
	synctest.Test(b.t, func(t *testing.T) {
		defer func() {
			if t.Failed() {
				t.Logf("when %s", what)
			}
		}()
		s := b.scene(t)
		a.begin(s, s.begin())
		failAt := f.failAt
		s.faults, f.failAt = f, 0
		m := s.start()
		f.calls, f.failAt = nil, failAt
		died, err := dies(func() error { return a.do(m, s.claim) })
		if errors.Is(err, errLate) {
			t.Error(err)
		}
		calls, points = f.calls, f.count
		f.dieAt, f.failAt, f.broken = 0, 0, ""
		s.isFree()
		b.checkAtOnce(s, a, f.way, died, err)

		switch {
		case died || f.way == failsAlways:
			m, _ = s.restart(context.Background())
		case err != nil:
			if err = a.do(m, s.claim); err != nil {
				t.Errorf("the next try: %v", err)
			}
			fallthrough
		default:
			must(t, recovers(m, nil))
		}
		switch now := s.state(m); {
		case a.keeps, err == nil && !died && a.succeeds == claim.Prepared:
			require.Same(t, "prepared before, now", b.prepared, now)
		case a.forgets:
			wantNothing(t, now)
			if s.keepsNone != nil {
				s.keepsNone(false)
			}
			s.meetNeighbor(m)
		case now == b.absent, now == b.begun:
		case (died || err != nil) && (now == b.prepared || s.phaseOf(m, b.claim) == claim.Unrecorded):
		default:
			require.Same(t, fmt.Sprintf("neither absent nor prepared (%v)", err), b.absent, now)
		}
		if s.phaseOf(m, b.claim) == claim.Unrecorded {
			must(t, unprepare(m, b.claim))
		}
		// The kubelet tries again, twice.
		must(t, prepare(m, b.claim))
		must(t, prepare(m, b.claim))
		require.Same(t, "after prepare", b.prepared, s.state(m))
		must(t, unprepare(m, b.claim))
		must(t, unprepare(m, b.claim))
		require.Same(t, "after unprepare", b.absent, s.state(m))
		s.leaves(m)
	})
	return calls, points
}

// checkAtOnce checks the claims before the fault is repaired.
func (b *boundaries) checkAtOnce(s *scene, a act, way way, died bool, err error) {
	s.t.Helper()
	look := s.another(&faults{})
	phase := s.phaseOf(look, b.claim)
	_, unresolved := os.Stat(s.specPath(b.claim))
	switch {
	case a.keeps && phase != claim.Prepared:
		s.t.Errorf("a prepared claim is %s: %v", phase, err)
	case died:
	case err == nil && a.succeeds == claim.Prepared && (phase != claim.Prepared || unresolved != nil),
		err == nil && a.keeps && unresolved != nil:
		s.t.Errorf("succeeded, and the claim is %s, its spec: %v", phase, unresolved)
	case err == nil && a.succeeds == claim.Absent && (phase != claim.Absent || unresolved == nil):
		s.t.Errorf("succeeded, and the claim is %s", phase)
	case err != nil && a.succeeds == claim.Prepared && way == failsAlways:
		if !errors.Is(err, errBroken) && !errors.Is(err, gpu.ErrInUse) {
			s.t.Errorf("%v, want the cause", err)
		}
		if phase != claim.Absent && !strings.Contains(err.Error(), "undo ") && !strings.Contains(err.Error(), "delete record") {
			s.t.Errorf("failed, and the claim is %s: %v", phase, err)
		}
	}
	if b.neighbor != nil && !a.forgets {
		if phase := s.phaseOf(look, b.neighbor); phase != claim.Prepared {
			s.t.Errorf("the neighbor is %s", phase)
		}
		if _, err := os.Stat(s.specPath(b.neighbor)); err != nil {
			s.t.Errorf("the neighbor's spec: %v", err)
		}
	}
}

// changes are the names of calls that change the machine.
var changes = regexp.MustCompile(`[.](Write|WriteNew|Rename|Remove|Set.*|Create.*|Destroy.*|Cancel.*|Ensure.*|Stop.*|Open|Close)$`)

// every runs an act with each fault, and returns the calls that it met.
func (b *boundaries) every(name string, a act) []string {
	b.t.Helper()
	calls, points := b.run(name, a, &faults{})
	fault := func(f *faults, format string, args ...any) {
		if !b.t.Failed() {
			b.run(name+": "+fmt.Sprintf(format, args...), a, f)
		}
	}
	for point := 1; point <= points; point++ {
		fault(&faults{dieAt: point}, "the process dies at point %d of %d", point, points)
	}
	for i, call := range calls {
		ways := []way{failsOnce, failsAlways, hangs}
		switch {
		case !slices.Contains(calls[:i], call) || changes.MatchString(call):
		case a.succeeds == claim.Prepared || name == "unprepare":
			ways = ways[:1] // a later call that only reads
		default:
			ways = nil
		}
		for _, way := range ways {
			fault(&faults{failAt: i + 1, way: way}, "call %d of %d, %s, %s", i+1, len(calls), call, way)
		}
		b.t.Logf("%s, call %d of %d: %s", name, i+1, len(calls), call)
	}
	b.t.Logf("%s: %d calls, %d points to die at", name, len(calls), points)
	return calls
}

// Each call of the agent to the machine fails once or each time or hangs, or the process dies
// before, within or after it. Nothing is lost. When the fault is gone, nothing is left behind.
func TestFaultsAtEveryBoundary(t *testing.T) {
	gpus := func(change func(*world)) func(*testing.T, string) *scene {
		return func(t *testing.T, dir string) *scene {
			w := newShareWorld(t, dir, 3)
			w.options = func(o *claim.Options) {
				o.MonitorNodes = func() ([]string, error) { return []string{"/dev/nvidia-caps/nvidia-cap2"}, nil }
			}
			change(w)
			s := &scene{world: w, left: w.left, isBusy: func() {}, isFree: func() {}}
			s.loses = func() { clear(w.supervisor.daemons) }
			s.reboots = func() {
				s.loses()
				clear(w.timeSlices.now)
				clear(w.computeModes.(*computeModes).now)
				w.boot++
			}
			return s
		}
	}
	partitions := func(model string, change func(*migWorld)) func(*testing.T, string) *scene {
		var sim *nvmlsim.Sim
		return func(t *testing.T, dir string) *scene {
			if sim == nil {
				m, err := nvmlsim.LoadModel(model)
				must(t, err)
				m.GPUs = m.GPUs[:3] // the simulator is slower with more
				sim, err = nvmlsim.Create(filepath.Join(dir, "sim"), m)
				must(t, err)
			}
			w := inMIGWorld(t, dir+"/agent", sim).withSharing()
			change(w)
			s := &scene{world: w.world, left: w.left, reboots: w.reboot}
			s.isBusy = func() {
				must(t, sim.FailCalls(nvmlsim.CallFault{Method: "ComputeInstanceDestroy", Count: 1, Return: vendor.ERROR_IN_USE}))
			}
			s.isFree = func() { must(t, sim.ClearFaults()) }
			if keep := w.keep; keep != nil {
				s.keepsNone = func(none bool) {
					if w.keep = keep; none {
						w.keep = nil
					}
				}
			}
			s.loses = func() {
				clear(w.supervisor.daemons)
				must(t, sim.ResetGPU(0))
			}
			return s
		}
	}
	share := func(name, memory string) *resourceapi.ResourceClaim {
		return usedBy(pieces(name, piece{device: "gpu-00-00", memory: memory}), types.UID("pod-"+name))
	}
	exclusive := func(w *world) { w.exclusive = true }
	namespaces := func(w *world) { w.exclusive = true; w.setNamespaces(true) }
	nothing := func(*world) {}
	layout := func(w *migWorld) { w.keep = []string{firstSeventh, upperHalf} }
	mix := func(name, memory, larger string) *resourceapi.ResourceClaim {
		return pieces(name,
			piece{device: part, memory: memory},
			piece{device: h100Other, memory: larger, config: config("ShareConfig", `"processes":2`)},
			piece{device: h100Other, memory: memory},
			piece{device: "gpu-52-00-ts", config: interval(gpu.TimeSliceLong)},
		)
	}
	stories := map[string]story{
		"a GPU":        {machine: gpus(nothing), neighbor: newClaim("neighbor", "gpu-01-00"), claim: usedBy(newClaim("dying", "gpu-00-00"), "pod-dying")},
		"several GPUs": {machine: gpus(nothing), claim: newClaim("dying", "gpu-00-00", "gpu-01-00")},
		"an MPS share": {machine: gpus(nothing), neighbor: share("neighbor", "10Gi"), claim: share("dying", "20Gi")},
		"a plain share": {
			seesKubelet: true, machine: gpus(nothing), neighbor: pieces("neighbor", piece{device: "gpu-00-00", memory: "20Gi", config: config("ShareConfig", plain)}),
			claim: pieces("dying", piece{device: "gpu-00-00", memory: "30Gi", config: config("ShareConfig", plain)}),
		},
		"a share with a namespace": {machine: gpus(namespaces), neighbor: share("neighbor", "10Gi"), claim: share("dying", "20Gi")},
		"exclusive compute":        {halfway: "MPS.EnsureMPS", machine: gpus(exclusive), claim: share("dying", "20Gi")},
		"a share that the driver limits": {
			machine: gpus(func(w *world) { w.limits = true }), neighbor: pieces("neighbor", piece{device: "gpu-00-00", memory: "20Gi", config: config("ShareConfig", plain)}),
			claim: pieces("dying", piece{device: "gpu-00-00", memory: "20Gi", config: config("ShareConfig", plain)}),
		},
		"a time slice": {machine: gpus(nothing), claim: pieces("dying", piece{device: "gpu-00-00-ts", config: interval(gpu.TimeSliceShort)})},
		"seats":        {machine: gpus(exclusive), neighbor: pieces("neighbor", piece{device: "gpu-00-00-seat", seats: 1}), claim: pieces("dying", piece{device: "gpu-00-00-seat", seats: 2})},
		"processes of several users": {
			machine: gpus(func(w *world) { w.supervisor.all = true }),
			claim:   pieces("dying", piece{device: "gpu-00-00", config: config("GpuConfig", `"sharing":{"strategy":"MPS","mps":{"multiUser":true}}`)}),
		},
		"monitoring": {machine: gpus(nothing), neighbor: newClaim("neighbor", "gpu-01-00"), claim: monitor("dying")},
		"MIG devices": {
			machine: partitions("dgx-h100", func(*migWorld) {}), claim: newClaim("dying", h100+"-mig-1g-10gb-0", h100+"-mig-3g-40gb-4"),
		},
		"a MIG device that needs a reset": {
			halfway: "MIG.SetMIGMode", machine: partitions("dgx-a100", (*migWorld).allowReset), claim: newClaim("dying", a100+"-mig-1g-10gb-0"),
		},
		"a MIG device that has stayed":      {machine: partitions("dgx-h100", layout), before: newClaim("before", firstSeventh), claim: newClaim("dying", firstSeventh, upperHalf)},
		"a GPU whose MIG device has stayed": {machine: partitions("dgx-h100", layout), before: newClaim("before", firstSeventh), claim: newClaim("dying", h100)},
		"shares of MIG devices and GPUs": {
			machine: partitions("dgx-h100", func(w *migWorld) { w.exclusive = true }), neighbor: mix("neighbor", "2Gi", "4Gi"), claim: mix("dying", "3Gi", "5Gi"),
		},
	}
	if racing() {
		maps.DeleteFunc(stories, func(kind string, _ story) bool { return kind != "an MPS share" })
	}
	var mu sync.Mutex
	met := map[string]int{}
	t.Run("kinds", func(t *testing.T) {
		for kind, story := range stories {
			t.Run(kind, func(t *testing.T) {
				t.Parallel()
				b := &boundaries{story: story, t: t, dir: t.TempDir()}
				b.learn()
				for name, a := range acts {
					if name == withoutLayout && b.before == nil || name == halfPrepared && b.halfway == "" || name == withoutGPU && kind != "a GPU" {
						continue
					}
					calls := b.every(name, a)
					mu.Lock()
					for _, call := range calls {
						met[call]++
					}
					mu.Unlock()
				}
			})
		}
	})
	if racing() {
		return // one kind does not meet all calls
	}
	t.Run("calls", func(t *testing.T) {
		eachCall(reflect.ValueOf(claim.Options{}), func(name string, _ reflect.Value) {
			if t.Logf("%s: %d", name, met[name]); met[name] == 0 {
				t.Errorf("no kind of claim meets %s", name)
			}
		})
	})
}
