// SPDX-License-Identifier: Apache-2.0

package catalog_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind/kindtest"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

// consumed parses capacities such as "memory=10Gi compute=50".
func consumed(words string) map[resourceapi.QualifiedName]resource.Quantity {
	if words == "" {
		return nil
	}
	all := map[resourceapi.QualifiedName]resource.Quantity{}
	for _, word := range strings.Fields(words) {
		name, value, _ := strings.Cut(word, "=")
		all[resourceapi.QualifiedName(name)] = resource.MustParse(value)
	}
	return all
}

func TestWhatAnAllocationTakes(t *testing.T) {
	offer := catalog.ShareOffer{Smallest: 500<<20 + 1} // 501Mi
	all := resource.MustParse("81559Mi")
	for name, tc := range map[string]struct {
		consumed string
		want     kind.Share
		err      string
	}{
		"an exclusive device":                {"", kind.Share{Whole: true, Memory: 81559 << 20}, ""},
		"all that is there":                  {"memory=81559Mi compute=0", kind.Share{Whole: true, Memory: 81559 << 20}, ""},
		"all of the memory and some compute": {"memory=81559Mi compute=50", kind.Share{Whole: true, Memory: 81559 << 20, Compute: 50}, ""},
		"a share":                            {"memory=10Gi compute=25", kind.Share{Memory: 10 << 30, Compute: 25}, ""},
		"a share of a MIG device":            {"memory=10Gi", kind.Share{Memory: 10 << 30}, ""},
		"a share and all of the compute":     {"memory=10Gi compute=100", kind.Share{Memory: 10 << 30, Compute: 100}, ""},
		"all but a step":                     {"memory=81558Mi", kind.Share{Memory: 81558 << 20}, ""},
		"the smallest":                       {"memory=501Mi", kind.Share{Memory: 501 << 20}, ""},
		"less than the smallest":             {"memory=500Mi", kind.Share{}, "500Mi of memory; the smallest share on this node has 501Mi"},
		"nothing":                            {"memory=0", kind.Share{}, "0 of memory; the smallest share on this node has 501Mi"},
		"less than nothing":                  {"memory=-1Gi", kind.Share{}, "-1Gi of memory; the smallest"},
		"more than there is":                 {"memory=81560Mi", kind.Share{}, "81560Mi of memory, and the device has 81559Mi"},
		"more than a number holds":           {"memory=100Ei", kind.Share{}, "the device has 81559Mi"},
		"off the step":                       {"memory=1000000001", kind.Share{Memory: 953 << 20}, ""},
		"a fraction of a byte":               {"memory=1073741824500m", kind.Share{Memory: 1 << 30}, ""},
		"more than all of the compute":       {"memory=10Gi compute=101", kind.Share{}, "101 percent of compute; want a whole number from 0 to 100"},
		"less than no compute":               {"memory=10Gi compute=-1", kind.Share{}, "-1 percent of compute"},
		"a fraction of a percent":            {"memory=10Gi compute=500m", kind.Share{}, "500m percent of compute"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := offer.Share(kind.MIG, all, consumed(tc.consumed))
			if tc.err == "" && err != nil || tc.err != "" && (!errors.Is(err, gpu.ErrInvalid) || !strings.Contains(err.Error(), tc.err)) {
				t.Errorf("error %v, want ErrInvalid with %q", err, tc.err)
			}
			require.Same(t, "share", tc.want, got)
		})
	}
	t.Run("a device below the smallest share is given as a whole", func(t *testing.T) {
		got, err := offer.Share(kind.MIG, resource.MustParse("16Mi"), consumed("memory=16Mi"))
		if diff := cmp.Diff(kind.Share{Whole: true, Memory: 16 << 20}, got); err != nil || diff != "" {
			t.Errorf("%v (-want +got):\n%s", err, diff)
		}
	})
}

func TestAWholeGPUHasSharesBelowTheSmallest(t *testing.T) {
	offer, all := catalog.ShareOffer{Smallest: 1 << 30}, resource.MustParse("81559Mi")
	got, err := offer.Share(kind.GPU, all, consumed("memory=1Mi"))
	if diff := cmp.Diff(kind.Share{Memory: 1 << 20}, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	_, err = offer.Share(kind.GPU, all, consumed("memory=0"))
	require.Error(t, "nothing", err, gpu.ErrInvalid)
}

func TestSlotsAndTheirMemory(t *testing.T) {
	offer := catalog.ShareOffer{Smallest: 1 << 30}
	all := resource.MustParse("81559Mi")
	for words, want := range map[string]kind.Share{
		"slots=1": {Slots: 1}, "slots=3 memory=0": {Slots: 3}, "slots=1 memory=10Gi": {Slots: 1, Memory: 10 << 30}, "slots=2 memory=81559Mi": {Slots: 2, Memory: 81559 << 20},
	} {
		want.Whole = true
		got, err := offer.Share(kind.TimeSlice, all, consumed(words))
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", words, err, diff)
		}
	}
	for words, want := range map[string]string{
		"slots=1 memory=1023Mi": "the smallest share on this node has 1Gi", "slots=1 memory=81560Mi": "the device has 81559Mi",
		"": "0 slots of a time-sliced GPU", "memory=1Gi": "0 slots", "slots=0": "0 slots", "slots=-1": "-1 slots", "slots=1500m": "1500m slots", "slots=100E": "100E slots",
	} {
		_, err := offer.Share(kind.TimeSlice, all, consumed(words))
		require.Error(t, words, err, gpu.ErrInvalid, want)
	}
}

// lines returns the lines of a rendered device that describe its sharing.
func lines(device resourceapi.Device) string {
	var kept []string
	for _, word := range []string{"enforcement", "sharing", "compute:", "memory:", ".allowMultipleAllocations"} {
		for line := range strings.SplitSeq(render(device), "\n") {
			if strings.HasPrefix(line, word) {
				kept = append(kept, line)
			}
		}
	}
	return strings.Join(kept, "\n")
}

func TestHowSharesArePublished(t *testing.T) {
	unheld := sharing()
	unheld.Shares.MPS = false
	generous := sharing()
	generous.Shares.ComputeOvercommit = 2.504
	uneven := sharing()
	uneven.Shares.ComputeOvercommit = 1.15
	exact := sharing()
	exact.Shares.ComputeOvercommit = 1
	coarse := sharing()
	coarse.Shares.Smallest = 2<<30 - 1
	coarsePlain := unheld
	coarsePlain.Shares.Smallest = 512<<20 - 1
	huge := sharing()
	huge.Shares.Smallest = 1 << 40
	whole := sharing()
	whole.Offer = ""
	const plain = "enforcement=\"none\"\nsharing=\"none\"\n"
	const held = "enforcement=\"cooperative\"\nsharing=\"mps\"\n"
	const all = "compute:100(from 0, else 0)\nmemory:81559Mi(from 1Mi in steps of 1Mi, else 81559Mi)\n.allowMultipleAllocations=true"
	const alone = "compute:100\nmemory:81559Mi"
	fair := strings.Replace(all, "from 1Mi", "from 1699Mi", 1) // a 48th
	kept := func(g *gpu.GPU) { g.ReservedBytes = 551<<20 + 1 }
	server := sharing()
	server.Shares.ServerMemory = 64 << 20
	plainServer := unheld
	plainServer.Shares.ServerMemory = 64 << 20
	wholeServer := server
	wholeServer.Offer = ""
	numbers := func(text, memory, least string) string {
		return strings.NewReplacer("81559Mi", memory, "from 1Mi", "from "+least).Replace(text)
	}
	for name, tc := range map[string]struct {
		catalog catalog.Inputs
		change  func(*gpu.GPU)
		want    string
	}{
		"held by MPS":                             {catalog: sharing(), want: held + fair},
		"no MPS on the node":                      {catalog: unheld, want: plain + all},
		"a GPU before Volta":                      {sharing(), func(g *gpu.GPU) { g.ComputeCapability = gpu.Version{Major: 6, Minor: 1} }, plain + all},
		"shares are not offered":                  {catalog: whole, want: plain + alone},
		"an exclusive mode and MPS":               {sharing(), func(g *gpu.GPU) { g.ComputeMode = gpu.ComputeModeExclusiveProcess }, held + fair},
		"an exclusive mode and no MPS":            {unheld, func(g *gpu.GPU) { g.ComputeMode = gpu.ComputeModeExclusiveProcess }, plain + alone},
		"compute promised twice and a half":       {catalog: generous, want: held + strings.Replace(fair, "100(from 0, else 0)", `250{"default":"0","validRange":{"min":"0","max":"100"}}`, 1)},
		"compute promised in uneven parts":        {catalog: uneven, want: held + strings.Replace(fair, "100(from 0, else 0)", `115{"default":"0","validRange":{"min":"0","max":"100"}}`, 1)},
		"compute promised once":                   {catalog: exact, want: held + fair},
		"a smallest share, in whole steps":        {catalog: coarse, want: held + strings.Replace(all, "from 1Mi", "from 2Gi", 1)},
		"a smallest share, and no MPS":            {catalog: coarsePlain, want: plain + strings.Replace(all, "from 1Mi", "from 512Mi", 1)},
		"memory that the driver keeps":            {unheld, kept, plain + numbers(all, "81007Mi", "1Mi")},
		"memory that an MPS server takes too":     {server, kept, held + numbers(all, "80943Mi", "1686Mi")},
		"a server where MPS holds nothing":        {plainServer, kept, plain + numbers(all, "81007Mi", "1Mi")},
		"no shares: all of NVML's total":          {wholeServer, kept, plain + alone},
		"more memory kept than there is":          {server, func(g *gpu.GPU) { g.ReservedBytes = 1 << 60 }, plain + "compute:100\nmemory:0"},
		"no memory of its own, as of a GB10":      {server, func(g *gpu.GPU) { g.MemoryBytes = 0 }, plain + "compute:100\nmemory:0"},
		"a smallest share larger than the GPU is": {catalog: huge, want: held + strings.Replace(all, "from 1Mi", "from 81559Mi", 1)},
	} {
		t.Run(name, func(t *testing.T) {
			node := h100(t, 1)
			if tc.change != nil {
				tc.change(&node.GPUs[0])
			}
			require.Same(t, "device", tc.want, lines(devices(t, detailed(tc.catalog), node, nil)[0]))
		})
	}
}

// A selector that was written for NVIDIA's driver compares with NVML's total. It must never
// become an amount that claims can take.
func TestTheMemoryOfAGPUIsNVMLsTotalUnlessClaimsTakeAmountsOfIt(t *testing.T) {
	node := h100(t, 1)
	g := &node.GPUs[0]
	g.MemoryBytes, g.ReservedBytes = 40<<30, 658<<20
	c := sharing()
	c.Shares.ServerMemory = 64 << 20
	offering := func(o catalog.Offer) catalog.Inputs { c.Offer = o; return c }
	shares := catalog.Held{kindtest.Name("gpu-1b-00"): true}
	for name, tc := range map[string]struct {
		catalog catalog.Inputs
		held    catalog.Held
		want    map[string]string
	}{
		"whole GPUs":                           {offering(""), nil, map[string]string{"gpu-1b-00": "40Gi"}},
		"whole GPUs, one of which is held":     {offering(""), catalog.Held{kindtest.Name("gpu-1b-00"): false}, map[string]string{"gpu-1b-00": "40Gi"}},
		"whole GPUs, one of which has shares":  {offering(""), shares, map[string]string{"gpu-1b-00": "40238Mi"}},
		"shares":                               {offering("share"), nil, map[string]string{"gpu-1b-00": "40238Mi"}},
		"shares, of a GPU that is held whole":  {offering("share"), catalog.Held{kindtest.Name("gpu-1b-00"): false}, map[string]string{"gpu-1b-00": "40238Mi"}},
		"time slices, whose memory is counted": {offering("timeslice"), nil, map[string]string{"gpu-1b-00": "40Gi", "gpu-1b-00-ts": "40238Mi"}},
		"seats":                                {offering("seat"), nil, map[string]string{"gpu-1b-00": "40Gi", "gpu-1b-00-seat": "10059Mi"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := map[string]string{}
			var all []resourceapi.Device
			for _, slice := range catalog.New(tc.catalog).Resources(node, tc.held).Pools["node-1"].Slices {
				all = append(all, slice.Devices...)
			}
			for _, d := range all {
				memory := d.Capacity[v1alpha1.CapacityMemory].Value
				got[d.Name] = memory.String()
				if shared := d.AllowMultipleAllocations != nil; shared && memory.Value() > int64(g.MemoryBytes-g.ReservedBytes) {
					t.Errorf("%s: claims can take %s of %d bytes", d.Name, &memory, g.MemoryBytes-g.ReservedBytes)
				}
			}
			require.Same(t, "memory", tc.want, got)
		})
	}
}

func TestMIGDevicesAreSharedWhereSharesAreOffered(t *testing.T) {
	node := first(t, 1, "dgx-h100")
	alone := listed(t, "3g.40gb")
	alone.Offer = "mig"
	exclusive := listed(t, "3g.40gb")
	exclusive.Exclusive = true
	for name, tc := range map[string]struct {
		catalog catalog.Inputs
		held    catalog.Held
		want    []bool // by device
	}{
		"offered":                          {listed(t, "3g.40gb"), nil, []bool{true, true}},
		"not offered":                      {alone, nil, []bool{false, false}},
		"not offered and held as a share":  {alone, catalog.Held{kindtest.Name("gpu-1b-00-mig-3g-40gb-4"): true}, []bool{false, true}},
		"not offered and held exclusively": {alone, catalog.Held{kindtest.Name("gpu-1b-00-mig-3g-40gb-4"): false}, []bool{false, false}},
		"no consumable capacity":           {exclusive, nil, []bool{false, false}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []bool
			for _, device := range catalog.New(tc.catalog).Resources(node, tc.held).Pools["node-1"].Slices[0].Devices[1:] {
				got = append(got, device.AllowMultipleAllocations != nil)
				if memory := device.Capacity[v1alpha1.CapacityMemory]; memory.RequestPolicy != nil || len(device.Capacity) != 1 {
					t.Errorf("%s has capacities %v, want memory without a policy", device.Name, device.Capacity)
				}
			}
			require.Same(t, "shareable", tc.want, got)
		})
	}
}

// A GPU in exclusive mode stays shareable while claims hold plain shares of it. The
// shares may also be of a MIG device on it. An administrator sets the mode. New plain
// shares cannot be prepared on it and must get another device; MPS shares can.
func TestAnExclusiveModeKeepsFurtherPlainSharesAway(t *testing.T) {
	plain, plainParts := sharing(), listed(t, "3g.40gb")
	plain.Shares.MPS, plainParts.Shares.MPS = false, false
	for name, tc := range map[string]struct {
		catalog catalog.Inputs
		words   string
		want    bool // that the second share is of the same device as the first
	}{
		"plain shares of a GPU":        {plain, "memory=10Gi", false},
		"MPS shares of a GPU":          {sharing(), "memory=10Gi", true},
		"plain shares of a MIG device": {plainParts, "class=mig memory=10Gi", false},
		"MPS shares of a MIG device":   {listed(t, "3g.40gb"), "class=mig memory=10Gi", true},
	} {
		t.Run(name, func(t *testing.T) {
			hardware := first(t, 2, "dgx-h100")
			node := schedulable(t, tc.catalog, hardware, nil)
			allocate := func(name string) kind.Name {
				t.Helper()
				results, err := node.Allocate(t.Context(), name, claim(tc.words))
				must(t, err)
				device, err := kind.Parse(results[0].Device)
				must(t, err)
				return device
			}
			one := allocate("one")
			i := slices.IndexFunc(hardware.GPUs, func(g gpu.GPU) bool { return g.Address == one.Address })
			hardware.GPUs[i].ComputeMode = gpu.ComputeModeExclusiveProcess
			node.Publish(catalog.New(tc.catalog).Resources(hardware, catalog.Held{one: true}))
			if two := allocate("two"); (two == one) != tc.want {
				t.Errorf("the second share is of %s, the first of %s", two, one)
			}
			for _, device := range devices(t, tc.catalog, hardware, nil) {
				if len(device.Taints) > 0 {
					t.Errorf("%s has the taints %v when nothing is held", device.Name, device.Taints)
				}
			}
		})
	}
}
