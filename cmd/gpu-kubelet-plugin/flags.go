package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"
	cliflag "k8s.io/component-base/cli/flag"
	logsapi "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/component-base/logs/json/register" // the log format json
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/cmd/internal/environment"
	"github.com/gpu-dra/gpu-dra-driver/cmd/internal/hardwareflag"
	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/podresources"
)

// twins of the flags in the environment.
const twins = environment.Prefix("GPU_DRA_")

// options are the values of all flags.
type options struct {
	hardware string
	simState string
	cdiHook  string

	driverRoot, hostDriverRoot string
	devRoot, hostDevRoot       string

	offer          string
	offered        catalog.Offer // offer, parsed
	migMode        string
	migProfiles    string
	migGPUs        string
	migAllowReset  bool
	migAttributes  bool
	mig            catalog.MIGOffer // the above, parsed
	listAttributes bool
	printSlices    bool

	sharing sharing

	driverName        string
	nodeName          string
	kubeconfig        string
	reconcileInterval time.Duration

	kubeletPluginsDir  string
	kubeletRegistryDir string
	podResources       string // socket; empty for none
	cdiDir             string
	podUID             string

	httpListen string
	// ending is called when the agent begins to end; nil for nothing.
	ending func()
	// simulator opens simulated GPUs; nil in production programs.
	simulator simulator

	logging *logsapi.LoggingConfiguration
}

// flags declares every flag, in the groups that --help shows.
func (o *options) flags() cliflag.NamedFlagSets {
	var sets cliflag.NamedFlagSets

	fs := sets.FlagSet("hardware")
	fs.StringVar(&o.hardware, "hardware", "nvml", "`KIND` of hardware: \"nvml\" for real GPUs through the NVIDIA driver; in programs built with the tag sim also \"sim:MODEL\" for simulated ones, such as sim:dgx-h100, or \"sim:FILE.yaml\" for a model of your own")
	fs.StringVar(&o.simState, "sim-state", "", "`DIR` with the state of simulated GPUs, shared by all processes that simulate this node (default: a temporary one, removed at exit)")
	fs.StringVar(&o.driverRoot, "driver-root", "/", "`DIR` under which the NVIDIA driver is installed: / on a host, /run/nvidia/driver with NVIDIA's driver container")
	fs.StringVar(&o.devRoot, "dev-root", "", "`DIR` that holds dev/nvidia* (default: the driver root)")
	fs.StringVar(&o.hostDriverRoot, "host-driver-root", "", "`DIR` of the driver root on the host, if it differs in the agent's container (default: the same)")
	fs.StringVar(&o.hostDevRoot, "host-dev-root", "", "`DIR` of the device root on the host, if it differs in the agent's container (default: the same)")
	fs.StringVar(&o.cdiHook, "cdi-hook", "", "`FILE` of nvidia-cdi-hook on the host: the container runtime runs it to make the driver's libraries usable (default: a copy of the one next to this program, in the agent's folder)")

	fs = sets.FlagSet("publishing")
	fs.StringVar(&o.offer, "offer", "share", "comma-separated `LIST` of what this node offers besides whole GPUs; known: "+strings.Join(catalog.KnownOffers(), ", ")+". The node's label "+v1alpha1.LabelOffer+" overrides it, with dots for commas (share.mig), and takes effect while the agent runs")
	fs.StringVar(&o.migMode, "mig", "dynamic", "`MODE` of MIG, if it is offered: \"dynamic\" creates MIG devices on demand, \"static\" publishes the MIG devices that an administrator has made and creates none")
	fs.StringVar(&o.migProfiles, "mig-profiles", "common", "`PROFILES` that are created on demand: \"common\" for the smallest of one, two and three slices and the whole GPU, \"all\", or a list such as 1g.10gb,2g.20gb")
	fs.StringVar(&o.migGPUs, "mig-gpus", "all", "`NUMBER` of GPUs that can be cut on demand, the last ones in order of the PCI address, or \"all\"")
	fs.BoolVar(&o.migAllowReset, "mig-allow-reset", false, "reset an idle GPU if a change of its MIG mode needs that (Ampere); otherwise such a GPU is cut only if its MIG mode is already enabled")
	fs.BoolVar(&o.migAttributes, "mig-all-attributes", false, "publish the attributes productName, numaNode and pcieRoot of MIG devices too, which makes the ResourceSlices of a node half as large again")
	fs.BoolVar(&o.listAttributes, "list-attributes", false, "publish list attributes as well (nvlinkPeers, nvlinkCliques as lists); needs the feature gate ListTypeAttributes in the cluster")
	fs.BoolVar(&o.printSlices, "print-slices", false, "print the ResourceSlices as a JSON List and exit, with status 1 if no GPU can be read; needs no cluster")

	o.sharing.flags(sets.FlagSet("sharing"))

	fs = sets.FlagSet("cluster")
	fs.StringVar(&o.driverName, "driver-name", "gpu.nvidia.com", "`NAME` of the driver in ResourceSlices and claims")
	fs.StringVar(&o.nodeName, "node-name", "", "`NAME` of this node in the cluster (default: the host's name)")
	fs.StringVar(&o.kubeconfig, "kubeconfig", "", "`FILE` with the address and credentials of the API server (default: the service account of the agent's pod)")
	fs.DurationVar(&o.reconcileInterval, "reconcile-interval", 5*time.Minute, "time between comparisons of the claims held on this node with the claims in the cluster")

	fs = sets.FlagSet("host")
	fs.StringVar(&o.kubeletPluginsDir, "kubelet-plugins-dir", kubeletplugin.KubeletPluginsDir, "`DIR` of the kubelet for the plugins' sockets. It contains the agent's folder NAME/agent, with the driver's name: the records of prepared claims, which outlive the agent, and the hook. The last agent removes that folder when it ends and no claim is prepared")
	fs.StringVar(&o.kubeletRegistryDir, "kubelet-registry-dir", kubeletplugin.KubeletRegistryDir, "`DIR` of the kubelet in which plugins register")
	fs.StringVar(&o.podResources, "kubelet-pod-resources", podresources.DefaultSocket, "`SOCKET` of the kubelet's PodResources API, which lists the GPUs that pods have through a device plugin: these are not offered until the pods end; empty to offer them")
	fs.StringVar(&o.cdiDir, "cdi-dir", kubeletplugin.DefaultCDIDir, "`DIR` from which the container runtime reads CDI specs")
	fs.StringVar(&o.podUID, "pod-uid", "", "`UID` of the agent's pod, for updates without a gap: the old agent serves until the new one is registered")

	fs = sets.FlagSet("serving")
	fs.StringVar(&o.httpListen, "http-listen", ":8080", "`ADDRESS` for /metrics, /healthz and /readyz; empty for none")

	o.logging = logsapi.NewLoggingConfiguration()
	fs = sets.FlagSet("logging")
	logsapi.AddFlags(o.logging, fs)
	fs.VisitAll(func(f *pflag.Flag) { f.Hidden = strings.HasPrefix(f.Usage, "[Alpha]") })
	return sets
}

// complete fills values that follow from others and refuses what cannot work.
func (o *options) complete() error {
	if o.devRoot == "" {
		o.devRoot = o.driverRoot
	}
	if o.nodeName == "" {
		host, err := os.Hostname()
		if err != nil {
			return fmt.Errorf("--node-name is not given: %w", err)
		}
		o.nodeName = strings.ToLower(host)
	}
	for _, dir := range []*string{&o.driverRoot, &o.devRoot, &o.hostDriverRoot, &o.hostDevRoot, &o.simState, &o.cdiHook, &o.cdiDir, &o.kubeletPluginsDir, &o.kubeletRegistryDir, &o.podResources} {
		if *dir == "" {
			continue
		}
		// CDI specs and sockets are read by other processes.
		abs, err := filepath.Abs(*dir)
		if err != nil {
			return err
		}
		*dir = abs
	}
	invalid := func(flag, value, want string) error {
		return fmt.Errorf("--%s=%s: %w: %s", flag, value, gpu.ErrInvalid, want)
	}
	if err := hardwareflag.Validate(o.hardware, o.simState, o.simulator != nil); err != nil {
		return err
	}
	if o.offer != "" {
		var err error
		if o.offered, err = catalog.ParseOffer(o.offer); err != nil {
			return fmt.Errorf("--%w", err)
		}
	}
	if err := o.completeMIG(); err != nil {
		return err
	}
	if err := o.sharing.complete(); err != nil {
		return err
	}
	if problems := validation.IsDNS1123Subdomain(o.driverName); len(problems) > 0 {
		return invalid("driver-name", o.driverName, strings.Join(problems, "; "))
	}
	if problems := validation.IsDNS1123Subdomain(o.nodeName); len(problems) > 0 {
		return invalid("node-name", o.nodeName, strings.Join(problems, "; "))
	}
	if o.reconcileInterval < time.Second {
		return invalid("reconcile-interval", o.reconcileInterval.String(), "want at least 1s")
	}
	return nil
}

// completeMIG reads how MIG is offered.
func (o *options) completeMIG() error {
	o.mig = catalog.MIGOffer{Static: o.migMode == "static", AllowReset: o.migAllowReset, AllAttributes: o.migAttributes}
	if o.migMode != "static" && o.migMode != "dynamic" {
		return fmt.Errorf("--mig=%s: %w: want dynamic or static", o.migMode, gpu.ErrInvalid)
	}
	var err error
	if o.mig.Profiles, err = catalog.ParseMIGProfiles(o.migProfiles); err != nil {
		return fmt.Errorf("--mig-profiles: %w", err)
	}
	if o.migGPUs == "all" {
		return nil
	}
	if o.mig.GPUs, err = strconv.Atoi(o.migGPUs); err != nil || o.mig.GPUs < 1 {
		return fmt.Errorf("--mig-gpus=%s: %w: want all, or a number from 1 on", o.migGPUs, gpu.ErrInvalid)
	}
	return nil
}

// driverDir is the driver's folder among the kubelet's.
func (o *options) driverDir() string { return filepath.Join(o.kubeletPluginsDir, o.driverName) }

// simulated gives the model of simulated hardware.
func (o *options) simulated() (model string, ok bool) {
	return strings.CutPrefix(o.hardware, "sim:")
}

// catalog describes the node's GPUs as the flags say.
func (o *options) catalog() catalog.Catalog {
	return catalog.Catalog{
		Pool: o.nodeName, Offer: o.offered, MIG: o.mig, ListAttributes: o.listAttributes,
		Shares: o.sharing.shares(), TimeSlices: o.sharing.timeSliceSlots,
	}
}
