// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
	cliflag "k8s.io/component-base/cli/flag"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/cmd/internal/environment"
	"github.com/gpu-dra/gpu-dra-driver/cmd/internal/program"
	"github.com/gpu-dra/gpu-dra-driver/pkg/agent"
	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
	"github.com/gpu-dra/gpu-dra-driver/pkg/node/podresources"
)

// twins of the flags in the environment.
const twins = environment.Prefix("GPU_DRA_")

// options are the values of all flags.
type options struct {
	agent.Config

	offer       string // parsed by complete, as are the MIG flags
	migMode     string
	migProfiles string
	migGPUs     string
	attributes  string
	cdiInject   string
	sharing     sharing
	printSlices bool
	logging     *logsapi.LoggingConfiguration
}

// flags declares every flag, in the groups that --help shows.
func (o *options) flags() cliflag.NamedFlagSets {
	var sets cliflag.NamedFlagSets

	fs := sets.FlagSet("hardware")
	fs.StringVar(&o.DriverRoot, "driver-root", "/", "`DIR` under which the NVIDIA driver is installed: / on a host, /run/nvidia/driver with NVIDIA's driver container")
	fs.StringVar(&o.DevRoot, "dev-root", "", "`DIR` that holds dev/nvidia* (default: the driver root)")
	fs.StringVar(&o.HostDriverRoot, "host-driver-root", "", "`DIR` of the driver root on the host, if it differs in the agent's container (default: the same)")
	fs.StringVar(&o.HostDevRoot, "host-dev-root", "", "`DIR` of the device root on the host, if it differs in the agent's container (default: the same)")
	fs.StringVar(&o.MachineRoot, "machine-root", "/", "`DIR` that holds sys and proc of the machine: / on a host and in the agent's container, the driver root with simulated GPUs")
	fs.StringVar(&o.CDIHook, "cdi-hook", "", "`FILE` of nvidia-cdi-hook on the host: the container runtime runs it to make the driver's libraries usable (default: a copy of the one next to this program, in the agent's folder)")
	fs.StringVar(&o.cdiInject, "cdi-inject", "", "comma-separated `LIST` of interfaces of GPUDirect whose device nodes every container with a GPU gets, if the node has them: gds (GPUDirect Storage), gdrcopy, mofed (RDMA by all NICs of the node)")

	fs = sets.FlagSet("publishing")
	fs.StringVar(&o.offer, "offer", "share", "comma-separated `LIST` of what this node offers besides whole GPUs; known: "+strings.Join(catalog.KnownOffers(), ", ")+". The node's label "+v1alpha1.LabelOffer+" overrides it, with dots for commas (share.mig), and takes effect while the agent runs")
	fs.StringVar(&o.NodeConfigs, "node-configs", "", "`FILE` with named configurations of nodes, in YAML: the offer, shares, time slices and MIG of each. The node's label "+v1alpha1.LabelConfig+" names the node's; without the label the flags hold. A change of the label or the file takes effect while the agent runs")
	fs.StringVar(&o.migMode, "mig", "dynamic", "`MODE` of MIG, if it is offered: \"dynamic\" creates MIG devices on demand, \"static\" publishes the MIG devices that an administrator has made and creates none")
	fs.StringVar(&o.migProfiles, "mig-profiles", "common", "`PROFILES` that are created on demand: \"common\" for the smallest of one, two and three slices and the whole GPU, \"all\", or a list such as 1g.10gb,2g.20gb")
	fs.StringVar(&o.migGPUs, "mig-gpus", "all", "`NUMBER` of GPUs that can be cut on demand, the last ones in order of the PCI address, or \"all\"")
	fs.StringVar(&o.MIGLayouts, "mig-layouts", "", "`FILE` of NVIDIA's mig-parted with named layouts of MIG devices")
	fs.StringVar(&o.Layout, "mig-layout", "", "`NAME` of the layout in --mig-layouts that this node's GPUs have if MIG is offered, instead of --mig-profiles and --mig-gpus: its MIG devices are created on demand, never overlap and need no counters (default: none)")
	fs.BoolVar(&o.MIGConfigLabel, "mig-config-label", false, "let the node's label "+v1alpha1.LabelMIGConfig+" name the layout, as for NVIDIA's MIG manager")
	fs.BoolVar(&o.MIG.Keep, "mig-keep", false, "keep the MIG devices of a layout, and the MIG mode of their GPUs, when no claim uses them, so that the next claim finds them; they are destroyed when a claim needs their place or the layout changes")
	fs.BoolVar(&o.MIG.AllowReset, "mig-allow-reset", false, "reset an idle GPU if a change of its MIG mode needs that (Ampere); otherwise such a GPU is cut only if its MIG mode is already enabled")
	fs.BoolVar(&o.MIG.AllAttributes, "mig-all-attributes", false, "publish the attributes productName and pcieRoot of MIG devices that are created on demand too, and how shares of MIG devices are limited: with MIG on demand the ResourceSlices of a node are a quarter larger")
	fs.StringVar(&o.attributes, "attributes", "standard", "`LIST` of the attributes to publish: \"standard\", \"lean\" for the fewest, as in fleets of thousands of nodes, \"all\", and names to publish besides; known: "+strings.Join(kind.AttributeNames(), ", ")+". The agent reports an unknown name, and publishes the others")
	fs.BoolVar(&o.ListAttributes, "list-attributes", false, "publish list attributes as well (nvlinkPeers, nvlinkCliques and numaNode as lists); needs the feature gate DRAListTypeAttributes in the cluster")
	fs.BoolVar(&o.printSlices, "print-slices", false, "print the ResourceSlices as a JSON List and exit, with status 1 if no GPU can be read; needs no cluster")

	fs = sets.FlagSet("sharing")
	o.sharing.flags(fs)
	fs.BoolVar(&o.MemoryLimits, "memory-limits", true, "let the driver limit the GPU memory of containers with shares, by a hook, if the driver is of release 615 or newer and the node has cgroups of version 2")

	fs = sets.FlagSet("cluster")
	fs.StringVar(&o.DriverName, "driver-name", v1alpha1.DriverName, "`NAME` of the driver in ResourceSlices and claims")
	fs.StringVar(&o.NodeName, "node-name", "", "`NAME` of this node in the cluster (default: the host's name)")
	fs.StringVar(&o.Kubeconfig, "kubeconfig", "", "`FILE` with the address and credentials of the API server (default: the service account of the agent's pod)")
	fs.StringVar(&o.DaemonSet, "daemon-set", "", "`NAMESPACE/NAME` of the DaemonSet of the agent's pod: while it exists, the last agent on the node leaves its folder for the next one, with the record of the configuration that the node follows (default: none, the last agent removes its folder)")
	fs.DurationVar(&o.ReconcileInterval, "reconcile-interval", 5*time.Minute, "time between comparisons of the claims held on this node with the claims in the cluster")

	fs = sets.FlagSet("host")
	fs.StringVar(&o.KubeletPluginsDir, "kubelet-plugins-dir", kubeletplugin.KubeletPluginsDir, "`DIR` of the kubelet for the plugins' sockets. It contains the agent's folder NAME/agent, with the driver's name: the records of prepared claims, which outlive the agent, and the hook. The last agent removes that folder when it ends and no claim is prepared")
	fs.StringVar(&o.KubeletRegistryDir, "kubelet-registry-dir", kubeletplugin.KubeletRegistryDir, "`DIR` of the kubelet in which plugins register")
	fs.StringVar(&o.PodResources, "kubelet-pod-resources", podresources.DefaultSocket, "`SOCKET` of the kubelet's PodResources API, which lists the GPUs that pods have through a device plugin: these are not offered until the pods end; empty to offer them")
	fs.StringVar(&o.CDIDir, "cdi-dir", kubeletplugin.DefaultCDIDir, "`DIR` from which the container runtime reads CDI specs")
	fs.StringVar(&o.PodUID, "pod-uid", "", "`UID` of the agent's pod, for updates without a gap: the old agent serves until the new one is registered")

	fs.BoolVar(&o.TakeOver, "take-over", false, "serve the node even if another driver is registered with the kubelet under --driver-name; by default the agent waits until that driver has ended")

	fs = sets.FlagSet("serving")
	fs.StringVar(&o.HTTPListen, "http-listen", ":8080", "`ADDRESS` for /metrics, /healthz and /readyz; empty for none")
	fs.StringVar(&o.ViewerAccount, "viewer-account", "", "`NAMESPACE/NAME` of the service account whose tokens users send to read the facts about the node at /v1/node, as \"kubectl gpu doctor\" does; its tokens must have the audience agent.NAME/UID, with the driver's name and --pod-uid (default: the facts are not served)")

	o.logging = program.LoggingFlags(&sets)
	return sets
}

// complete sets values that follow from others. It returns an error for values that
// cannot work.
func (o *options) complete() error {
	if o.DevRoot == "" {
		o.DevRoot = o.DriverRoot
	}
	if o.NodeName == "" {
		host, err := os.Hostname()
		if err != nil {
			return fmt.Errorf("--node-name is not given: %w", err)
		}
		o.NodeName = strings.ToLower(host)
	}
	// CDI specs and sockets are read by other processes.
	if err := program.MakeAbsolute(&o.DriverRoot, &o.DevRoot, &o.HostDriverRoot, &o.HostDevRoot, &o.MachineRoot, &o.CDIHook, &o.NodeConfigs, &o.MIGLayouts, &o.CDIDir, &o.KubeletPluginsDir, &o.KubeletRegistryDir, &o.PodResources); err != nil {
		return err
	}
	var err error
	if o.Directs, err = gpu.ParseDirects(o.cdiInject); err != nil {
		return fmt.Errorf("--cdi-inject: %w", err)
	}
	if o.offer != "" {
		if o.Offer, err = catalog.ParseOffer(o.offer); err != nil {
			return fmt.Errorf("--%w", err)
		}
	}
	// A name that this release does not know must not stop the agents of all nodes.
	if selected, err := kind.ParseSelection(o.attributes); err != nil {
		o.Attributes, o.UnknownAttributes = selected, fmt.Errorf("--attributes: %w", err)
	} else {
		o.Attributes = selected
	}
	if err := o.completeMIG(); err != nil {
		return err
	}
	if err := o.sharing.complete(); err != nil {
		return err
	}
	o.Supervisor = o.sharing.supervisor
	o.ExclusiveCompute = o.sharing.exclusive
	o.Shares = o.sharing.shares()
	if problems := validation.IsDNS1123Subdomain(o.DriverName); len(problems) > 0 {
		return program.Invalid("driver-name", o.DriverName, strings.Join(problems, "; "))
	}
	if problems := validation.IsDNS1123Subdomain(o.NodeName); len(problems) > 0 {
		return program.Invalid("node-name", o.NodeName, strings.Join(problems, "; "))
	}
	if o.ReconcileInterval < time.Second {
		return program.Invalid("reconcile-interval", o.ReconcileInterval, "want at least 1s")
	}
	return nil
}

// completeMIG parses the flags that say how MIG is offered.
func (o *options) completeMIG() error {
	o.MIG.Static = o.migMode == "static"
	if o.migMode != "static" && o.migMode != "dynamic" {
		return program.Invalid("mig", o.migMode, "want dynamic or static")
	}
	var err error
	if o.MIG.Profiles, err = catalog.ParseMIGProfiles(o.migProfiles); err != nil {
		return fmt.Errorf("--mig-profiles: %w", err)
	}
	if err := o.checkLayout(); err != nil {
		return err
	}
	if o.MIG.GPUs, err = catalog.ParseMIGGPUs(o.migGPUs); err != nil {
		return fmt.Errorf("--mig-gpus=%w", err)
	}
	return nil
}

// checkLayout returns an error for a layout that the agent cannot have.
func (o *options) checkLayout() error {
	switch {
	case o.MIGLayouts == "" && o.Layout == "":
		return nil
	case o.MIGLayouts == "":
		return program.Invalid("mig-layout", o.Layout, "want --mig-layouts too, the file that has it")
	case o.Layout != "" && o.MIG.Static:
		return program.Invalid("mig-layout", o.Layout, "want --mig=dynamic: with static, an administrator makes the MIG devices")
	}
	return nil
}
