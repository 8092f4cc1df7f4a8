// SPDX-License-Identifier: Apache-2.0

package use_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/use"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

// healthy is a GPU that admits every use.
func healthy() gpu.GPU {
	return gpu.GPU{
		Address: gpu.PCIAddress{Bus: 0x1b}, UUID: "GPU-1", ComputeCapability: gpu.Version{Major: 9}, ComputeMode: gpu.ComputeModeDefault,
		MIG: gpu.MIG{Capable: true, Profiles: []gpu.ProfileInfo{{Profile: half, Placements: []gpu.Placement{{Start: 0, Size: 4}, {Start: 4, Size: 4}}}}},
	}
}

var half = gpu.Profile{Slices: 3, MemoryGB: 40}

// device returns the name of a device of the kind on the GPU.
func device(k kind.Kind) kind.Name {
	n := kind.Name{Kind: k}
	if n.OnGPU() {
		n.Address = healthy().Address
	}
	if n.IsPartition() {
		n.Profile = half
	}
	return n
}

// allocated is a GPU that a device plugin has given to a pod.
var allocated = []gpu.ExternalAllocation{{Device: healthy().UUID, Pod: "team/pod"}}

// state is a GPU and whether its node runs MPS daemons.
type state struct {
	use.GPU
	MPS bool
}

// checked returns the taint, or the aspect if there is none, of each problem.
func checked(f state, device kind.Name, sharing use.Sharing) []string {
	var found []string
	for _, p := range use.Check(f.GPU, f.MPS, device, sharing) {
		if p.TaintKey == "" {
			found = append(found, string(p.Aspect))
			continue
		}
		_, key, _ := strings.Cut(p.TaintKey, "/")
		found = append(found, key+"="+p.TaintValue)
	}
	return found
}

func TestAHealthyGPUAdmitsEveryUseOfEveryKind(t *testing.T) {
	for _, k := range kind.All() {
		for _, s := range []use.Sharing{use.Alone, use.ByMPS, use.Plain, use.TimeSlices} {
			if found := checked(state{use.GPU{GPU: healthy()}, true}, device(k), s); found != nil {
				t.Errorf("%s, %s: %q, want nothing", k, s, found)
			}
		}
	}
}

func TestCheckFindsWhatDoesNotAdmitAUse(t *testing.T) {
	const prohibited, exclusive = "compute-mode=prohibited", "compute-mode=exclusive-process"
	for name, c := range map[string]struct {
		change    func(*state)
		sharing   use.Sharing
		whole     []string // of a GPU, and of its time slices
		partition []string
	}{
		"a fault": {
			change: func(f *state) { f.Fault, f.Cause = "XID 79; reset it", "xid-79" }, sharing: use.Alone,
			whole: []string{"unhealthy=xid-79"}, partition: []string{"unhealthy=xid-79"},
		},
		"a prohibited GPU": {
			change: func(f *state) { f.ComputeMode = gpu.ComputeModeProhibited }, sharing: use.ByMPS,
			whole: []string{prohibited}, partition: []string{prohibited},
		},
		"an exclusive GPU for one claim": {
			change: func(f *state) { f.ComputeMode = gpu.ComputeModeExclusiveProcess }, sharing: use.Alone,
		},
		"an exclusive GPU with MPS": {
			change: func(f *state) { f.ComputeMode = gpu.ComputeModeExclusiveProcess }, sharing: use.ByMPS,
		},
		"an exclusive GPU for plain shares": {
			change: func(f *state) { f.ComputeMode = gpu.ComputeModeExclusiveProcess }, sharing: use.Plain,
			whole: []string{exclusive}, partition: []string{exclusive},
		},
		"an exclusive GPU for time slices": {
			change: func(f *state) { f.ComputeMode = gpu.ComputeModeExclusiveProcess }, sharing: use.TimeSlices,
			whole: []string{exclusive}, partition: []string{exclusive},
		},
		"a GPU in MIG mode": {
			change: func(f *state) { f.MIG.Enabled = true }, sharing: use.Alone,
			whole: []string{"mig-mode=enabled"},
		},
		"a node without MPS": {
			change: func(f *state) { f.MPS = false }, sharing: use.ByMPS,
			whole: []string{"MPS"}, partition: []string{"MPS"},
		},
		"a GPU on which MPS has no limits": {
			change: func(f *state) { f.ComputeCapability.Major = 6 }, sharing: use.ByMPS,
			whole: []string{"MPS"}, partition: []string{"MPS"},
		},
		"a GPU that a device plugin has allocated": {
			change: func(f *state) { f.External = allocated }, sharing: use.Alone,
			whole: []string{"in-use=device-plugin"}, partition: []string{"in-use=device-plugin"},
		},
		"everything at once": {
			change: func(f *state) {
				f.Fault, f.Cause, f.External = "lost", "lost", allocated
				f.MIG.Enabled, f.ComputeMode = true, gpu.ComputeModeExclusiveProcess
			}, sharing: use.TimeSlices,
			whole:     []string{"unhealthy=lost", "mig-mode=enabled", exclusive, "in-use=device-plugin"},
			partition: []string{"unhealthy=lost", exclusive, "in-use=device-plugin"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := state{use.GPU{GPU: healthy()}, true}
			c.change(&f)
			want := map[kind.Scope][]string{kind.ScopeGPU: c.whole, kind.ScopePartition: c.partition, kind.ScopeNode: nil}
			for _, k := range kind.All() {
				got := checked(f, device(k), c.sharing)
				require.Same(t, fmt.Sprintf("problems of a device of kind %s", k), want[k.Scope()], got)
			}
		})
	}
}

func TestProblemsSayWhatToDo(t *testing.T) {
	for name, c := range map[string]struct {
		change  func(*state)
		sharing use.Sharing
		is      error
		says    string
	}{
		"a fault":                  {func(f *state) { f.Fault = "XID 79: the node's administrator must reset it" }, use.Alone, gpu.ErrUnhealthy, "GPU unhealthy: XID 79: the node's administrator must reset it"},
		"a prohibited GPU":         {func(f *state) { f.ComputeMode = gpu.ComputeModeProhibited }, use.Alone, gpu.ErrNotSupported, "the compute mode of the GPU is Prohibited, in which no process can use it; an administrator changes it with nvidia-smi -i 0000:1b:00.0 -c DEFAULT"},
		"an exclusive GPU":         {func(f *state) { f.ComputeMode = gpu.ComputeModeExclusiveProcess }, use.Plain, gpu.ErrNotSupported, "-c DEFAULT, or the configuration says MPS"},
		"a GPU in MIG mode":        {func(f *state) { f.MIG.Enabled = true }, use.Alone, gpu.ErrNotSupported, "switch it back with nvidia-smi -i 0000:1b:00.0 -mig 0"},
		"a node without MPS":       {func(f *state) { f.MPS = false }, use.ByMPS, gpu.ErrNotSupported, "no MPS daemons run on this node; see https://github.com/gpu-dra/gpu-dra-driver/blob/main/docs/user/events.md"},
		"a GPU of a pod":           {func(f *state) { f.External = allocated }, use.Alone, gpu.ErrInUse, "it is free when that pod has ended"},
		"a GPU without MPS limits": {func(f *state) { f.ComputeCapability = gpu.Version{Major: 6, Minor: 1} }, use.ByMPS, gpu.ErrNotSupported, "compute capability 6.1"},
	} {
		t.Run(name, func(t *testing.T) {
			f := state{use.GPU{GPU: healthy()}, true}
			c.change(&f)
			problems := use.Check(f.GPU, f.MPS, device(kind.GPU), c.sharing)
			if len(problems) != 1 || !errors.Is(problems[0].Err, c.is) || !strings.Contains(problems[0].Err.Error(), c.says) {
				t.Fatalf("problems %v, want one that is %q and says %q", problems, c.is, c.says)
			}
			if strings.Contains(problems[0].Err.Error(), "team/pod") {
				t.Errorf("%q names the pod of another user", problems[0].Err)
			}
			if cause, _, _ := strings.Cut(problems[0].Err.Error(), "; "); len(cause) > 200 {
				t.Errorf("a cause of %d characters: %s", len(cause), cause)
			}
		})
	}
}
