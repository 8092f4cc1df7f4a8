// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	agentv1 "github.com/gpu-dra/gpu-dra-driver/api/agent/v1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// eachNode returns a check of the facts about each node.
func eachNode(judge func(agentv1.Node) Finding) func(*Cluster) []Finding {
	return func(c *Cluster) []Finding {
		return c.onAllNodes(func(_ string, facts agentv1.Node) Finding { return judge(facts) })
	}
}

// onAllNodes returns the finding about each node whose agent has answered.
func (c *Cluster) onAllNodes(judge func(name string, n agentv1.Node) Finding) []Finding {
	var findings []Finding
	for _, name := range slices.Sorted(maps.Keys(c.Facts)) {
		if facts := c.Facts[name].Value; facts != nil {
			f := judge(name, *facts)
			// The agent of a simulated node cannot read files of its host, and need not.
			if f.Code == codeFile && facts.Simulated {
				f = fine("not checked, because the GPUs are simulated: %s", f.Found)
			}
			f.Object = onNode(name)
			findings = append(findings, f)
		}
	}
	return findings
}

// nodeFinding returns a finding whose object is the node that the caller knows.
func nodeFinding(code, found, meaning, remedy string) Finding {
	return newFinding(code, "", found, meaning, remedy)
}

// known returns the finding about a fact, or that it is unknown.
func known[T any](f agentv1.Fact[T], judge func(T) Finding) Finding {
	if !f.IsKnown() {
		code := "fact-unknown"
		if strings.HasPrefix(f.Source, "/") {
			code = codeFile
		}
		return nodeFinding(code, f.Unknown, "the agent cannot read it from "+source(f.Source),
			"read it on the node; the agent can if it is privileged and in the host's PID namespace, as the chart runs it for real GPUs")
	}
	return judge(f.Value)
}

// source returns whether NVML or a file has a fact.
func source(of string) string {
	if strings.HasPrefix(of, "/") {
		return "the node's files"
	}
	return of
}

// fine returns a finding without a remedy.
func fine(format string, args ...any) Finding {
	return Finding{State: OK, Found: fmt.Sprintf(format, args...)}
}

// memoryLimitsRelease is the first release of the NVIDIA driver that limits the GPU memory
// of cgroups.
const memoryLimitsRelease = 615

// release returns the first number of a version of the NVIDIA driver; 0 if it has none.
func release(version string) int {
	first, _, _ := strings.Cut(version, ".")
	n, err := strconv.Atoi(first)
	if err != nil {
		return 0
	}
	return n
}

func judgeDriver(n agentv1.Node) Finding {
	unknown := n.DriverVersion.Unknown
	switch {
	case n.DriverVersion.IsKnown():
	case strings.Contains(strings.ToLower(unknown), "version mismatch"):
		return nodeFinding("nvidia-driver-releases-differ", unknown, "the kernel has a module of another release than the libraries of the node: no program can use the GPUs",
			"once the node's claims have ended, reload the module nvidia or reboot the node")
	default:
		return nodeFinding("nvidia-driver-not-loaded", unknown, "the node has no usable GPUs",
			"load the NVIDIA driver (nvidia-smi must list the GPUs); if it is loaded, check driver.root of the chart")
	}
	return fine("driver %s, CUDA %s", n.DriverVersion.Value, n.CUDAVersion.Value)
}

func judgeECC(n agentv1.Node) Finding {
	return eachFact(n, func(g agentv1.GPU) agentv1.Fact[string] { return g.ECC }, func(mode string) Finding {
		switch mode {
		case "off":
			return nodeFinding("ecc-off", "error correction (ECC) is off", "memory errors are neither corrected nor reported: programs may get wrong results",
				"once the node's claims have ended, run nvidia-smi --ecc-config=1 and restart the node; if ECC is off on purpose, mute the finding")
		case "on":
			return fine("error correction (ECC) is on")
		default:
			return fine("the GPU has no ECC, or the agent does not report it")
		}
	})
}

func judgePersistence(n agentv1.Node) Finding {
	return eachFact(n, func(g agentv1.GPU) agentv1.Fact[string] { return g.Persistence }, func(mode string) Finding {
		if mode == "off" && !n.Persistenced.Value {
			return nodeFinding("persistence-off", "persistence mode is off", "the driver may reset an idle GPU's settings, and the next program waits for it to start",
				"run nvidia-persistenced at boot (systemctl enable --now nvidia-persistenced)")
		}
		return fine("persistence mode or nvidia-persistenced is on, or not needed")
	})
}

func judgeFabric(n agentv1.Node) Finding {
	const start = "start nvidia-fabricmanager of the same release as the driver (systemctl enable --now nvidia-fabricmanager), or nvidia-imex for NVLink across nodes"
	return eachGPU(n, func(g agentv1.GPU) Finding {
		switch state := gpu.FabricState(g.FabricState.Value); {
		case state == "" && !g.NVSwitch.Value:
			return fine("no NVSwitch")
		case otherRelease(n):
			// Fabric Manager checks the release when it starts, and ends if it differs.
			f := nodeFinding("fabric-manager-release-differs",
				fmt.Sprintf("the installed Fabric Manager is %s, and the driver is %s", n.FabricManagerRelease.Value, n.DriverVersion.Value),
				"Fabric Manager does not start, and CUDA fails to initialise with error 802",
				fmt.Sprintf("install nvidia-fabricmanager of the release %s, then systemctl restart nvidia-fabricmanager", n.DriverVersion.Value))
			if n.FabricManager.Value || state == gpu.FabricCompleted {
				f.State, f.Meaning = Warning, "Fabric Manager runs, and will not start again: CUDA then fails to initialise with error 802"
			}
			return f
		case state == gpu.FabricCompleted:
			return fine("registered with the NVSwitch fabric")
		case state != "":
			return nodeFinding("fabric-not-registered", "the registration with the NVSwitch fabric is "+string(state), "CUDA fails to initialise with error 802", start)
		}
		return known(n.FabricManager, func(runs bool) Finding {
			if !runs {
				return nodeFinding("fabric-manager-missing", "the GPU has NVSwitch links, and no process nv-fabricmanager runs", "CUDA fails to initialise with error 802",
					start)
			}
			return fine("nv-fabricmanager runs")
		})
	})
}

// otherRelease reports whether Fabric Manager is of another release than the driver, as far as
// both are known.
func otherRelease(n agentv1.Node) bool {
	manager, driver := n.FabricManagerRelease, n.DriverVersion
	return manager.IsKnown() && manager.Value != "" && driver.IsKnown() && driver.Value != "" && manager.Value != driver.Value
}

// slowdowns are the reasons for a lower clock that an administrator can end.
var slowdowns = []gpu.ClockReason{gpu.ClockHWSlowdown, gpu.ClockThermal, gpu.ClockHWThermal, gpu.ClockPowerBrake, gpu.ClockReliabilityLimit}

func judgeClocks(n agentv1.Node) Finding {
	return eachFact(n, func(g agentv1.GPU) agentv1.Fact[agentv1.Clocks] { return g.Clocks }, func(c agentv1.Clocks) Finding {
		reasons := slices.DeleteFunc(slices.Clone(c.Reasons), func(r string) bool { return !slices.Contains(slowdowns, gpu.ClockReason(r)) })
		found := fmt.Sprintf("%d of %d MHz", c.SMMHz, c.MaxSMMHz)
		switch {
		case len(reasons) > 0:
			return nodeFinding("clock-slowdown", found+" because of "+strings.Join(reasons, ", "), "programs run slower than the GPU could",
				"check cooling and power supply of the machine (nvidia-smi --query --display=PERFORMANCE,TEMPERATURE,POWER)")
		case slices.Contains(c.Reasons, string(gpu.ClockApplications)):
			return nodeFinding("clock-limited", found+" because of application clocks",
				"an administrator has limited the clocks, and programs run slower than the GPU could",
				"if that is not intended: nvidia-smi --reset-applications-clocks, or --reset-gpu-clocks")
		default:
			return fine("no slowdown")
		}
	})
}

func judgePCIe(n agentv1.Node) Finding {
	return eachGPU(n, func(g agentv1.GPU) Finding {
		return known(g.LinkWidth, func(width int) Finding {
			return known(g.MaxLinkWidth, func(most int) Finding {
				if width < most {
					return nodeFinding("pcie-link-narrow", fmt.Sprintf("PCIe link of %d lanes instead of %d", width, most), "copies between host and GPU take longer",
						"check that the slot has the lanes and that the GPU or its riser sits firmly")
				}
				return fine("PCIe link of %d lanes, at most %s", width, g.MaxLinkSpeed.Value)
			})
		})
	})
}

func judgeACS(n agentv1.Node) Finding {
	return eachFact(n, func(g agentv1.GPU) agentv1.Fact[[]string] { return g.ACSRedirect }, func(ports []string) Finding {
		if len(ports) > 0 {
			return nodeFinding("acs-redirects", "ACS redirects peer requests at "+list(ports),
				"transfers between GPUs, and between GPU and network adapter, of one PCIe switch go through the root complex, which is slower or hangs",
				"on bare metal, switch ACS off in the firmware or by setpci; a virtual machine with passed-through GPUs needs ACS")
		}
		return fine("no PCIe switch redirects peer requests")
	})
}

func judgeIOMMU(n agentv1.Node) Finding {
	return known(n.IOMMU, func(on bool) Finding {
		return eachFact(n, func(g agentv1.GPU) agentv1.Fact[string] { return g.IOMMUType }, func(kind string) Finding {
			switch {
			case !on || kind == "":
				return fine("the kernel uses no IOMMU for the GPUs")
			case strings.HasPrefix(kind, "DMA"):
				return nodeFinding("iommu-translates", "the IOMMU translates its addresses (type "+kind+")",
					"transfers between GPUs over PCIe, and with network adapters, are slower or fail",
					"on bare metal boot with iommu=pt, or switch the IOMMU off; leave it if the node passes GPUs to virtual machines")
			default:
				return fine("IOMMU of type %s", kind)
			}
		})
	})
}

func judgePeermem(n agentv1.Node) Finding {
	return known(n.RDMADevices, func(devices []string) Finding {
		switch {
		case len(devices) == 0:
			return fine("no RDMA devices")
		case n.Peermem.Value:
			return fine("nvidia_peermem is loaded, RDMA devices %s", list(devices))
		case n.OpenModules.Value:
			return fine("open kernel modules have DMA-BUF for the RDMA devices %s", list(devices))
		default:
			return nodeFinding("gpu-rdma-missing", "RDMA devices "+list(devices)+", without nvidia_peermem and without open kernel modules",
				"network adapters cannot read and write GPU memory: traffic goes through host memory",
				"run modprobe nvidia-peermem and load it at boot, or install NVIDIA's open kernel modules")
		}
	})
}

func judgeMemlock(n agentv1.Node) Finding {
	return known(n.Memlock, func(limit string) Finding {
		if limit != "unlimited" && len(n.RDMADevices.Value) > 0 {
			return nodeFinding("memlock-small", fmt.Sprintf("containers can lock %s bytes of memory", limit),
				"RDMA programs such as NCCL over InfiniBand fail to register memory", "set LimitMEMLOCK=infinity in the systemd unit of the container runtime and restart it")
		}
		return fine("limit of locked memory: %s", limit)
	})
}

func judgeCgroup(n agentv1.Node) Finding {
	return known(n.Controllers, func(controllers []string) Finding {
		newDriver := release(n.DriverVersion.Value) >= memoryLimitsRelease
		switch {
		case len(controllers) == 0:
			return nodeFinding("cgroup-v1", "the node has cgroups of version 1",
				"the NVIDIA driver cannot limit the GPU memory of containers, and MPS daemons end with the supervisor's pod",
				"boot with systemd.unified_cgroup_hierarchy=1, or use a distribution with cgroup v2")
		case slices.Contains(controllers, "dmem"), slices.Contains(controllers, "misc"):
			return fine("cgroup v2 with %s", strings.Join(controllers, " "))
		case newDriver:
			return nodeFinding("cgroup-without-dmem", "cgroup v2 without dmem and misc", "driver "+n.DriverVersion.Value+" cannot limit the GPU memory of containers",
				"use a kernel with the controller dmem (6.14) or misc (5.13), and enable it in cgroup.subtree_control of the root")
		default:
			return fine("cgroup v2 without dmem and misc, which driver %s does not use", n.DriverVersion.Value)
		}
	})
}

func judgeTHP(n agentv1.Node) Finding {
	return known(n.TransparentHugePages, func(mode string) Finding {
		if mode == "never" {
			return nodeFinding("thp-never", "transparent huge pages: never", "pinning and copying large host memory takes longer",
				"echo madvise > /sys/kernel/mm/transparent_hugepage/enabled, and boot with transparent_hugepage=madvise; leave it if only a steady latency matters")
		}
		if mode == "always" {
			return fine("transparent huge pages: always; for a steady latency use madvise, with which the kernel compacts memory only for programs that request it")
		}
		return fine("transparent huge pages: %s", mode)
	})
}

func judgeSwap(n agentv1.Node) Finding {
	return known(n.SwapBytes, func(bytes uint64) Finding {
		if bytes > 0 {
			return nodeFinding("swap-on", fmt.Sprintf("%.1fGi of swap", float64(bytes)/(1<<30)),
				"host memory of programs may be on disk when the GPU needs it, and the kubelet does not start with swap unless its configuration admits it",
				"run swapoff --all and remove swap from /etc/fstab, unless the kubelet's memorySwap is set on purpose")
		}
		return fine("no swap")
	})
}

func judgeKernelLog(n agentv1.Node) Finding {
	if !n.KernelLog.IsKnown() {
		return nodeFinding("kernel-log-unknown", n.KernelLog.Unknown, "users are not told which program made a fault and ended the programs of a GPU",
			"run the agent privileged and in the machine's PID namespace, as the chart does; on the node, dmesg names the process")
	}
	return fine("the agent finds the programs of the kernel's XIDs, or does not report it")
}

func judgeGovernor(n agentv1.Node) Finding {
	return known(n.Governors, func(governors []string) Finding {
		if len(governors) == 0 {
			return fine("the kernel does not set the CPUs' frequencies")
		}
		if slices.ContainsFunc(governors, func(g string) bool { return g != "performance" }) {
			return nodeFinding("cpu-governor", "frequency governor "+strings.Join(governors, ", "), "CPUs that feed GPUs may run below their highest frequency",
				"run cpupower frequency-set --governor performance at boot")
		}
		return fine("frequency governor performance")
	})
}
