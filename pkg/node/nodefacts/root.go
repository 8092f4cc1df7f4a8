// SPDX-License-Identifier: Apache-2.0

package nodefacts

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"k8s.io/utils/cpuset"

	agentv1 "github.com/gpu-dra/gpu-dra-driver/api/agent/v1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// Root is the directory that holds a file system of the node, such as "/".
type Root string

// Roots are the file systems of a node as this process sees them.
type Roots struct {
	// Kernel holds the proc and sys of the node.
	Kernel Root
	// GPUs holds the proc and sys that show the GPUs: Kernel, unless they are simulated.
	GPUs Root
	// Host holds the node's etc, run and var.
	Host Root
	// Kubelet is the kubelet's folder on the host.
	Kubelet string
}

// file returns the content of a file; nil without an error if the root does not have it.
func (r Root) file(path string) ([]byte, error) {
	content, err := os.ReadFile(filepath.Join(string(r), path))
	return content, r.absent(err)
}

// names returns the names in a folder, sorted; none if the root does not have the folder.
func (r Root) names(path string) ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(string(r), path))
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names, r.absent(err)
}

// absent returns nil for the error of a file that does not exist in a root that does.
func (r Root) absent(err error) error {
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	_, err = os.Stat(string(r))
	return err
}

// factOf returns the fact that a reading of source has as its result.
func factOf[T any](source string, value T, err error) agentv1.Fact[T] {
	if err != nil {
		var none T
		return agentv1.Fact[T]{Value: none, Source: source, Unknown: err.Error()}
	}
	return agentv1.Fact[T]{Value: value, Source: source}
}

// readFile returns the fact in a file. parse is not called for a file that is absent.
func readFile[T any](r Root, path string, parse func(string) (T, error)) agentv1.Fact[T] {
	var value T
	content, err := r.file(path)
	if err == nil && content != nil {
		if value, err = parse(strings.TrimSpace(string(bytes.Trim(content, "\x00")))); err != nil {
			err = fmt.Errorf("%s: %w", path, err)
		}
	}
	return factOf("/"+path, value, err)
}

// readNames returns the names in a folder.
func readNames(r Root, path string) agentv1.Fact[[]string] {
	names, err := r.names(path)
	return factOf("/"+path, names, err)
}

// exists returns whether a file exists.
func exists(r Root, path string) agentv1.Fact[bool] {
	_, err := os.Stat(filepath.Join(string(r), path))
	return factOf("/"+path, err == nil, r.absent(err))
}

func text(s string) (string, error) { return s, nil }

func number(s string) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", gpu.ErrCorrupt, err)
	}
	return n, nil
}

// Read returns the facts that files show about a node with GPUs at the addresses. It
// leaves the facts of NVML empty.
func (r Roots) Read(addresses []gpu.PCIAddress) agentv1.Node {
	n := agentv1.Node{
		OpenModules: readFile(r.GPUs, "proc/driver/nvidia/version", func(s string) (bool, error) {
			return strings.Contains(s, "Open Kernel Module"), nil
		}),
		Peermem:       exists(r.GPUs, "sys/module/nvidia_peermem"),
		FabricManager: r.GPUs.runs("nv-fabricmanager"),
		Persistenced:  r.GPUs.runs("nvidia-persistenced"),

		FabricManagerRelease: r.Host.fabricManagerRelease(),

		KernelVersion: readFile(r.Kernel, "proc/sys/kernel/osrelease", text),
		Controllers: readFile(r.Kernel, "sys/fs/cgroup/cgroup.controllers", func(s string) ([]string, error) {
			return strings.Fields(s), nil
		}),
		HugePages:            r.Kernel.hugePages(),
		TransparentHugePages: readFile(r.Kernel, "sys/kernel/mm/transparent_hugepage/enabled", selected),
		SwapBytes:            readFile(r.Kernel, "proc/swaps", swap),
		Governors:            r.Kernel.governors(),
		Memlock:              readFile(r.Kernel, "proc/self/limits", memlock),
		RDMADevices:          readNames(r.GPUs, "sys/class/infiniband"),
		NUMANodes: readFile(r.GPUs, "sys/devices/system/node/has_cpu", func(s string) (int, error) {
			nodes, err := cpuset.Parse(s)
			return nodes.Size(), err
		}),

		ContainerdCDI: readFile(r.Host, containerdConfig, enableCDI),

		ContainerdSpecDirs: readFile(r.Host, containerdConfig, specDirs),
		CRIOSpecDirs:       r.Host.crioSpecDirs(),

		CPUManager: readFile(r.Host, filepath.Join(strings.TrimPrefix(r.Kubelet, "/"), "cpu_manager_state"), cpuManager),
	}
	iommus := readNames(r.Kernel, "sys/class/iommu")
	n.IOMMU = agentv1.Fact[bool]{Value: len(iommus.Value) > 0, Source: iommus.Source, Unknown: iommus.Unknown}
	for _, address := range addresses {
		n.GPUs = append(n.GPUs, r.GPUs.gpu(address))
	}
	return n
}

// maxComm is the length of a process name in the kernel.
const maxComm = 15

// runs returns whether a process with the name of a program runs. It sees the processes of
// its PID namespace, which for the agent is the host's.
func (r Root) runs(program string) agentv1.Fact[bool] {
	program = program[:min(len(program), maxComm)]
	pids, err := r.names("proc")
	found := slices.ContainsFunc(pids, func(pid string) bool {
		if _, err := strconv.Atoi(pid); err != nil {
			return false
		}
		// A process may end meanwhile.
		comm, err := r.file(filepath.Join("proc", pid, "comm"))
		return err == nil && strings.TrimSpace(string(comm)) == program
	})
	return factOf("/proc/*/comm", found, err)
}

func (r Root) hugePages() agentv1.Fact[map[string]uint64] {
	const folder = "sys/kernel/mm/hugepages"
	pages := map[string]uint64{}
	sizes, err := r.names(folder)
	for _, size := range sizes {
		f := readFile(r, filepath.Join(folder, size, "nr_hugepages"), number)
		if f.Unknown != "" {
			return agentv1.Fact[map[string]uint64]{Source: f.Source, Unknown: f.Unknown}
		}
		pages[strings.TrimPrefix(size, "hugepages-")] = uint64(max(f.Value, 0))
	}
	return factOf("/"+folder, pages, err)
}

func (r Root) governors() agentv1.Fact[[]string] {
	const folder = "sys/devices/system/cpu"
	cpus, err := r.names(folder)
	found := map[string]bool{}
	for _, cpu := range cpus {
		f := readFile(r, filepath.Join(folder, cpu, "cpufreq/scaling_governor"), text)
		if f.Value != "" {
			found[f.Value] = true
		}
	}
	return factOf("/"+folder+"/cpu*/cpufreq/scaling_governor", slices.Sorted(maps.Keys(found)), err)
}

// selected returns the word in brackets.
func selected(s string) (string, error) {
	_, s, _ = strings.Cut(s, "[")
	word, _, found := strings.Cut(s, "]")
	if !found {
		return "", fmt.Errorf("%w: no word is in brackets", gpu.ErrCorrupt)
	}
	return word, nil
}

// swap returns the bytes of all swap areas. The columns of proc/swaps are the file, the
// type, the size in KiB and others.
func swap(s string) (uint64, error) {
	var total uint64
	for i, line := range strings.Split(s, "\n") {
		fields := strings.Fields(line)
		if i == 0 || len(fields) < 3 {
			continue
		}
		size, err := strconv.ParseUint(fields[2], 10, 64)
		if err != nil {
			return 0, fmt.Errorf("%w: %w", gpu.ErrCorrupt, err)
		}
		total += size << 10
	}
	return total, nil
}

// memlock returns the soft limit in the line "Max locked memory".
func memlock(s string) (string, error) {
	for line := range strings.Lines(s) {
		if limits, found := strings.CutPrefix(line, "Max locked memory"); found && strings.TrimSpace(limits) != "" {
			return strings.Fields(limits)[0], nil
		}
	}
	return "", fmt.Errorf("%w: it has no line \"Max locked memory\"", gpu.ErrCorrupt)
}
