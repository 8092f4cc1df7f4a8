// SPDX-License-Identifier: Apache-2.0

package smisim

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-dra/gpu-dra-driver/simulator/nvmlsim"
)

// migOptions are the arguments of nvidia-smi mig, and the mode of nvidia-smi -mig.
type migOptions struct {
	mode string
	// gpuProfiles and computeProfiles are the profiles to create.
	gpuProfiles, computeProfiles string
	withCompute                  bool
	// gpuInstances and computeInstances are IDs; empty for all.
	gpuInstances, computeInstances string
}

// longNames has the long names of the options that have several letters after one dash.
var longNames = map[string]string{
	"-mig": "--multi-instance-gpu", "-gi": "--gpu-instance-id", "-ci": "--compute-instance-id",
	"-cgi": createGPUInstance, "-dgi": destroyGPUInstance, "-lgi": listGPUInstances,
	"-cci": createComputeInstance, "-dci": destroyComputeInstance, "-lci": listComputeInstances,
}

// The actions of nvidia-smi mig.
const (
	createGPUInstance      = "--create-gpu-instance"
	destroyGPUInstance     = "--destroy-gpu-instance"
	listGPUInstances       = "--list-gpu-instances"
	createComputeInstance  = "--create-compute-instance"
	destroyComputeInstance = "--destroy-compute-instance"
	listComputeInstances   = "--list-compute-instances"
)

var migActions = []string{
	createGPUInstance, destroyGPUInstance, listGPUInstances, createComputeInstance, destroyComputeInstance, listComputeInstances,
}

// words are NVML's texts for return codes.
func words(ret nvml.Return) string {
	return cmp.Or(map[nvml.Return]string{
		nvml.ERROR_IN_USE: "In use by another client", nvml.ERROR_INSUFFICIENT_RESOURCES: "Insufficient Resources",
		nvml.ERROR_NOT_SUPPORTED: "Not Supported", nvml.ERROR_NOT_FOUND: "Not Found", nvml.ERROR_INVALID_ARGUMENT: "Invalid Argument",
		nvml.ERROR_RESET_REQUIRED: "Reset Required",
	}[ret], nvmlsim.ReturnName(ret))
}

// setMIGMode switches the MIG mode of GPUs.
func setMIGMode(s *nvmlsim.Sim, ids, mode string, out io.Writer) error {
	verb, ok := map[string]string{"0": "disable", "DISABLED": "disable", "1": "enable", "ENABLED": "enable"}[strings.ToUpper(mode)]
	if !ok {
		return errUsage
	}
	number := nvml.DEVICE_MIG_DISABLE
	if verb == "enable" {
		number = nvml.DEVICE_MIG_ENABLE
	}
	err := forDevices(s, ids, func(index int, device nvml.Device) error {
		bus := "0000" + strings.ToUpper(s.Model().GPUs[index].Address)
		activation, ret := device.SetMigMode(number)
		if ret != nvml.SUCCESS {
			return refuse(ret, "Unable to %s MIG Mode for GPU %s: %s\nTerminating early due to previous errors.", verb, bus, words(ret))
		}
		if activation != nvml.SUCCESS {
			_, err := fmt.Fprintf(out, "Warning: MIG mode is in pending %s state for GPU %s:%s\n", verb, bus, words(activation))
			return err
		}
		_, err := fmt.Fprintf(out, "%s%sd MIG Mode for GPU %s\n", strings.ToUpper(verb[:1]), verb[1:], bus)
		return err
	})
	if err == nil {
		_, err = fmt.Fprintln(out, "All done.")
	}
	return err
}

// changeMIG creates, destroys or lists instances of the GPUs in MIG mode.
func changeMIG(s *nvmlsim.Sim, action, ids string, o migOptions, out io.Writer) error {
	enabled := false
	var rows []string
	err := forDevices(s, ids, func(index int, device nvml.Device) error {
		current, _, ret := device.GetMigMode()
		if isOn := ret == nvml.SUCCESS && current == nvml.DEVICE_MIG_ENABLE; !isOn {
			return nil
		}
		enabled = true
		g := migGPU{device: device, index: index, kind: s.Model().Kinds[s.Model().GPUs[index].Kind], out: out}
		if action == createGPUInstance {
			return g.create(o)
		}
		instances := g.instances(o.gpuInstances)
		if o.gpuInstances != "" && len(instances) == 0 {
			return refuse(nvml.ERROR_NOT_FOUND, "Unable to find GPU instance ID %s on GPU %2d: Not Found", o.gpuInstances, index)
		}
		for _, in := range instances {
			if action == listGPUInstances {
				rows = append(rows, fmt.Sprintf("| %3d  %-18s %3d      %3d        %3d:%-3d   |", index, in.name, in.info.ProfileId, in.info.Id, in.info.Placement.Start, in.info.Placement.Size))
				continue
			}
			if err := in.change(action, o, &rows); err != nil {
				return err
			}
		}
		return nil
	})
	switch {
	case err != nil:
		return err
	case !enabled:
		return refuse(nvml.ERROR_NOT_FOUND, "No MIG-enabled devices found.")
	case action == listGPUInstances:
		return table(out, "GPU", rows,
			"| GPU instances:                                        |",
			"| GPU   Name             Profile  Instance   Placement  |",
			"|                          ID       ID       Start:Size |")
	case action == listComputeInstances:
		return table(out, "compute", rows,
			"| Compute instances:                                                 |",
			"| GPU     GPU       Name             Profile   Instance   Placement  |",
			"|       Instance                       ID        ID       Start:Size |",
			"|         ID                                                         |")
	}
	return nil
}

// table prints rows below titles of the same width.
func table(out io.Writer, noun string, rows []string, titles ...string) error {
	if len(rows) == 0 {
		return refuse(nvml.ERROR_NOT_FOUND, "No %s instances found: Not Found", noun)
	}
	line := func(fill string) string { return strings.Repeat(fill, len(titles[0])-2) }
	_, err := fmt.Fprintf(out, "+%s+\n%s\n|%s|\n%s\n+%s+\n", line("-"), strings.Join(titles, "\n"), line("="), strings.Join(rows, "\n"), line("-"))
	return err
}

// migGPU is a GPU in MIG mode.
type migGPU struct {
	device nvml.Device
	index  int
	kind   nvmlsim.Kind
	out    io.Writer
}

// migInstance is a GPU instance.
type migInstance struct {
	migGPU
	handle nvml.GpuInstance
	info   nvml.GpuInstanceInfo
	name   string // such as "MIG 3g.40gb"
}

// instances returns the GPU instances with the IDs, or all.
func (g migGPU) instances(ids string) []migInstance {
	var found []migInstance
	for _, p := range g.kind.MIG.Profiles {
		profile, _ := g.device.GetGpuInstanceProfileInfo(p.Profile)
		handles, _ := g.device.GetGpuInstances(&profile)
		for _, handle := range handles {
			in := g.instance(handle, p)
			if isNamed(ids, in.info.Id) {
				found = append(found, in)
			}
		}
	}
	slices.SortFunc(found, func(a, b migInstance) int { return cmp.Compare(a.info.Id, b.info.Id) })
	return found
}

func (g migGPU) instance(handle nvml.GpuInstance, p nvmlsim.MIGProfile) migInstance {
	info, _ := handle.GetInfo()
	return migInstance{migGPU: g, handle: handle, info: info, name: "MIG " + p.Name}
}

// isNamed reports whether the list has the ID, or is empty.
func isNamed(ids string, id uint32) bool {
	return ids == "" || slices.Contains(strings.Split(ids, ","), strconv.Itoa(int(id)))
}

// create creates GPU instances. A profile is its number or name, with ":start" for a placement.
func (g migGPU) create(o migOptions) error {
	for spec := range strings.SplitSeq(o.gpuProfiles, ",") {
		name, start, placed := strings.Cut(strings.TrimPrefix(strings.TrimSpace(spec), "MIG "), ":")
		i := slices.IndexFunc(g.kind.MIG.Profiles, func(p nvmlsim.MIGProfile) bool { return name == p.Name || name == strconv.Itoa(p.ID) })
		if i < 0 {
			return refuse(nvml.ERROR_INVALID_ARGUMENT, "Unable to find GPU instance profile %s on GPU %2d: Invalid Argument", name, g.index)
		}
		p := g.kind.MIG.Profiles[i]
		profile, ret := g.device.GetGpuInstanceProfileInfo(p.Profile)
		var handle nvml.GpuInstance
		at, err := strconv.Atoi(start)
		switch {
		case ret != nvml.SUCCESS:
		case !placed:
			handle, ret = g.device.CreateGpuInstance(&profile)
		case err != nil:
			ret = nvml.ERROR_INVALID_ARGUMENT
		default:
			handle, ret = g.device.CreateGpuInstanceWithPlacement(&profile, &nvml.GpuInstancePlacement{Start: uint32(at), Size: uint32(p.Size)})
		}
		if ret != nvml.SUCCESS {
			return refuse(ret, "Unable to create a GPU instance on GPU %2d using profile MIG %s (ID %2d): %s\nFailed to create GPU instances: %s", g.index, p.Name, p.ID, words(ret), words(ret))
		}
		in := g.instance(handle, p)
		if _, err := fmt.Fprintf(g.out, "Successfully created GPU instance ID %2d on GPU %2d using profile %s (ID %2d)\n", in.info.Id, g.index, in.name, p.ID); err != nil {
			return err
		}
		if o.withCompute {
			if err := in.createCompute(""); err != nil {
				return err
			}
		}
	}
	return nil
}

// computeProfiles returns the profiles of the instance's compute instances.
func (in migInstance) computeProfiles() []nvml.ComputeInstanceProfileInfo {
	var profiles []nvml.ComputeInstanceProfileInfo
	for number := range nvml.COMPUTE_INSTANCE_PROFILE_COUNT {
		if p, ret := in.handle.GetComputeInstanceProfileInfo(number, nvml.COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED); ret == nvml.SUCCESS {
			profiles = append(profiles, p)
		}
	}
	return profiles
}

// computeName returns the name of a compute instance: "MIG 1c.3g.40gb" if it is a part of its
// GPU instance.
func (in migInstance) computeName(slices uint32) string {
	name := strings.TrimPrefix(in.name, "MIG ")
	if strings.HasPrefix(name, fmt.Sprintf("%dg.", slices)) {
		return in.name
	}
	return fmt.Sprintf("MIG %dc.%s", slices, name)
}

// createCompute creates a compute instance by the number of its profile, or one that takes
// the whole instance.
func (in migInstance) createCompute(number string) error {
	profiles := in.computeProfiles()
	i := slices.IndexFunc(profiles, func(p nvml.ComputeInstanceProfileInfo) bool {
		return number == strconv.Itoa(int(p.Id)) || number == "" && in.computeName(p.SliceCount) == in.name
	})
	if i < 0 {
		return refuse(nvml.ERROR_INVALID_ARGUMENT, "Unable to find compute instance profile %s on GPU %2d GPU instance ID %2d: Invalid Argument", number, in.index, in.info.Id)
	}
	name := in.computeName(profiles[i].SliceCount)
	handle, ret := in.handle.CreateComputeInstance(&profiles[i])
	if ret != nvml.SUCCESS {
		return refuse(ret, "Unable to create a compute instance on GPU %2d GPU instance ID %2d using profile %s (ID %2d): %s\nFailed to create compute instances: %s",
			in.index, in.info.Id, name, profiles[i].Id, words(ret), words(ret))
	}
	info, _ := handle.GetInfo()
	_, err := fmt.Fprintf(in.out, "Successfully created compute instance ID %2d on GPU %2d GPU instance ID %2d using profile %s (ID %2d)\n",
		info.Id, in.index, in.info.Id, name, info.ProfileId)
	return err
}

// change does an action on the instance or its compute instances.
func (in migInstance) change(action string, o migOptions, rows *[]string) error {
	switch action {
	case destroyGPUInstance:
		if ret := in.handle.Destroy(); ret != nvml.SUCCESS {
			return refuse(ret, "Unable to destroy GPU instance ID %2d from GPU %2d: %s\nFailed to destroy GPU instances: %s", in.info.Id, in.index, words(ret), words(ret))
		}
		_, err := fmt.Fprintf(in.out, "Successfully destroyed GPU instance ID %2d from GPU %2d\n", in.info.Id, in.index)
		return err
	case createComputeInstance:
		for number := range strings.SplitSeq(o.computeProfiles, ",") {
			if err := in.createCompute(number); err != nil {
				return err
			}
		}
		return nil
	}
	for _, p := range in.computeProfiles() {
		handles, _ := in.handle.GetComputeInstances(&p)
		for _, handle := range handles {
			info, _ := handle.GetInfo()
			if !isNamed(o.computeInstances, info.Id) {
				continue
			}
			if action == listComputeInstances {
				*rows = append(*rows, fmt.Sprintf("| %3d    %3d       %-18s %3d       %3d        %3d:%-3d   |",
					in.index, in.info.Id, in.computeName(p.SliceCount), info.ProfileId, info.Id, info.Placement.Start, info.Placement.Size))
				continue
			}
			if ret := handle.Destroy(); ret != nvml.SUCCESS {
				return refuse(ret, "Unable to destroy compute instance ID %2d from GPU %2d GPU instance ID %2d: %s\nFailed to destroy compute instances: %s",
					info.Id, in.index, in.info.Id, words(ret), words(ret))
			}
			if _, err := fmt.Fprintf(in.out, "Successfully destroyed compute instance ID %2d from GPU %2d GPU instance ID %2d\n", info.Id, in.index, in.info.Id); err != nil {
				return err
			}
		}
	}
	return nil
}
