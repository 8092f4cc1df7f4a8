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

// Snapshot reads the node's GPUs: everything of [gpu.Node] but NUMANode and
// PCIeRoot of a GPU.
//
// It fails with [gpu.ErrNotReady] while the driver is not installed or not
// loaded, and starts the library anew with every call until that works. A node
// without a GPU is a node with no GPUs and no error. A GPU that does not tell
// its identity (PCI address, UUID, minor, name, memory), its MIG partitions or
// anything at all is in [gpu.Node.Unreadable]; other facts that it does not
// tell are absent.
//
// When ctx ends, GPUs that have not answered are Unreadable with
// [gpu.ErrTimeout]; if the node as a whole has not answered, Snapshot fails with
// that error. Without a deadline, a wedged driver blocks it.
func (l *Library) Snapshot(ctx context.Context) (gpu.Node, error) {
	head, err := do(ctx, l.node, "read the node's GPU driver", l.readHead)
	if err != nil {
		return gpu.Node{}, err
	}
	node := gpu.Node{DriverVersion: head.driver, CUDADriverVersion: head.cuda}

	// Each GPU is asked by a goroutine of its own, so that one that hangs
	// leaves the others readable.
	readings := make([]reading, head.count)
	var all sync.WaitGroup
	for index := range head.count {
		all.Go(func() {
			s := l.slot(index)
			g, err := do(ctx, s.guard, fmt.Sprintf("read GPU %d", index), func() (gpu.GPU, error) {
				return readGPU(head.lib, index, s)
			})
			readings[index] = reading{gpu: g, err: err, address: s.lastAddress()}
		})
	}
	all.Wait()

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
	l.found(found)
	return node, nil
}

type reading struct {
	gpu     gpu.GPU
	address *gpu.PCIAddress
	err     error
}

// head is what a snapshot begins with.
type head struct {
	lib    nvml.Interface
	driver string
	cuda   gpu.Version
	count  int
}

func (l *Library) readHead() (head, error) {
	lib, err := l.start()
	if errors.Is(err, gpu.ErrNotFound) {
		// Some releases fail to start where there is no GPU.
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
		// The number of GPUs is counted when the library starts.
		err = l.stop()
	}
	return h, err
}

func readDriver(lib nvml.Interface) (head, error) {
	h := head{lib: lib}
	var ret nvml.Return
	h.driver, ret = lib.SystemGetDriverVersion()
	if err := check("read the driver version", ret); err != nil {
		return head{}, err
	}
	cuda, ret := lib.SystemGetCudaDriverVersion_v2()
	told, err := optional("read the CUDA driver version", ret)
	if err != nil {
		return head{}, err
	}
	if told {
		h.cuda = gpu.Version{Major: cuda / 1000, Minor: cuda % 1000 / 10}
	}
	h.count, ret = lib.DeviceGetCount()
	if errors.Is(sentinelOf(ret), gpu.ErrNotFound) {
		return h, nil
	}
	return h, check("count the GPUs", ret)
}

func readGPU(lib nvml.Interface, index int, s *slot) (gpu.GPU, error) {
	device, ret := lib.DeviceGetHandleByIndex(index)
	if err := required("get its handle", ret); err != nil {
		return gpu.GPU{}, err
	}
	g := gpu.GPU{Index: index}
	// The address comes first: it is how a GPU is named that fails later on.
	pci, ret := device.GetPciInfo()
	if err := required("read its PCI address", ret); err != nil {
		return gpu.GPU{}, err
	}
	var err error
	if g.Address, err = gpu.ParsePCIAddress(text(pci.BusId[:])); err != nil {
		return gpu.GPU{}, fmt.Errorf("read its PCI address: %w", err)
	}
	address := g.Address
	s.remember(&address)

	for _, read := range []func(nvml.Interface, nvml.Device, *gpu.GPU) error{readIdentity, readModes, readMIG, readLinks, readFabric, readRecovery} {
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
	g.ProductName, ret = device.GetName()
	if err := required("read its name", ret); err != nil {
		return err
	}
	memory, ret := device.GetMemoryInfo()
	if err := required("read its memory", ret); err != nil {
		return err
	}
	g.MemoryBytes = memory.Total
	if err := readReserved(lib, device, g); err != nil {
		return err
	}

	brand, ret := device.GetBrand()
	if told, err := optional("read its brand", ret); err != nil {
		return err
	} else if told {
		g.Brand = brandNames[brand]
	}
	architecture, ret := device.GetArchitecture()
	if told, err := optional("read its architecture", ret); err != nil {
		return err
	} else if told {
		g.Architecture = architectureNames[architecture]
	}
	major, minor, ret := device.GetCudaComputeCapability()
	if told, err := optional("read its compute capability", ret); err != nil {
		return err
	} else if told {
		g.ComputeCapability = gpu.Version{Major: major, Minor: minor}
	}
	// NVML counts the SMs of MIG devices only.
	if perSM := coresPerMultiprocessor(g.ComputeCapability); perSM > 0 && has(lib, "nvmlDeviceGetNumGpuCores") {
		cores, ret := device.GetNumGpuCores()
		if told, err := optional("count its cores", ret); err != nil {
			return err
		} else if told {
			g.Multiprocessors = cores / perSM
		}
	}
	return nil
}

// readReserved reads how much of the GPU's memory the driver and the firmware keep
// for themselves, which drivers before release 510 do not report.
func readReserved(lib nvml.Interface, device nvml.Device, g *gpu.GPU) error {
	if !has(lib, "nvmlDeviceGetMemoryInfo_v2") {
		return nil
	}
	memory, ret := device.GetMemoryInfo_v2()
	told, err := optional("read its reserved memory", ret)
	if err != nil || !told {
		return err
	}
	if memory.Reserved < g.MemoryBytes {
		g.ReservedBytes = memory.Reserved
	}
	return nil
}

func readModes(lib nvml.Interface, device nvml.Device, g *gpu.GPU) error {
	ecc, _, ret := device.GetEccMode()
	if told, err := optional("read its ECC mode", ret); err != nil {
		return err
	} else if told {
		g.ECCEnabled = enabled(ecc)
	}
	persistence, ret := device.GetPersistenceMode()
	if told, err := optional("read its persistence mode", ret); err != nil {
		return err
	} else if told {
		g.PersistenceMode = enabled(persistence)
	}
	compute, ret := device.GetComputeMode()
	if told, err := optional("read its compute mode", ret); err != nil {
		return err
	} else if told {
		g.ComputeMode = computeModes[compute]
	}
	if has(lib, "nvmlDeviceGetAddressingMode") {
		addressing, ret := device.GetAddressingMode()
		if told, err := optional("read its addressing mode", ret); err != nil {
			return err
		} else if told {
			g.AddressingMode = addressingModeNames[nvml.DeviceAddressingModeType(addressing.Value)]
		}
	}
	return nil
}

// has reports whether the installed library exports a function. Calling one
// that it lacks ends the process, so functions younger than driver release 470
// are asked for first.
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
