// SPDX-License-Identifier: Apache-2.0

package smisim

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/spf13/pflag"

	"github.com/gpu-dra/gpu-dra-driver/simulator/nvmlsim"
	"github.com/gpu-dra/gpu-dra-driver/simulator/simerr"
)

// Program is nvidia-smi of a node or of a container.
type Program struct {
	// root is the root file system with the device nodes.
	root   string
	tables *nvmlsim.SMITables
	// sim is nil in a container.
	sim *nvmlsim.Sim
}

// OnNode returns the program for a node.
func OnNode(s *nvmlsim.Sim) (*Program, error) {
	tables, err := s.SMITables()
	if err != nil {
		return nil, err
	}
	return &Program{root: s.Root(), tables: tables, sim: s}, nil
}

// InContainer returns the program for the container whose root file system has the
// program at the absolute path.
func InContainer(path string) (*Program, error) {
	for dir := path; dir != "/"; {
		dir = filepath.Dir(dir)
		// In most images /lib is a link to /usr/lib, so /usr has the tables too, but no dev.
		if _, err := os.Stat(filepath.Join(dir, "dev")); err != nil {
			continue
		}
		tables, err := nvmlsim.ReadSMITables(dir)
		if err == nil {
			return &Program{root: dir, tables: tables}, nil
		}
		if !errors.Is(err, simerr.ErrNotFound) {
			return nil, err
		}
	}
	return nil, refuse(nvml.ERROR_DRIVER_NOT_LOADED, "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver: "+
		"the firmware of a simulated driver is not mounted here (lib/firmware/nvidia/VERSION/gsp_ga10x.bin).")
}

// refusal is an error in the words and with the exit status of the real program.
type refusal struct {
	status nvml.Return
	text   string
}

func refuse(status nvml.Return, format string, args ...any) error {
	return refusal{status, fmt.Sprintf(format, args...)}
}

func (r refusal) Error() string { return r.text }

var (
	errUsage     = refuse(nvml.ERROR_INVALID_ARGUMENT, "Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.")
	errNoDevices = refuse(nvml.ERROR_NOT_FOUND, "No devices were found")
)

const usage = `nvidia-smi [-i ID[,ID]...]                        a table of the GPUs
nvidia-smi [-i ID[,ID]...] -L                     a line for each GPU and MIG device
nvidia-smi [-i ID[,ID]...] --query-gpu=FIELD[,FIELD]... --format=csv[,noheader][,nounits]
nvidia-smi topo -m                                how the GPUs are connected
On the node itself also: --gpu-reset -i ID, -c MODE, compute-policy, -mig 0|1,
mig -cgi PROFILE[,PROFILE]... [-C], mig -cci [PROFILE] [-gi ID], mig -lgi, mig -lci,
mig -dci [-gi ID] [-ci ID], mig -dgi [-gi ID].
`

// options are the arguments of the program.
type options struct {
	actions []string
	// ids selects GPUs; empty for all.
	ids             string
	fields, format  string
	matrix          bool
	mode, timeSlice string
	mig             migOptions
	listPolicies    bool
	help, version   bool
}

// The actions. Without one the program prints a table.
const (
	list          = "list"
	query         = "query"
	topology      = "topo"
	reset         = "reset"
	setMode       = "mode"
	computePolicy = "compute-policy"
	migMode       = "mig-mode"
	mig           = "mig"
)

func parse(args []string) (options, error) {
	var o options
	flags := pflag.NewFlagSet(nvmlsim.SMIName, pflag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.BoolP("list-gpus", "L", false, "")
	flags.StringVar(&o.fields, "query-gpu", "", "")
	flags.StringVar(&o.format, "format", "", "")
	flags.StringVarP(&o.ids, "id", "i", "", "")
	flags.BoolVarP(&o.matrix, "matrix", "m", false, "")
	flags.BoolP("gpu-reset", "r", false, "")
	flags.StringVarP(&o.mode, "compute-mode", "c", "", "")
	flags.BoolVarP(&o.listPolicies, "list", "l", false, "")
	flags.StringVar(&o.timeSlice, "set-timeslice", "", "")
	flags.StringVar(&o.mig.mode, "multi-instance-gpu", "", "")
	flags.StringVar(&o.mig.gpuProfiles, createGPUInstance[2:], "", "")
	flags.BoolVarP(&o.mig.withCompute, "default-compute-instance", "C", false, "")
	flags.StringVar(&o.mig.computeProfiles, createComputeInstance[2:], "", "")
	flags.StringVar(&o.mig.gpuInstances, "gpu-instance-id", "", "")
	flags.StringVar(&o.mig.computeInstances, "compute-instance-id", "", "")
	for _, action := range []string{destroyGPUInstance, listGPUInstances, destroyComputeInstance, listComputeInstances} {
		flags.Bool(action[2:], false, "")
	}
	flags.BoolVarP(&o.help, "help", "h", false, "")
	flags.BoolVar(&o.version, "version", false, "")
	args = slices.Clone(args)
	for i, arg := range args {
		args[i] = cmp.Or(longNames[arg], arg)
		// Its profile can be left out.
		if args[i] == createComputeInstance && (i+1 == len(args) || strings.HasPrefix(args[i+1], "-")) {
			args[i] += "="
		}
	}
	if err := flags.Parse(args); err != nil {
		return o, errUsage
	}
	o.actions = flags.Args()
	for _, action := range migActions {
		if flags.Changed(action[2:]) {
			o.actions = append(o.actions, action)
		}
	}
	for flag, action := range map[string]string{"list-gpus": list, "query-gpu": query, "gpu-reset": reset, "compute-mode": setMode, "multi-instance-gpu": migMode} {
		if flags.Changed(flag) {
			o.actions = append(o.actions, action)
		}
	}
	return o, nil
}

// Run runs the program with arguments. [ExitStatus] is the exit status for its error.
func (p *Program) Run(args []string, out io.Writer) error {
	o, err := parse(args)
	switch {
	case err != nil:
		return err
	case o.help:
		_, err := io.WriteString(out, usage)
		return err
	case cmp.Or(p.tables.ModuleVersion, p.tables.DriverVersion) != p.tables.DriverVersion:
		return refuse(nvml.ERROR_LIB_RM_VERSION_MISMATCH, "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: %s",
			strings.TrimSuffix(p.tables.DriverVersion, filepath.Ext(p.tables.DriverVersion)))
	case o.version:
		version := p.tables.DriverVersion
		_, err := fmt.Fprintf(out, "NVIDIA-SMI version  : %s\nNVML version        : %s\nDRIVER version      : %s\nCUDA Version        : %s\n",
			version, strings.TrimSuffix(version, filepath.Ext(version)), version, p.tables.CUDAVersion)
		return err
	}
	action := ""
	if len(o.actions) > 0 {
		action = o.actions[0]
	}
	policy := o.listPolicies || o.timeSlice != ""
	if len(o.actions) == 2 && action == mig {
		return p.change(o.actions[1], o, out)
	}
	if len(o.actions) > 1 || o.format != "" && action != query || o.matrix != (action == topology) || policy && action != computePolicy {
		return errUsage
	}
	switch action {
	case reset, setMode, computePolicy, migMode:
		return p.change(action, o, out)
	}
	// Nothing is printed before an error.
	var b bytes.Buffer
	switch visible := p.visible(); action {
	case "":
		err = p.printTable(&b, visible, o)
	case list:
		err = printList(&b, visible, o)
	case query:
		err = p.printQuery(&b, visible, o)
	case topology:
		err = printTopology(&b, visible, o)
	default:
		return errUsage
	}
	if err != nil {
		return err
	}
	_, err = b.WriteTo(out)
	return err
}

// change runs an action that needs the node.
func (p *Program) change(action string, o options, out io.Writer) error {
	switch {
	case p.sim == nil:
		return refuse(nvml.ERROR_NO_PERMISSION, "Insufficient permissions: simulated NVIDIA driver %s: use gpu-sim on the host", p.tables.DriverVersion)
	case action == reset:
		return resetGPUs(p.sim, o.ids, out)
	case action == setMode:
		return setComputeMode(p.sim, o.ids, o.mode, out)
	case action == migMode:
		return setMIGMode(p.sim, o.ids, o.mig.mode, out)
	case strings.HasPrefix(action, "--"):
		return changeMIG(p.sim, action, o.ids, o.mig, out)
	case o.listPolicies:
		return listPolicies(p.sim, o.ids, out)
	case o.timeSlice != "":
		return setTimeSlice(p.sim, o.ids, o.timeSlice, out)
	}
	return errUsage
}
