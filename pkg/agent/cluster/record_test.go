// SPDX-License-Identifier: Apache-2.0

package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/cluster"
	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/state"
	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog"
	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog/migconfig"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

// disk is the records of a node.
type disk struct {
	mu      sync.Mutex
	records map[string][]byte
	full    error
	writes  int
}

func newDisk() *disk { return &disk{records: map[string][]byte{}} }

func (d *disk) Read(key string) ([]byte, error) {
	if payload, found := d.records[key]; found {
		return payload, nil
	}
	return nil, fs.ErrNotExist
}

func (d *disk) Write(key string, payload []byte) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.full != nil {
		return d.full
	}
	d.records[key] = payload
	d.writes++
	return nil
}

// pair returns a node of two GPUs, each of which can have two MIG devices 3g.40gb.
func pair() gpu.Node {
	var n gpu.Node
	for i := range 2 {
		n.GPUs = append(n.GPUs, gpu.GPU{
			Address: gpu.PCIAddress{Bus: uint8(i + 1)}, Index: i, MemoryBytes: 80 << 30, ComputeCapability: gpu.Version{Major: 9},
			MIG: gpu.MIG{Capable: true, Profiles: []gpu.ProfileInfo{{
				Profile: gpu.Profile{Slices: 3, MemoryGB: 40}, ComputeSlices: 3, MemoryBytes: 40 << 30, MaxInstances: 2,
				Placements: []gpu.Placement{{Start: 0, Size: 4}, {Start: 4, Size: 4}},
			}}},
		})
	}
	return n
}

var (
	half    = kind.Partition(gpu.PCIAddress{Bus: 1}, gpu.Profile{Slices: 3, MemoryGB: 40}, 0)
	seventh = kind.Partition(gpu.PCIAddress{Bus: 1}, gpu.Profile{Slices: 1, MemoryGB: 10}, 0)
)

// layoutFile is a file of layouts.
func layoutFile(t *testing.T, entries string) migconfig.File {
	t.Helper()
	file, err := migconfig.Parse([]byte("version: v1\nmig-configs:\n" + entries))
	must(t, err)
	return file
}

const (
	halves     = "  halves: [{devices: all, mig-enabled: true, mig-devices: {3g.40gb: 2}}]\n"
	misspelled = "  halves: [{devices: all, mig-enabeld: true, mig-devices: {3g.40gb: 2}}]\n"
	tooMany    = "  halves: [{devices: all, mig-enabled: true, mig-devices: {3g.40gb: 3}}]\n"
	another    = "  quarters: [{devices: all, mig-enabled: true, mig-devices: {1g.10gb: zero}}]\n"
)

// start returns the configuration of an agent that starts, with the standard offer share.
func start(d *disk) nodeConfig {
	return newNodeConfig(cluster.NodeConfigOptions{
		Standard: catalog.NodeConfig{Offer: "share"}, Named: true, Layouts: true, LayoutLabel: true, Records: d,
	})
}

// offered returns the devices that a node with the configuration publishes.
func offered(t *testing.T, c nodeConfig, node gpu.Node) string {
	t.Helper()
	must(t, c.follow(node))
	followed := c.state.Configuration.Get()
	devices := catalog.New(catalog.Inputs{
		Settings: catalog.Settings{Pool: "node-1"}, NodeConfig: followed.Followed.Config, Partitions: followed.Followed.Layout,
	})
	var names []string
	for _, slice := range devices.Resources(node, nil).Pools["node-1"].Slices {
		for _, device := range slice.Devices {
			names = append(names, strings.TrimPrefix(device.Name, "gpu-"))
		}
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

const inHalves = "01-00-mig-3g-40gb-0 01-00-mig-3g-40gb-4 02-00-mig-3g-40gb-0 02-00-mig-3g-40gb-4"

// isolated is a configuration that a label names.
const isolated = "isolated: {offer: [mig], mig: {layout: halves, keep: true}}\n"

// An agent that starts after a mistake in a file offers the same as before.
func TestANodeIsWhatItWasWhenTheAgentStarts(t *testing.T) {
	missing := errors.New("no such file")
	for name, tc := range map[string]struct {
		labels  []string
		set     func(c nodeConfig)
		problem string // the node's inputs are valid if it is empty
	}{
		"no mistake": {
			labels: []string{"config=isolated"},
			set: func(c nodeConfig) {
				c.SetNamed(parsed(t, isolated), nil)
				c.SetLayouts(layoutFile(t, halves), nil)
			},
		},
		"a wrong word in another configuration and another layout": {
			labels: []string{"config=isolated"},
			set: func(c nodeConfig) {
				c.SetNamed(parsed(t, isolated+"other: {ofer: []}\n"), nil)
				c.SetLayouts(layoutFile(t, halves+another), nil)
			},
			problem: `unknown field "ofer"`,
		},
		"a wrong word in its configuration": {
			labels: []string{"config=isolated"},
			set: func(c nodeConfig) {
				c.SetNamed(parsed(t, strings.Replace(isolated, "offer", "ofer", 1)), nil)
				c.SetLayouts(layoutFile(t, halves), nil)
			},
			problem: `gpu.nvidia.com/config=isolated is not followed: configuration "isolated": invalid: unknown field "ofer"; the node still offers "mig" with the layout "halves"`,
		},
		"a wrong word in its layout": {
			labels: []string{"config=isolated"},
			set: func(c nodeConfig) {
				c.SetNamed(parsed(t, isolated), nil)
				c.SetLayouts(layoutFile(t, misspelled), nil)
			},
			problem: `MIG configuration "halves", entry 1: invalid: unknown field "mig-enabeld"; the node still offers`,
		},
		"a layout for which its GPUs have no place": {
			labels: []string{"config=isolated"},
			set: func(c nodeConfig) {
				c.SetNamed(parsed(t, isolated), nil)
				c.SetLayouts(layoutFile(t, tooMany), nil)
			},
			problem: "3 MIG devices 3g.40gb do not fit; 2 do; the node still offers",
		},
		"files that cannot be read": {
			labels: []string{"config=isolated"},
			set: func(c nodeConfig) {
				c.SetNamed(catalog.NodeConfigs{}, missing)
				c.SetLayouts(migconfig.File{}, missing)
			},
			problem: "no such file",
		},
		"a configuration that was renamed": {
			labels: []string{"config=isolated"},
			set: func(c nodeConfig) {
				c.SetNamed(parsed(t, strings.Replace(isolated, "isolated", "alone", 1)), nil)
				c.SetLayouts(layoutFile(t, halves), nil)
			},
			problem: "there is no such configuration; known are: alone",
		},
		"a label with a typing error": {
			labels: []string{"config=isolatd"},
			set: func(c nodeConfig) {
				c.SetNamed(parsed(t, isolated), nil)
				c.SetLayouts(layoutFile(t, halves), nil)
			},
			problem: "gpu.nvidia.com/config=isolatd is not followed",
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDisk()
			before := start(d)
			before.SetNode(labels("config=isolated"), nil)
			before.SetNamed(parsed(t, isolated), nil)
			before.SetLayouts(layoutFile(t, halves), nil)
			if got := offered(t, before, pair()); got != inHalves {
				t.Fatalf("offers %s", got)
			}
			if d.writes != 1 {
				t.Fatalf("%d writes, want one before it is published", d.writes)
			}
			_ = offered(t, before, pair())

			after := start(d)
			if !after.Keeps(half) || after.Keeps(seventh) {
				t.Error("an agent that starts does not know what it keeps")
			}
			tc.set(after)
			after.SetNode(labels(tc.labels...), nil)
			if got := offered(t, after, pair()); got != inHalves {
				t.Errorf("offers %s, want %s", got, inHalves)
			}
			if !after.Keeps(half) || after.Keeps(seventh) {
				t.Error("it does not know what it keeps")
			}
			now, err := after.Now()
			if now.Offer.String() != "mig" || !now.MIG.Keep {
				t.Errorf("follows %+v", now)
			}
			if tc.problem == "" && err != nil || tc.problem != "" && (err == nil || !strings.Contains(err.Error(), tc.problem)) {
				t.Errorf("problem %v, want %q", err, tc.problem)
			}
			if d.writes != 1 {
				t.Errorf("%d writes of an unchanged record", d.writes)
			}
		})
	}
}

// The inputs of a node are valid or not by themselves.
func TestAMistakeThatTheNodeDoesNotUse(t *testing.T) {
	c := start(newDisk())
	c.SetNode(labels(), nil)
	c.SetNamed(parsed(t, "other: {ofer: []}"), nil)
	c.SetLayouts(layoutFile(t, another), nil)
	if got := offered(t, c, pair()); got != "01-00 02-00" {
		t.Errorf("offers %s", got)
	}
	_, err := c.Now()
	for _, want := range []string{`configuration "other": invalid: unknown field "ofer"`, `MIG configuration "quarters", entry 1: invalid`, "; this node does not use it"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// A layout matters only to nodes that offer MIG.
func TestALayoutOfANodeThatOffersNoMIG(t *testing.T) {
	c := start(newDisk())
	c.SetNode(labels("config=whole"), nil)
	c.SetNamed(parsed(t, "whole: {offer: [], mig: {layout: halves}}"), nil)
	c.SetLayouts(layoutFile(t, misspelled), nil)
	if got := offered(t, c, pair()); got != "01-00 02-00" {
		t.Errorf("offers %s", got)
	}
}

// Without a record, a node whose inputs cannot be followed is never the standard.
func TestANodeWithoutARecordOffersNothingNew(t *testing.T) {
	damaged := newDisk()
	damaged.records["followed"] = []byte("{")
	newer := newDisk()
	newer.records["followed"] = []byte(`{"version":2}`)
	for name, d := range map[string]*disk{"no record": newDisk(), "a damaged one": damaged, "one of a newer release": newer} {
		t.Run(name, func(t *testing.T) {
			c := start(d)
			if !c.Keeps(half) || !c.Keeps(seventh) {
				t.Error("a MIG device is destroyed before the inputs are known")
			}
			c.SetNode(labels("config=isolated"), nil)
			c.SetNamed(parsed(t, strings.Replace(isolated, "offer", "ofer", 1)), nil)
			c.SetLayouts(layoutFile(t, halves), nil)
			if got := offered(t, c, pair()); got != "" {
				t.Errorf("offers %s", got)
			}
			if !c.Keeps(half) || !c.Keeps(seventh) {
				t.Error("a MIG device is destroyed although the layout is not known")
			}
			if _, err := c.Now(); err == nil || !strings.HasSuffix(err.Error(), "; meanwhile the node offers only devices that claims hold") {
				t.Errorf("problem %v", err)
			}
			if d.writes > 0 {
				t.Error("a record of nothing")
			}
			c.SetNamed(parsed(t, isolated), nil)
			if got := offered(t, c, pair()); got != inHalves {
				t.Errorf("offers %s after the repair", got)
			}
			if _, err := c.Now(); err != nil || d.writes != 1 {
				t.Errorf("problem %v, %d writes after the repair", err, d.writes)
			}
		})
	}
}

// A label that is removed means the standard, and the record is then of the standard.
func TestANodeWithoutALabelIsTheStandard(t *testing.T) {
	d := newDisk()
	c := start(d)
	c.SetNode(labels("config=isolated"), nil)
	c.SetNamed(parsed(t, isolated), nil)
	c.SetLayouts(layoutFile(t, halves), nil)
	_ = offered(t, c, pair())
	c = start(d)
	c.SetNode(labels(), nil)
	c.SetNamed(catalog.NodeConfigs{}, errors.New("no such file"))
	c.SetLayouts(migconfig.File{}, errors.New("no such file"))
	if got := offered(t, c, pair()); got != "01-00 02-00" {
		t.Errorf("offers %s", got)
	}
	if now, _ := start(d).Now(); now.Offer.String() != "share" {
		t.Errorf("the record offers %q", now.Offer)
	}
}

// A configuration is published after its record was written.
func TestARecordThatCannotBeWritten(t *testing.T) {
	d := newDisk()
	c := start(d)
	c.SetNode(labels("config=isolated"), nil)
	c.SetNamed(parsed(t, isolated), nil)
	c.SetLayouts(layoutFile(t, halves), nil)
	_ = offered(t, c, pair())
	d.full = errors.New("no space left on device")
	c.SetNode(labels(), nil)
	err := c.follow(pair())
	followed := c.state.Configuration.Get()
	if !errors.Is(err, d.full) || followed.Followed.Config.Offer.String() != "mig" || followed.Followed.Layout == nil {
		t.Errorf("follows %+v, %v", followed, err)
	}
	if _, err := c.Now(); err == nil || !strings.Contains(err.Error(), "no space left on device; the node still offers") {
		t.Errorf("problem %v", err)
	}
	d.full = nil
	if got := offered(t, c, pair()); got != "01-00 02-00" {
		t.Errorf("offers %s with space", got)
	}
}

// A node whose driver is not loaded has no GPUs, and its layout stays in the record.
func TestANodeWithoutItsDriverKeepsTheLayoutInTheRecord(t *testing.T) {
	d := newDisk()
	for i, node := range []gpu.Node{pair(), {}} {
		c := start(d)
		c.SetNode(labels("config=isolated"), nil)
		c.SetNamed(parsed(t, isolated), nil)
		c.SetLayouts(layoutFile(t, halves), nil)
		_ = offered(t, c, node)
		if !c.Keeps(half) {
			t.Errorf("start %d: a kept MIG device is destroyed", i)
		}
	}
	if d.writes != 1 {
		t.Errorf("%d writes", d.writes)
	}
}

// Labels that cannot be read are not labels that are missing.
func TestLabelsThatWereNeverRead(t *testing.T) {
	forbidden := fmt.Errorf("forbidden")
	c := start(newDisk())
	c.SetNamed(parsed(t, isolated), nil)
	c.SetLayouts(layoutFile(t, halves), nil)
	c.SetNode(cluster.Node{}, forbidden)
	if got := offered(t, c, pair()); got != "" {
		t.Errorf("offers %s", got)
	}
	if _, err := c.Now(); err == nil || strings.Count(err.Error(), "forbidden") != 1 {
		t.Errorf("problem %v, want forbidden once", err)
	}
}

// claims counts the reads of held devices.
type claims struct{ reads atomic.Int32 }

func (c *claims) Read(context.Context) state.Claimed {
	c.reads.Add(1)
	return state.Claimed{}
}

func TestAChangeIsFollowedOnceItIsRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, held := newDisk(), &claims{}
		d.full = errors.New("no space left on device")
		c := start(d)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { c.Run(ctx, c.state, held) })
		defer running.Wait()
		defer cancel()
		pass := func(want string, ready bool) {
			t.Helper()
			<-time.After(time.Minute)
			synctest.Wait()
			now := c.state.Configuration.Get()
			if got := now.Followed.Config.Offer.String(); got != want || now.Known != ready {
				t.Errorf("offers %q, known: %t; want %q, %t; %v", got, now.Known, want, ready, now.Problem)
			}
		}
		c.SetNode(labels(), nil)
		c.SetNamed(parsed(t, isolated), nil)
		c.SetLayouts(layoutFile(t, halves), nil)
		pass("", false)
		c.state.Hardware.Set(state.HardwareOf(pair()))
		pass("", true)
		d.mu.Lock()
		d.full = nil
		d.mu.Unlock()
		pass("share", true)
		reads := held.reads.Load()
		c.SetNode(labels("config=isolated"), nil)
		pass("mig", true)
		if held.reads.Load() == reads {
			t.Error("a configuration is followed before the held devices are read")
		}
		reads = held.reads.Load()
		c.state.Claimed.Set(state.Claimed{Changes: state.Changes{MIGModes: map[gpu.PCIAddress]bool{{}: true}}})
		pass("mig", true)
		if n := held.reads.Load() - reads; n > 0 {
			t.Errorf("%d reads of the held devices after a change of theirs, which no configuration depends on", n)
		}
	})
}
