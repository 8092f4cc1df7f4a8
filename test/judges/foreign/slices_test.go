// SPDX-License-Identifier: Apache-2.0

package foreign

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/gpu-dra/gpu-dra-driver/simulator/nvmlsim"
)

// differences is the document with the table of all differences between the slices of both
// drivers, and their reasons.
const differences = "docs/dev/upstream/nvidia.md"

// TestSlicesDifferOnlyAsDocumented compares the devices that NVIDIA's driver and ours publish
// for the same machine, attribute by attribute.
func TestSlicesDifferOnlyAsDocumented(t *testing.T) {
	found := map[string]bool{}
	for _, model := range nvmlsim.ModelNames() {
		t.Run(model, func(t *testing.T) {
			machine := newMachine(t, model)
			theirs := byIdentity(startNVIDIA(t, machine, "DynamicMIG=true"))
			ours := byIdentity(ourDevices(t, machine))
			for _, id := range slices.Sorted(maps.Keys(theirs)) {
				if _, is := ours[id]; !is {
					found["no device "+kindOf(id)] = true
					t.Logf("only NVIDIA's driver publishes %s", id)
					continue
				}
				for name, verdict := range compare(theirs[id], ours[id]) {
					found[kindOf(id)+" "+name+": "+verdict] = true
				}
			}
			if len(ours) == 0 {
				t.Error("no devices of ours")
			}
		})
	}
	var got []string
	for _, difference := range slices.Sorted(maps.Keys(found)) {
		if !strings.HasSuffix(difference, ": same") {
			got = append(got, difference)
		}
	}
	if want := documented(t); !slices.Equal(got, want) {
		t.Errorf("the slices differ in\n%s\nand %s has\n%s", strings.Join(got, "\n"), differences, strings.Join(want, "\n"))
	}
}

// documented returns the differences that the document names, in order.
func documented(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(cluster.Root, differences))
	must(t, err)
	var found []string
	for _, row := range regexp.MustCompile("(?m)^\\| (gpu|mig) \\| (attribute|capacity) \\| (`[^|]+`) \\| (theirs|ours|differs) \\|").FindAllStringSubmatch(string(text), -1) {
		for name := range strings.SplitSeq(row[3], ", ") {
			found = append(found, fmt.Sprintf("%s %s %s: %s", row[1], row[2], strings.Trim(name, "`"), row[4]))
		}
	}
	slices.Sort(found)
	return found
}

// ourDevices returns the devices that our agent publishes for a machine. It offers all MIG
// profiles and no shares, as NVIDIA's driver does.
func ourDevices(t *testing.T, machine string) []resourceapi.Device {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), cluster.Program("gpu-kubelet-plugin"), "--print-slices", "--driver-root="+machine, "--machine-root="+machine,
		"--offer=mig", "--mig-profiles=all", "--mig-allow-reset", "--node-name="+cluster.NodeName).Output()
	must(t, err)
	var list struct{ Items []resourceapi.ResourceSlice }
	must(t, json.Unmarshal(out, &list))
	var devices []resourceapi.Device
	for _, slice := range list.Items {
		devices = append(devices, slice.Spec.Devices...)
	}
	return devices
}

// byIdentity returns the devices by what both drivers name: the UUID of a GPU, or the
// parent and the profile of a MIG device. Of equal MIG devices it keeps the first.
func byIdentity(devices []resourceapi.Device) map[string]resourceapi.Device {
	found := map[string]resourceapi.Device{}
	for _, device := range devices {
		id := "gpu " + value(device, "uuid")
		if value(device, "type") == "mig" {
			id = "mig " + value(device, "parentUUID") + " " + value(device, "profile")
		}
		if _, is := found[id]; !is {
			found[id] = device
		}
	}
	return found
}

func kindOf(id string) string { return id[:3] }

func value(device resourceapi.Device, attribute resourceapi.QualifiedName) string {
	if a := device.Attributes[attribute]; a.StringValue != nil {
		return *a.StringValue
	}
	return ""
}

// compare returns for each attribute and capacity of two devices whether it is the same,
// differs, or is only one driver's.
func compare(theirs, ours resourceapi.Device) map[string]string {
	facts := func(device resourceapi.Device) map[string]string {
		found := map[string]string{}
		for name, attribute := range device.Attributes {
			text, _ := json.Marshal(attribute) // it has only scalars
			found["attribute "+string(name)] = string(text)
		}
		for name, capacity := range device.Capacity {
			found["capacity "+string(name)] = capacity.Value.String()
		}
		return found
	}
	a, b := facts(theirs), facts(ours)
	verdicts := map[string]string{}
	for name := range a {
		verdicts[name] = "theirs"
		if other, is := b[name]; is && other == a[name] {
			verdicts[name] = "same"
		} else if is {
			verdicts[name] = "differs"
		}
	}
	for name := range b {
		if _, is := a[name]; !is {
			verdicts[name] = "ours"
		}
	}
	return verdicts
}
