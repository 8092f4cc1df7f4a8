// SPDX-License-Identifier: Apache-2.0

package mpssim

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-dra/gpu-dra-driver/simulator/nvmlsim"
	"github.com/gpu-dra/gpu-dra-driver/simulator/simerr"
)

func TestAClientOnlyTightensItsServer(t *testing.T) {
	w := newWorld(t, "t4", "0", "1").start()
	w.command("set_default_active_thread_percentage 40", "set_default_device_pinned_mem_limit 0 8G")
	for name, tc := range map[string]struct {
		percentage, memory string
		want               Granted
	}{
		"without limits of its own": {"", "", Granted{ActiveThreadPercentage: 40, Devices: []GrantedDevice{{LimitBytes: 8 << 30}, {}}}},
		"with tighter ones":         {"25", "0=512M,1=1G", Granted{ActiveThreadPercentage: 25, Devices: []GrantedDevice{{LimitBytes: 512 << 20}, {LimitBytes: 1 << 30}}}},
		"with wider ones":           {"100", "0=12G", Granted{ActiveThreadPercentage: 40, Devices: []GrantedDevice{{LimitBytes: 8 << 30}, {}}}},
	} {
		t.Run(name, func(t *testing.T) {
			_, got := w.join(me(), tc.percentage, tc.memory)
			got.Server = 0
			for i := range got.Devices {
				got.Devices[i] = GrantedDevice{LimitBytes: got.Devices[i].LimitBytes}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestInvalidClientEnvironmentIsRefused(t *testing.T) {
	w := newWorld(t, "t4").start()
	for _, tc := range []struct{ percentage, memory string }{
		{"0", ""}, {"101", ""}, {"-5", ""}, {"NaN", ""}, {"many", ""},
		{"", "0"}, {"", "0=10"}, {"", "0=10GiB"}, {"", "0=0M"}, {"", "=10G"}, {"", "0=10G;1=3G"}, {"", "0=99999999999G"},
	} {
		if got := errorOf(w.connect(me(), tc.percentage, tc.memory).read()); got != errInvalidValue {
			t.Errorf("%q %q: got %q", tc.percentage, tc.memory, got)
		}
	}
	if got := len(w.record().Refused); got != 12 {
		t.Errorf("%d refusals in the record", got)
	}
}

func TestDefaultsAreForTheNextServerAndSettingsForTheNextClient(t *testing.T) {
	w := newWorld(t, "t4", "0").start()
	if got := w.command("get_default_active_thread_percentage", "get_default_device_pinned_mem_limit 0"); got != "100.0\nMemory limit is not set" {
		t.Errorf("at first: %q", got)
	}
	w.command("set_default_active_thread_percentage 50", "set_default_device_pinned_mem_limit 0 4G")
	first, granted := w.join(me(), "", "")
	server := granted.Server

	w.command("set_default_active_thread_percentage 20", "set_default_device_pinned_mem_limit 0 2G")
	_, second := w.join(me(), "", "")
	w.command(fmt.Sprintf("set_active_thread_percentage %d 30", server), fmt.Sprintf("set_device_pinned_mem_limit %d 0 3000M", server))
	_, third := w.join(me(), "", "")

	type limits struct {
		percentage float64
		memory     uint64
	}
	var got []limits
	for _, g := range []Granted{granted, second, third} {
		got = append(got, limits{g.ActiveThreadPercentage, g.Devices[0].LimitBytes})
	}
	want := []limits{{50, 4 << 30}, {50, 4 << 30}, {30, 3000 << 20}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(limits{})); diff != "" {
		t.Errorf("limits of three clients (-want +got):\n%s", diff)
	}
	// A client keeps its limits.
	if r := first.ask(Request{Op: opAlloc, Bytes: 4<<30 - t4.ContextBytes(20)}); r.Error != nil {
		t.Errorf("the first client is held to %v", r.Error)
	}
	// The real daemon prints whole gigabytes.
	if got := w.command(fmt.Sprintf("get_active_thread_percentage %d", server), fmt.Sprintf("get_device_pinned_mem_limit %d 0", server), "get_default_device_pinned_mem_limit 0"); got != "30.0\n2G\n2G" {
		t.Errorf("afterwards: %q", got)
	}
}

func TestTheLastLimitSetForADeviceApplies(t *testing.T) {
	w := newWorld(t, "t4", "0").start()
	devices, err := w.sim.ComputeDevices()
	must(t, err)
	uuid := devices[0].UUID
	w.command("set_default_device_pinned_mem_limit 0 1G", "set_default_device_pinned_mem_limit "+uuid+" 2G", "set_default_device_pinned_mem_limit GPU-other 3G")
	if _, got := w.join(me(), "", ""); got.Devices[0].LimitBytes != 2<<30 || got.Devices[0].UUID != uuid {
		t.Errorf("got %+v", got)
	}
	if got := w.command("get_default_device_pinned_mem_limit 0", "get_default_device_pinned_mem_limit "+uuid); got != "1G\n2G" {
		t.Errorf("got %q", got)
	}
}

// t4 is what the context of a client depends on.
var t4 = nvmlsim.ComputeDevice{ComputeCapability: nvmlsim.Version{Major: 7, Minor: 5}, Multiprocessors: 40}

func TestAllocationsAreHeldToTheLimit(t *testing.T) {
	w := newWorld(t, "t4", "0").start()
	c, _ := w.join(me(), "", "0=1G")
	most := 1<<30 - t4.ContextBytes(40)
	for _, step := range []struct {
		request Request
		used    uint64
		err     string
	}{
		{Request{Op: opAlloc, Bytes: 600 << 20}, 600 << 20, ""},
		{Request{Op: opAlloc, Bytes: 600 << 20}, 0, errOutOfMemory},
		{Request{Op: opAlloc, Bytes: most - 600<<20}, most, ""},
		{Request{Op: opAlloc, Bytes: 1}, 0, errOutOfMemory},
		{Request{Op: opAlloc, Bytes: 1<<64 - 1}, 0, errOutOfMemory},
		{Request{Op: opFree, Bytes: 1 << 29}, most - 1<<29, ""},
		{Request{Op: opAlloc, Bytes: 1 << 28}, most - 1<<28, ""},
		{Request{Op: opAlloc, Device: 1, Bytes: 1}, 0, errInvalidDevice},
	} {
		r := c.ask(step.request)
		if errorOf(r) != step.err || step.err == "" && *r.UsedBytes != step.used {
			t.Errorf("%+v: got %+v", step.request, r)
		}
	}
	client := w.record().Servers[0].Clients[0]
	if client.AskedMemoryLimit != "0=1G" || client.Devices[0].PeakBytes != most || client.Devices[0].UsedBytes != most-1<<28 || len(client.Refused) != 3 {
		t.Errorf("record %+v", client)
	}
}

func TestAllocationsAreHeldToWhatTheGPUHasLeft(t *testing.T) {
	w := newWorld(t, "t4", "0").start()
	c, granted := w.join(me(), "", "")
	other, _ := w.join(me(), "", "")
	total := granted.Devices[0].MemoryBytes
	must(t, w.sim.AddProcess(0, nvmlsim.Process{PID: 1, MemoryBytes: 1 << 30}))
	left := total - serverBytes - 2*t4.ContextBytes(40) - 1<<30
	if r := other.ask(Request{Op: opAlloc, Bytes: 2 << 30}); r.Error != nil {
		t.Fatal(r.Error)
	}
	left -= 2 << 30
	if r := c.ask(Request{Op: opAlloc, Bytes: left + 1}); errorOf(r) != errOutOfMemory {
		t.Errorf("a byte more than is left: %+v", r)
	}
	if r := c.ask(Request{Op: opAlloc, Bytes: left}); r.Error != nil {
		t.Errorf("all that is left: %v", r.Error)
	}
	if err := w.sim.AddProcess(0, nvmlsim.Process{PID: 2, MemoryBytes: 1}); !errors.Is(err, simerr.ErrNoCapacity) {
		t.Errorf("another process on a full GPU: %v", err)
	}
	if got := w.connect(me(), "", "").read(); errorOf(got) != errOutOfMemory {
		t.Errorf("another client on a full GPU: %+v", got)
	}
}
