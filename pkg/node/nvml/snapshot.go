// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// Snapshot reads the node's GPUs. It fills all of [gpu.Node] except the place of a GPU
// in the machine (package sysfs).
//
// It returns [gpu.ErrNotReady] if the driver is not installed or not loaded; each
// call starts the library again until that succeeds. It returns an empty node if the
// node has no GPU. A GPU is in [gpu.Node.Unreadable] if its identity (PCI address,
// UUID, minor, memory) or its MIG partitions cannot be read, or if it reports the UUID of
// another GPU. Other facts that cannot be read are absent.
//
// A GPU that has not answered after two seconds, or when ctx ends, is Unreadable
// with [gpu.ErrTimeout]. Its reading continues: when the GPU answers, Watch calls on
// with [gpu.EventAnswer], and the next Snapshot returns that answer. For a GPU that
// is busy with another operation of the Library, such as creating a partition,
// Snapshot returns the last answer.
//
// If the driver does not answer within two seconds for the node as a whole, Snapshot
// uses its last answer. Without one, Snapshot returns [gpu.ErrTimeout] after 20
// seconds.
func (l *Library) Snapshot(ctx context.Context) (gpu.Node, error) {
	head, err := l.readNode(ctx)
	if err != nil {
		return gpu.Node{}, err
	}
	node := gpu.Node{DriverVersion: head.driver, CUDADriverVersion: head.cuda}

	// Each GPU has its own goroutine, so that one that hangs does not delay the
	// others.
	readings := make([]reading, head.count)
	var all sync.WaitGroup
	for index := range head.count {
		all.Go(func() { readings[index] = l.readGPU(ctx, head.lib, index) })
	}
	all.Wait()
	refuseTwins(readings)

	found := map[string]int{}
	for index, r := range readings {
		if r.err == nil {
			node.GPUs = append(node.GPUs, r.gpu)
			found[r.gpu.UUID] = index
			continue
		}
		if errors.Is(r.err, gpu.ErrNotReady) {
			l.notReady()
		}
		node.Unreadable = append(node.Unreadable, gpu.Unreadable{Index: index, Address: r.address, Err: r.err})
	}
	slices.SortFunc(node.GPUs, func(a, b gpu.GPU) int { return a.Address.Compare(b.Address) })
	l.setFound(found)
	return node, nil
}

// refuseTwins makes GPUs that report one UUID unreadable. Claims, limits and events name a GPU by
// its UUID, so they would reach the wrong one.
func refuseTwins(readings []reading) {
	same := map[string][]int{}
	for index, r := range readings {
		if r.err == nil {
			same[r.gpu.UUID] = append(same[r.gpu.UUID], index)
		}
	}
	for uuid, indexes := range same {
		if len(indexes) == 1 {
			continue
		}
		for _, index := range indexes {
			r := &readings[index]
			r.address, r.err = &r.gpu.Address, fmt.Errorf("read its UUID: %w: %d GPUs report %s", gpu.ErrCorrupt, len(indexes), uuid)
		}
	}
}

// SnapshotOfAll is Snapshot for programs that scan once and do not Watch. It waits
// for slow GPUs until ctx ends.
func (l *Library) SnapshotOfAll(ctx context.Context) (gpu.Node, error) {
	for {
		node, err := l.Snapshot(ctx)
		if err != nil || ctx.Err() != nil || !slices.ContainsFunc(node.Unreadable, isSlow) {
			return node, err
		}
		select {
		case <-l.news:
		case <-ctx.Done():
			return node, nil
		}
	}
}

func isSlow(u gpu.Unreadable) bool { return errors.Is(u.Err, gpu.ErrTimeout) }

// DriverVersion returns the version of the driver, such as "570.86.15". It queries
// the driver only if no Snapshot has done so since the library was started. Errors
// are the same as from Snapshot.
func (l *Library) DriverVersion(ctx context.Context) (string, error) {
	h := l.lastHead()
	if h == nil {
		now, err := l.readNode(ctx)
		if err != nil {
			return "", err
		}
		h = &now
	}
	if h.driver == "" {
		return "", fmt.Errorf("read the driver version: %w: the driver finds no GPU", gpu.ErrNotReady)
	}
	return h.driver, nil
}

// readGPU reads the GPU at an index.
func (l *Library) readGPU(ctx context.Context, lib nvml.Interface, index int) reading {
	return l.slot(index).readGPU(ctx, fmt.Sprintf("read GPU %d", index), func(found func(gpu.PCIAddress)) (gpu.GPU, error) {
		return l.read(lib, index, found)
	})
}

// readNode reads the versions of the driver and the number of GPUs.
func (l *Library) readNode(ctx context.Context) (head, error) {
	const operation = "read the node's GPU driver"
	last := l.lastHead()
	if last == nil {
		return do(ctx, l.node, operation, l.readHead)
	}
	h, err := doWithin(ctx, l.node, answerLimit, operation, l.readHead)
	if errors.Is(err, gpu.ErrTimeout) && ctx.Err() == nil {
		// The GPUs may still answer.
		return *last, nil
	}
	return h, err
}

func (l *Library) lastHead() *head {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.head
}

// head holds the facts about the node that a snapshot reads first.
type head struct {
	lib    nvml.Interface
	driver string
	cuda   gpu.Version
	count  int
}

func (l *Library) readHead() (head, error) {
	lib, err := l.start()
	if errors.Is(err, gpu.ErrNotFound) {
		// Some releases fail to start without a GPU.
		return head{}, nil
	}
	if err != nil {
		return head{}, err
	}
	h, err := readDriver(lib)
	switch {
	case errors.Is(err, gpu.ErrNotReady):
		l.notReady()
	case err == nil && h.count == 0:
		// The library counts the GPUs only when it starts.
		err = l.stop()
	case err == nil:
		l.remember(h)
	}
	return h, err
}

func (l *Library) remember(h head) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ready {
		l.head = &h
	}
}

func readDriver(lib nvml.Interface) (head, error) {
	h := head{lib: lib}
	var ret nvml.Return
	h.driver, ret = lib.SystemGetDriverVersion()
	if err := check("read the driver version", ret); err != nil {
		return head{}, err
	}
	cuda, ret := lib.SystemGetCudaDriverVersion_v2()
	present, err := optional("read the CUDA driver version", ret)
	if err != nil {
		return head{}, err
	}
	if present {
		h.cuda = gpu.Version{Major: cuda / 1000, Minor: cuda % 1000 / 10}
	}
	h.count, ret = lib.DeviceGetCount()
	if errors.Is(sentinelOf(ret), gpu.ErrNotFound) {
		return h, nil
	}
	return h, check("count the GPUs", ret)
}

// read reads the GPU at an index. It calls found with the address as soon as that
// is known, so that the address is reported even if a later call fails.
func (l *Library) read(lib nvml.Interface, index int, found func(gpu.PCIAddress)) (gpu.GPU, error) {
	device, ret := lib.DeviceGetHandleByIndex(index)
	if err := required("get its handle", ret); err != nil {
		return gpu.GPU{}, err
	}
	g := gpu.GPU{Index: index}
	pci, ret := device.GetPciInfo()
	if err := required("read its PCI address", ret); err != nil {
		return gpu.GPU{}, err
	}
	var err error
	if g.Address, err = gpu.ParsePCIAddress(text(pci.BusId[:])); err != nil {
		return gpu.GPU{}, fmt.Errorf("read its PCI address: %w", err)
	}
	found(g.Address)
	g.PCIDevice, g.PCISubsystem = pci.PciDeviceId, pci.PciSubSystemId

	for _, read := range []func(nvml.Interface, nvml.Device, *gpu.GPU) error{readIdentity, readModes, readMIG, readLinks, readFabric, readRecovery, l.readMemoryLimits} {
		if err := read(lib, device, &g); err != nil {
			return gpu.GPU{}, err
		}
	}
	return g, nil
}

func readIdentity(lib nvml.Interface, device nvml.Device, g *gpu.GPU) error {
	var ret nvml.Return
	g.UUID, ret = device.GetUUID()
	if err := required("read its UUID", ret); err != nil {
		return err
	}
	g.Minor, ret = device.GetMinorNumber()
	if err := required("read its minor number", ret); err != nil {
		return err
	}
	name, ret := device.GetName()
	if present, err := optional("read its name", ret); err != nil {
		return err
	} else if present {
		g.ProductName = name
	}
	if err := readMemory(lib, device, g); err != nil {
		return err
	}

	brand, ret := device.GetBrand()
	if present, err := optional("read its brand", ret); err != nil {
		return err
	} else if present {
		g.Brand = brandNames[brand]
	}
	architecture, ret := device.GetArchitecture()
	if present, err := optional("read its architecture", ret); err != nil {
		return err
	} else if present {
		g.Architecture = architectureNames[architecture]
	}
	major, minor, ret := device.GetCudaComputeCapability()
	if present, err := optional("read its compute capability", ret); err != nil {
		return err
	} else if present {
		g.ComputeCapability = gpu.Version{Major: major, Minor: minor}
	}
	// NVML reports the number of SMs for MIG devices only.
	if perSM := coresPerMultiprocessor(g.ComputeCapability); perSM > 0 && has(lib, "nvmlDeviceGetNumGpuCores") {
		cores, ret := device.GetNumGpuCores()
		if present, err := optional("count its cores", ret); err != nil {
			return err
		} else if present {
			g.Multiprocessors = cores / perSM
		}
	}
	return nil
}

// readMemory reads the memory of a GPU. A GPU that has no memory of its own, such as the GB10 of
// a DGX Spark, does not report any. 0 bytes are an error: the GPU would be published as one of
// those.
func readMemory(lib nvml.Interface, device nvml.Device, g *gpu.GPU) error {
	memory, ret := device.GetMemoryInfo()
	if errors.Is(sentinelOf(ret), gpu.ErrNotSupported) {
		return nil
	}
	if err := required("read its memory", ret); err != nil {
		return err
	}
	if memory.Total == 0 {
		return fmt.Errorf("read its memory: %w: NVML reports 0 bytes", gpu.ErrCorrupt)
	}
	g.MemoryBytes = memory.Total
	return readReserved(lib, device, g)
}

// readReserved reads the memory that the driver and the firmware reserve. Drivers
// before release 510 do not report it.
func readReserved(lib nvml.Interface, device nvml.Device, g *gpu.GPU) error {
	if !has(lib, "nvmlDeviceGetMemoryInfo_v2") {
		return nil
	}
	memory, ret := device.GetMemoryInfo_v2()
	present, err := optional("read its reserved memory", ret)
	if err != nil || !present {
		return err
	}
	if memory.Reserved < g.MemoryBytes {
		g.ReservedBytes = memory.Reserved
	}
	return nil
}

func readModes(lib nvml.Interface, device nvml.Device, g *gpu.GPU) error {
	ecc, _, ret := device.GetEccMode()
	if present, err := optional("read its ECC mode", ret); err != nil {
		return err
	} else if present {
		g.ECCEnabled = enabled(ecc)
	}
	persistence, ret := device.GetPersistenceMode()
	if present, err := optional("read its persistence mode", ret); err != nil {
		return err
	} else if present {
		g.PersistenceMode = enabled(persistence)
	}
	compute, ret := device.GetComputeMode()
	if present, err := optional("read its compute mode", ret); err != nil {
		return err
	} else if present {
		g.ComputeMode = computeModes[compute]
	}
	if has(lib, "nvmlDeviceGetAddressingMode") {
		addressing, ret := device.GetAddressingMode()
		if present, err := optional("read its addressing mode", ret); err != nil {
			return err
		} else if present {
			g.AddressingMode = addressingModeNames[nvml.DeviceAddressingModeType(addressing.Value)]
		}
	}
	return nil
}

// has reports whether the installed library exports a function. Calling a missing
// function ends the process, so callers check functions newer than driver release
// 470 first.
func has(lib nvml.Interface, symbol string) bool {
	return lib.Extensions().LookupSymbol(symbol) == nil
}

func enabled(state nvml.EnableState) *bool {
	on := state == nvml.FEATURE_ENABLED
	return &on
}

// text converts a C string in a fixed array.
func text(chars []int8) string {
	var b []byte
	for _, c := range chars {
		if c == 0 {
			break
		}
		b = append(b, byte(c))
	}
	return string(b)
}
