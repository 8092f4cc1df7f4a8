// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpu-dra/gpu-dra-driver/simulator/nvmlsim"
)

// migProfiles returns the MIG profiles of each GPU in the models, as a section with a table.
func migProfiles() (string, error) {
	sections := map[string]string{}
	for _, name := range nvmlsim.ModelNames() {
		model, err := nvmlsim.LoadModel(name)
		if err != nil {
			return "", err
		}
		for _, kind := range model.Kinds {
			if kind.MIG != nil {
				sections[kind.Name] = migProfilesOf(kind)
			}
		}
	}
	var out strings.Builder
	var names []string
	for name := range sections {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		fmt.Fprintf(&out, "### %s\n\n%s\n", name, sections[name])
	}
	return strings.TrimSuffix(out.String(), "\n"), nil
}

// migProfilesOf returns the table of the MIG profiles of a GPU.
func migProfilesOf(kind nvmlsim.Kind) string {
	rows := [][]string{{
		"profile", "memory", fmt.Sprintf("SMs of %d", kind.Multiprocessors), fmt.Sprintf("slices of %d", kind.MIG.MemorySlices),
		"copy, decode", "most",
	}}
	for _, p := range kind.MIG.Profiles {
		rows = append(rows, []string{
			code(p.Name),
			fmt.Sprintf("%.1fGi", float64(p.MemoryMiB)/1024),
			fmt.Sprint(p.Multiprocessors), fmt.Sprint(p.Size), fmt.Sprintf("%d/%d", p.CopyEngines, p.Decoders), fmt.Sprint(p.Max),
		})
	}
	return table(rows)
}
