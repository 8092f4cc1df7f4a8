// SPDX-License-Identifier: Apache-2.0

package step

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/internal/journal"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/internal/plan"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/ports"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/share"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind/kindtest"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

// needsAll is a plan that needs every step of the list. A new step that it does not
// need fails the contract: give it a device that does.
func needsAll(t *testing.T, n *node, claim types.UID) *journal.Record {
	t.Helper()
	part, slots, whole := kindtest.Name("gpu-1b-00-mig-1g-10gb-0"), kindtest.Name("gpu-2b-00-ts"), kindtest.Name("gpu-4b-00")
	id := claim + "-share"
	p := plan.Plan{
		Claim: plan.Ref{Namespace: "team-a", Name: string(claim), UID: claim},
		Devices: []plan.Device{
			{Request: "a", Pool: "node-1", Name: part, ShareID: &id, Terms: share.Terms{Share: &share.Amount{Memory: 1 << 30}, MPS: &share.Client{Daemon: part, Processes: 1, MemoryLimit: 1 << 30}}},
			{Request: "b", Pool: "node-1", Name: slots, ShareID: &id, Terms: share.Terms{TimeSlice: gpu.TimeSliceLong, Limit: &share.Limit{Memory: 1 << 30, Containers: 2}}},
			{Request: "c", Pool: "node-1", Name: whole, UUID: "GPU-" + whole.String(), ShareID: &id, Terms: share.Terms{Share: &share.Amount{Memory: 1 << 30},
				MPS: &share.Client{Daemon: whole, Processes: 1, MemoryLimit: 1 << 30}, Exclusive: true}},
		},
	}
	if n.namespaces {
		p.Devices[2].MPS = &share.Client{Daemon: whole, Processes: 1, ThreadPercentage: 25, Namespace: strings.ReplaceAll(string(claim), "-", "")}
		slices.Reverse(p.Devices) // its daemon is the first
	}
	return journal.New("boot-1", p, n.list.Journal(p))
}

// prepared is a claim on a node on which all steps before one are done.
type prepared struct {
	*node
	t *testing.T
	w Work
	s Step
	e *journal.Entry
	// before is the node without the step.
	before string
}

// until does the steps before the given one of the list.
func until(t *testing.T, n *node, index int) *prepared {
	t.Helper()
	c := &prepared{node: n, t: t, s: n.list[index]}
	c.w = Work{Record: needsAll(t, n, "uid-a"), Others: n.journal.Others("uid-a")}
	for i := range c.w.Journal {
		e := &c.w.Journal[i]
		s, err := n.list.Find(e.Step)
		must(t, err)
		if e.Step == c.s.Name() {
			c.e, c.before = e, n.String()
			return c
		}
		c.do(s, e)
	}
	t.Fatalf("the plan does not need %s", c.s.Name())
	return nil
}

func (c *prepared) note(s Step, e *journal.Entry) {
	c.t.Helper()
	before := c.String()
	if noter, ok := s.(Noter); ok {
		result, err := noter.Note(c.t.Context(), c.w, *e)
		if err != nil {
			c.t.Fatalf("note %s: %v", e.Step, err)
		}
		keep(e, result)
	}
	if diff := cmp.Diff(before, c.String()); diff != "" {
		c.t.Fatalf("Note changes the node (-before +after):\n%s", diff)
	}
	e.State = journal.Started
}

func (c *prepared) do(s Step, e *journal.Entry) {
	c.t.Helper()
	c.note(s, e)
	result, err := s.Do(c.t.Context(), c.w, *e)
	if err != nil {
		c.t.Fatalf("do %s: %v", e.Step, err)
	}
	keep(e, result)
	e.State = journal.Done
}

func keep(e *journal.Entry, result json.RawMessage) {
	if result != nil {
		e.Result = result
	}
}

func (c *prepared) undo(e journal.Entry) {
	c.t.Helper()
	if err := c.s.Undo(c.t.Context(), c.w, e); err != nil {
		c.t.Fatalf("undo: %v", err)
	}
}

func (c *prepared) want(state string) {
	c.t.Helper()
	require.Same(c.t, "the node", state, c.String())
}

// share lets another claim hold the same devices, with the same steps done.
func (c *prepared) share() {
	c.t.Helper()
	other := needsAll(c.t, c.node, "uid-b")
	other.Journal = slices.Clone(c.w.Journal)
	must(c.t, c.journal.Save(other))
	if others, err := c.journal.Holders(c.t.Context()); err != nil || !slices.ContainsFunc(others, func(h journal.Holder) bool { return h.Claim.UID == "uid-b" }) {
		c.t.Fatalf("the other claim holds nothing: %v, %v", others, err)
	}
	c.w.Others.Forget()
}

// leftovers returns the devices and GPUs that have something of the step.
func (c *prepared) leftovers() []kind.Name {
	c.t.Helper()
	sweeper, ok := c.s.(Sweeper)
	if !ok {
		return nil
	}
	devices, err := sweeper.Leftovers(c.t.Context())
	must(c.t, err)
	return devices
}

// sweep sweeps all leftovers of the step.
func (c *prepared) sweep() {
	c.t.Helper()
	for _, device := range c.leftovers() {
		if _, err := c.s.(Sweeper).Sweep(c.t.Context(), device, c.journal.Others("")); err != nil {
			c.t.Fatalf("sweep %s: %v", device, err)
		}
	}
}

// TestEveryStepKeepsTheContract is the contract of [Step].
func TestEveryStepKeepsTheContract(t *testing.T) {
	for name, check := range map[string]func(*prepared){
		"doing it twice is doing it once": func(c *prepared) {
			c.do(c.s, c.e)
			once, result := c.String(), c.e.Result
			if once == c.before {
				c.t.Error("doing it changes nothing")
			}
			c.do(c.s, c.e)
			c.want(once)
			if diff := cmp.Diff(string(result), string(c.e.Result)); diff != "" {
				c.t.Errorf("result (-first +second):\n%s", diff)
			}
		},
		"undoing it twice is undoing it once": func(c *prepared) {
			c.do(c.s, c.e)
			c.undo(*c.e)
			c.want(c.before)
			c.undo(*c.e)
			c.want(c.before)
		},
		"a crash before it acts leaves nothing": func(c *prepared) {
			c.note(c.s, c.e)
			c.undo(*c.e)
			c.want(c.before)
		},
		"a crash before its result is recorded leaves nothing": func(c *prepared) {
			c.note(c.s, c.e)
			noted := *c.e
			noted.Result = slices.Clone(c.e.Result)
			c.do(c.s, c.e)
			c.undo(noted)
			c.want(c.before)
		},
		"a crash before its result is recorded does not keep it from being done": func(c *prepared) {
			c.note(c.s, c.e)
			noted := *c.e
			noted.Result = slices.Clone(c.e.Result)
			c.do(c.s, c.e)
			once := c.String()
			c.do(c.s, &noted)
			c.want(once)
		},
		"another claim keeps it": func(c *prepared) {
			c.do(c.s, c.e)
			once := c.String()
			c.share()
			if c.e.Device == (kind.Name{}) {
				return // it belongs to one claim only
			}
			c.undo(*c.e)
			c.sweep()
			// The daemon then has the namespace of the other claim.
			c.want(strings.ReplaceAll(once, "{Name:uida", "{Name:uidb"))
		},
		"a claim with a lost record keeps it until it ends": func(c *prepared) {
			for i := range c.w.Journal {
				if e := &c.w.Journal[i]; e.State == journal.Planned {
					s, err := c.list.Find(e.Step)
					must(c.t, err)
					c.do(s, e)
				}
			}
			once := c.String()
			lost, err := c.journal.Witness(c.t.Context(), "uid-a")
			must(c.t, err)
			c.w.Record = lost.Record
			c.sweep()
			c.want(once)
			i := slices.IndexFunc(lost.Journal, func(e journal.Entry) bool { return e.Step == c.s.Name() })
			if i < 0 {
				return // the spec itself
			}
			for _, e := range slices.Backward(lost.Journal[i:]) {
				s, err := c.list.Find(e.Step)
				must(c.t, err)
				if err := s.Undo(c.t.Context(), c.w, e); err != nil {
					c.t.Fatalf("undo lost %s: %v", e.Step, err)
				}
			}
			delete(c.specs, "uid-a")
			c.want(c.before)
		},
		"a sweep removes it from a node without claims": func(c *prepared) {
			c.do(c.s, c.e)
			once := c.String()
			left := c.leftovers()
			c.w.Others.Forget()
			c.sweep()
			if len(left) == 0 {
				c.want(once) // it ends with the claim
				return
			}
			c.want(c.before)
			c.sweep()
			c.want(c.before)
		},
	} {
		t.Run(name, func(t *testing.T) {
			for i, s := range newNode(t).list {
				t.Run(s.Name(), func(t *testing.T) { check(until(t, newNode(t), i)) })
				t.Run(s.Name()+" with namespaces", func(t *testing.T) {
					n := newNode(t)
					n.namespaces = true
					check(until(t, n, i))
				})
			}
		})
	}
}

func TestContainersGetWhatTheStepsOfTheirDeviceAdd(t *testing.T) {
	n := newNode(t)
	c := until(t, n, len(n.list)-1)
	for _, d := range append(c.w.Devices, plan.Device{Name: kindtest.Name("gpu-3b-00")}) {
		var got gpu.Injection
		must(t, c.list.Inject(t.Context(), c.w.Record, d, &got))
		var want gpu.Injection
		if d.MPS != nil {
			pipe, shm := "/pipe/"+d.Name.String(), "/shm/"+d.Name.String()
			want = gpu.Injection{
				Env:    []string{"CUDA_MPS_PIPE_DIRECTORY=" + pipe, "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=1024M"},
				Mounts: []gpu.Mount{{HostPath: pipe, ContainerPath: pipe}, {HostPath: shm, ContainerPath: "/dev/shm"}},
			}
		}
		if d.Name.IsPartition() {
			want.DeviceNodes = []string{"/dev/nvidia-caps/gpu-1b-00-1-0"}
			want.Annotations = map[string]string{"partition": `{"uuid":"MIG-1","gpuInstance":1}`}
		}
		if d.Limit != nil {
			want.Hooks = []gpu.Hook{{Path: "/hook", Args: []string{"hook", "uid-a-gpu-2b-00-ts_uid-a-share", "0000:2b:00.0", "1073741824", "2"}}}
		}
		require.Same(t, d.Name.String(), want, got)
	}
	err := c.list.Inject(t.Context(), &journal.Record{}, c.w.Devices[0], &gpu.Injection{})
	require.Error(t, "before its steps are done", err, gpu.ErrNotFound)
}

// A CDI spec without the device nodes of a MIG device would replace one that has them.
func TestAStepOfOtherSettingsRefusesToInjectIntoItsDevice(t *testing.T) {
	list := New(ports.Node{})
	part, slots := kindtest.Name("gpu-1b-00-mig-1g-10gb-0"), kindtest.Name("gpu-2b-00-ts")
	r := &journal.Record{Progress: journal.Progress{Journal: []journal.Entry{
		{Step: journal.StepCreatePartition, Device: part, State: journal.Done},
		{Step: setTimeSlice{}.Name(), Device: slots, State: journal.Done},
	}}}
	var got gpu.Injection
	require.Error(t, part.String(), list.Inject(t.Context(), r, plan.Device{Name: part}, &got), gpu.ErrNotSupported)
	if err := list.Inject(t.Context(), r, plan.Device{Name: slots}, &got); err != nil {
		t.Errorf("%s: %v", slots, err)
	}
	require.Same(t, "injected", gpu.Injection{}, got)
}

func TestEveryStepIsFoundByItsName(t *testing.T) {
	n := newNode(t)
	for _, list := range []List{n.list, New(ports.Node{})} {
		seen := map[string]bool{}
		for _, s := range list {
			if found, err := list.Find(s.Name()); err != nil || found.Name() != s.Name() || seen[s.Name()] {
				t.Errorf("step %s: found %v, %v; seen before: %t", s.Name(), found, err, seen[s.Name()])
			}
			seen[s.Name()] = true
		}
	}
	if _, err := n.list.Find("Unknown"); err == nil {
		t.Error("found a step that is in no list")
	}
}

func TestAStepOfOtherSettingsCannotBeDoneAndLeavesLostClaimsAlone(t *testing.T) {
	var lost []journal.LostDevice
	for _, device := range []string{"gpu-1b-00-mig-1g-10gb-0", "gpu-2b-00-ts", "gpu-3b-00"} {
		lost = append(lost, journal.LostDevice{Name: kindtest.Name(device)})
	}
	list := New(ports.Node{})
	for _, e := range list.Lost(lost) {
		s, err := list.Find(e.Step)
		must(t, err)
		if err := s.Undo(t.Context(), Work{}, e); err != nil {
			t.Errorf("undo lost %s: %v", e.Step, err)
		}
		e.State = journal.Done
		if err := s.Undo(t.Context(), Work{}, e); err == nil {
			t.Errorf("undo %s: succeeds without what it needs", e.Step)
		}
	}
}
