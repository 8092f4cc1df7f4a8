// SPDX-License-Identifier: Apache-2.0

package main

import (
	"debug/buildinfo"
	"fmt"
	"strings"
)

// variant is a way to build the images of a release.
type variant struct {
	// folder of the programs.
	folder string
	// suffix of tags and archives.
	suffix string
	// fips is the version of Go's cryptographic module that programs must have, or empty.
	fips string
}

// variants returns the variants of a release.
func variants(fips string) []variant {
	return []variant{{folder: "none"}, {folder: "fips", suffix: "-fips", fips: fips}}
}

// check returns an error if the program does not belong to the variant. A program
// without the module would be a promise that is not kept, and nothing else shows it.
func (v variant) check(program string) error {
	if v.fips == "" {
		return nil
	}
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return fmt.Errorf("build settings of %s: %w", program, err)
	}
	for _, setting := range info.Settings {
		// Go appends the checksum of the module.
		if setting.Key == "GOFIPS140" && strings.HasPrefix(setting.Value+"-", v.fips+"-") {
			return nil
		}
	}
	return fmt.Errorf("%s is not built with GOFIPS140=%s, which images with the suffix %s promise", program, v.fips, v.suffix)
}
