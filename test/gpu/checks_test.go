// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/google/go-cmp/cmp"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
	"github.com/gpu-dra/gpu-dra-driver/pkg/node/sysfs"
)

// checks are what must hold on every machine, in the order in which they are
// worth reading.
var checks = []struct {
	name  string
	check func(*testing.T, *machine)
}{
	{"every GPU can be read", checkReadable},
	{"identities are well formed and unique", checkIdentity},
	{"a second look sees the same", checkStable},
	{"each GPU is found by its UUID and by its PCI address", checkHandles},
	{"the kernel agrees about each GPU", checkKernel},
	{"each GPU has its device node", checkDeviceNodes},
	{"the boot has an ID", checkBootID},
	{"MIG tables make sense", checkMIGTables},
	{"MIG partitions make sense", checkPartitions},
	{"NVLinks have two ends", checkLinks},
	{"processes can be listed", checkProcesses},
	{"events can be watched", checkEvents},
	{"MPS holds clients to their limits", checkMPS},
	{"MPS holds namespaces to their limits", checkNamespaces},
	{"the driver holds a cgroup to its memory limit", checkMemoryLimits},
	{"the simulator can stand in for it", checkCapture},
}

func checkReadable(t *testing.T, m *machine) {
	if len(m.node.GPUs) == 0 {
		t.Error("the driver answers and shows no GPU")
	}
	for _, u := range m.node.Unreadable {
		t.Errorf("GPU %d cannot be read: %v", u.Index, u.Err)
	}
	if !regexp.MustCompile(`^[0-9]+(\.[0-9]+){1,2}$`).MatchString(m.node.DriverVersion) {
		t.Errorf("driver version %q", m.node.DriverVersion)
	}
	if m.node.CUDADriverVersion.IsZero() {
		t.Error("no CUDA driver version")
	}
}

var uuidForm = regexp.MustCompile(`^(GPU|MIG)-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

func checkIdentity(t *testing.T, m *machine) {
	seen := map[string]gpu.PCIAddress{}
	once := func(g gpu.GPU, what string, value any) {
		key := fmt.Sprintf("%s %v", what, value)
		if other, ok := seen[key]; ok {
			t.Errorf("%s and %s share %s", other, g.Address, key)
		}
		seen[key] = g.Address
	}
	for _, g := range m.node.GPUs {
		once(g, "PCI address", g.Address)
		once(g, "UUID", g.UUID)
		once(g, "minor", g.Minor)
		once(g, "index", g.Index)
		if !uuidForm.MatchString(g.UUID) || !strings.HasPrefix(g.UUID, "GPU-") {
			t.Errorf("%s: UUID %q", g.Address, g.UUID)
		}
		if parsed, err := kind.Parse(g.Address.DeviceName()); err != nil || parsed.Address != g.Address {
			t.Errorf("%s: device name %q reads as %v, %v", g.Address, g.Address.DeviceName(), parsed, err)
		}
		for fact, told := range map[string]bool{
			"product name":       g.ProductName != "",
			"brand":              g.Brand != "",
			"architecture":       g.Architecture != "",
			"compute capability": !g.ComputeCapability.IsZero(),
			"multiprocessors":    g.Multiprocessors > 0,
			"memory":             g.MemoryBytes >= 1<<30,
			"compute mode":       g.ComputeMode != "",
		} {
			if !told {
				t.Errorf("%s: no %s", g.Address, fact)
			}
		}
	}
	if !slices.IsSortedFunc(m.node.GPUs, func(a, b gpu.GPU) int { return a.Address.Compare(b.Address) }) {
		t.Error("GPUs are not in the order of their PCI addresses")
	}
}

func checkStable(t *testing.T, m *machine) {
	again, err := m.snapshot(t.Context())
	must(t, err)
	if diff := cmp.Diff(m.node, again, errorsAsText); diff != "" {
		t.Errorf("two snapshots of an idle machine differ (-first +second):\n%s", diff)
	}
}

var errorsAsText = cmp.Transformer("text", func(err error) string { return fmt.Sprint(err) })

func checkHandles(t *testing.T, m *machine) {
	for _, g := range m.node.GPUs {
		byUUID, ret := m.lib.DeviceGetHandleByUUID(g.UUID)
		if ret != gonvml.SUCCESS {
			t.Errorf("%s: by UUID: %v", g.Address, ret)
			continue
		}
		if index, ret := byUUID.GetIndex(); ret != gonvml.SUCCESS || index != g.Index {
			t.Errorf("%s: its UUID leads to index %d (%v), want %d", g.Address, index, ret, g.Index)
		}
		byAddress, ret := m.lib.DeviceGetHandleByPciBusId(g.Address.String())
		if ret != gonvml.SUCCESS {
			t.Errorf("%s: by PCI address: %v", g.Address, ret)
			continue
		}
		if uuid, ret := byAddress.GetUUID(); ret != gonvml.SUCCESS || uuid != g.UUID {
			t.Errorf("%s: its PCI address leads to %s (%v), want %s", g.Address, uuid, ret, g.UUID)
		}
	}
}

func checkKernel(t *testing.T, m *machine) {
	if m.locateErr != nil {
		t.Errorf("%v", m.locateErr)
	}
	for _, g := range m.node.GPUs {
		device, ret := m.lib.DeviceGetHandleByUUID(g.UUID)
		if ret != gonvml.SUCCESS {
			t.Errorf("%s: %v", g.Address, ret)
			continue
		}
		pci, ret := device.GetPciInfo()
		if ret != gonvml.SUCCESS {
			t.Errorf("%s: %v", g.Address, ret)
			continue
		}
		for file, want := range map[string]uint32{"vendor": pci.PciDeviceId & 0xffff, "device": pci.PciDeviceId >> 16} {
			got, err := os.ReadFile(filepath.Join(m.root, "sys", "bus", "pci", "devices", g.Address.String(), file))
			if err != nil {
				t.Errorf("%s: %v", g.Address, err)
			} else if want := fmt.Sprintf("0x%04x", want); strings.TrimSpace(string(got)) != want {
				t.Errorf("%s: the kernel says %s %s, NVML %s", g.Address, file, strings.TrimSpace(string(got)), want)
			}
		}
		if g.PCIeRoot != "" && !regexp.MustCompile(`^pci[0-9a-f]{4}:[0-9a-f]{2}$`).MatchString(g.PCIeRoot) {
			t.Errorf("%s: PCIe root %q", g.Address, g.PCIeRoot)
		}
		if g.NUMANode != nil {
			if _, err := os.Stat(filepath.Join(m.root, "sys", "devices", "system", "node", fmt.Sprintf("node%d", *g.NUMANode))); err != nil {
				t.Errorf("%s: %v", g.Address, err)
			}
		}
	}
}

func checkDeviceNodes(t *testing.T, m *machine) {
	if err := m.missingNodes(); err != nil {
		t.Error(err)
	}
}

// missingNodes says which GPUs have no device node below the device root.
func (m *machine) missingNodes() error {
	var missing []error
	for _, g := range m.node.GPUs {
		_, err := os.Stat(filepath.Join(m.devRoot, "dev", fmt.Sprintf("nvidia%d", g.Minor)))
		missing = append(missing, err)
	}
	return errors.Join(missing...)
}

func checkBootID(t *testing.T, m *machine) {
	if id, err := sysfs.Root(m.root).BootID(); err != nil || len(id) != 36 {
		t.Errorf("boot ID %q, error %v", id, err)
	}
}

// No GPU has more memory slices than an RTX PRO 6000. The others have eight at most.
const maxMemorySlices = 12

func checkMIGTables(t *testing.T, m *machine) {
	checked := 0
	for _, g := range m.node.GPUs {
		t.Run(g.Address.String(), func(t *testing.T) {
			problems, unchecked := migTables(g)
			if unchecked != "" {
				t.Skip("NOT CHECKED: " + unchecked)
			}
			checked++
			for _, p := range problems {
				t.Errorf("%s: %s", g.Address, p)
			}
		})
	}
	if checked == 0 {
		t.Skip("NOT CHECKED: no GPU has a MIG table")
	}
}

// migTables returns the problems in the MIG table of a GPU. If there is no table, it
// returns the reason.
func migTables(g gpu.GPU) (problems []string, unchecked string) {
	wrong := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	switch {
	case !g.MIG.Capable && (g.MIG.Enabled || g.MIG.PendingEnabled || len(g.MIG.Profiles) > 0):
		return []string{"is not MIG capable and has MIG facts"}, ""
	case !g.MIG.Capable:
		return nil, "this GPU cannot be partitioned"
	case len(g.MIG.Profiles) == 0 && g.MIG.Enabled:
		return []string{"is in MIG mode and reports no profiles"}, ""
	case len(g.MIG.Profiles) == 0:
		return nil, "this GPU reports no profiles while MIG is off"
	}
	seen := map[gpu.Profile]bool{}
	for _, p := range g.MIG.Profiles {
		at := "profile " + p.Profile.String()
		if seen[p.Profile] {
			wrong("%s is there twice", at)
		}
		seen[p.Profile] = true
		if parsed, err := gpu.ParseProfile(p.Profile.String()); err != nil || parsed != p.Profile {
			wrong("%s reads as %v, %v", at, parsed, err)
		}
		if p.MemoryBytes == 0 || p.MemoryBytes > g.MemoryBytes {
			wrong("%s: %d bytes of a GPU with %d", at, p.MemoryBytes, g.MemoryBytes)
		}
		if p.Multiprocessors <= 0 || p.Multiprocessors > g.Multiprocessors {
			wrong("%s: %d SMs of a GPU with %d", at, p.Multiprocessors, g.Multiprocessors)
		}
		if p.MaxInstances < 1 || p.MaxInstances > maxMemorySlices {
			wrong("%s: at most %d instances", at, p.MaxInstances)
		}
		if len(p.Placements) == 0 {
			wrong("%s: no placements; reading them takes root", at)
		}
		for _, place := range p.Placements {
			if place.Size < 1 || place.Start < 0 || place.Start+place.Size > maxMemorySlices {
				wrong("%s at %d size %d is not within %d memory slices", at, place.Start, place.Size, maxMemorySlices)
			}
		}
	}
	return problems, ""
}

func checkPartitions(t *testing.T, m *machine) {
	for _, g := range m.node.GPUs {
		if !g.MIG.Enabled && len(g.MIG.Partitions) > 0 {
			t.Errorf("%s: partitions while MIG is off", g.Address)
		}
		holder := map[int]int{} // GPU instance by memory slice
		for _, p := range g.MIG.Partitions {
			if p.UUID != "" && (!uuidForm.MatchString(p.UUID) || !strings.HasPrefix(p.UUID, "MIG-")) {
				t.Errorf("%s: MIG device %q", g.Address, p.UUID)
			}
			i := slices.IndexFunc(g.MIG.Profiles, func(info gpu.ProfileInfo) bool { return info.Profile == p.Profile })
			if i < 0 || !slices.Contains(g.MIG.Profiles[i].Placements, p.Placement) {
				t.Errorf("%s: a partition %s at %v that the tables do not allow", g.Address, p.Profile, p.Placement)
			}
			for slice := p.Placement.Start; slice < p.Placement.Start+p.Placement.Size; slice++ {
				if other, taken := holder[slice]; taken && other != p.GPUInstanceID {
					t.Errorf("%s: instances %d and %d overlap", g.Address, other, p.GPUInstanceID)
				}
				holder[slice] = p.GPUInstanceID
			}
		}
	}
}

func checkLinks(t *testing.T, m *machine) {
	// ends counts the active links from one address to another.
	ends := map[[2]gpu.PCIAddress]int{}
	here := map[gpu.PCIAddress]bool{}
	for _, g := range m.node.GPUs {
		here[g.Address] = true
		last := -1
		for _, l := range g.Links {
			if l.Number <= last {
				t.Errorf("%s: link %d after link %d", g.Address, l.Number, last)
			}
			last = l.Number
			if l.Active && l.Remote == gpu.RemoteGPU && l.RemoteAddress == nil {
				t.Errorf("%s: link %d leads to a GPU without an address", g.Address, l.Number)
			}
			if l.Active && l.Remote == gpu.RemoteGPU && l.RemoteAddress != nil {
				ends[[2]gpu.PCIAddress{g.Address, *l.RemoteAddress}]++
			}
		}
	}
	for pair, there := range ends {
		if !here[pair[1]] {
			t.Logf("%s is linked to %s, which is not shown here", pair[0], pair[1])
			continue
		}
		if back := ends[[2]gpu.PCIAddress{pair[1], pair[0]}]; back != there {
			t.Errorf("%d links from %s to %s, %d back", there, pair[0], pair[1], back)
		}
	}
}

func checkProcesses(t *testing.T, m *machine) {
	for _, g := range m.node.GPUs {
		processes, err := m.library.Processes(t.Context(), g.Address)
		if err != nil {
			t.Error(err)
		}
		for _, p := range processes {
			t.Logf("%s: process %d holds %d MiB", g.Address, p.PID, p.MemoryBytes>>20)
			if p.PID <= 0 || p.MemoryBytes > g.MemoryBytes {
				t.Errorf("%s: process %d with %d bytes", g.Address, p.PID, p.MemoryBytes)
			}
		}
	}
}

// checkEvents registers for events and logs any that arrive. Tests with the simulator,
// which can simulate faults, check that events arrive.
func checkEvents(t *testing.T, m *machine) {
	var log bytes.Buffer
	logger := textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&log)))
	ctx, cancel := context.WithTimeout(klog.NewContext(t.Context(), logger), 100*time.Millisecond)
	defer cancel()
	if err := m.library.Watch(ctx, func(e gpu.Event) { t.Logf("event %s, XID %d, on %s", e.Kind, e.XID, e.UUID) }); err != nil {
		t.Error(err)
	}
	// Watch says here which GPUs it cannot watch.
	if log.Len() > 0 {
		t.Errorf("%s", log.String())
	}
}

// checkCapture describes the machine as a model and reads the simulator of
// that model with the same code.
func checkCapture(t *testing.T, m *machine) {
	model, err := m.capture(m.modelName(), m.node)
	must(t, err)
	if *captureFile != "" {
		must(t, writeModel(*captureFile, model))
		t.Logf("wrote the model %s to %s", model.Name, *captureFile)
	}
	simulated := simulate(t, model)
	want, got := m.node, simulated.node
	// A model omits generated names, running processes and current faults.
	for _, n := range []*gpu.Node{&want, &got} {
		n.GPUs = slices.Clone(n.GPUs)
		for i := range n.GPUs {
			n.GPUs[i].UUID = ""
			n.GPUs[i].MIG.Partitions = nil
			n.GPUs[i].Recovery = ""
			if n.GPUs[i].FabricState != gpu.FabricCompleted {
				n.GPUs[i].FabricState = ""
			}
		}
	}
	if diff := cmp.Diff(Describe(want), Describe(got)); diff != "" {
		t.Errorf("the simulator of the captured model is another machine (-real +simulated):\n%s", diff)
	}
	if errors.Is(simulated.locateErr, gpu.ErrNotFound) {
		t.Errorf("the simulator's kernel: %v", simulated.locateErr)
	}
}
