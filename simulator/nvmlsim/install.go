// SPDX-License-Identifier: Apache-2.0

package nvmlsim

import (
	"bytes"
	"debug/elf"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/gpu-dra/gpu-dra-driver/simulator/simerr"
)

// InstallLibrary copies the simulated libnvidia-ml.so.1 into the root file system of the
// node. It replaces the empty library that [Create] writes. Programs do not find the functions
// in it that the model's driver does not have. A program that has loaded an earlier copy
// keeps it.
func (s *Sim) InstallLibrary(path string) error {
	library, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("install the simulated libnvidia-ml: %w", err)
	}
	functions, err := functionsOf(library)
	if err != nil {
		return fmt.Errorf("install the simulated libnvidia-ml from %s: %w", path, err)
	}
	functions.hide(s.node.missing)
	name := filepath.Join(libraryDirs[s.node.model.Platform], "libnvidia-ml.so."+s.node.model.DriverVersion)
	if err := updateFile(s.tree().path(name), library, 0o755); err != nil {
		return fmt.Errorf("install the simulated libnvidia-ml: %w", err)
	}
	return nil
}

// functions are the functions that a library exports.
type functions struct {
	names []string
	// table is the part of the library with the names, each with a zero at its end.
	table []byte
}

// functionsOf returns the functions of NVML in a library.
func functionsOf(library []byte) (functions, error) {
	file, err := elf.NewFile(bytes.NewReader(library))
	if err != nil {
		return functions{}, fmt.Errorf("%w: %w", simerr.ErrInvalid, err)
	}
	defer func() { _ = file.Close() }()
	var f functions
	symbols, err := file.DynamicSymbols()
	if err != nil {
		return functions{}, fmt.Errorf("%w: %w", simerr.ErrInvalid, err)
	}
	for _, symbol := range symbols {
		if strings.HasPrefix(symbol.Name, "nvml") {
			f.names = append(f.names, symbol.Name)
		}
	}
	table := file.Section(".dynstr")
	if table == nil || len(f.names) == 0 {
		return functions{}, fmt.Errorf("%w: it has no function of NVML", simerr.ErrInvalid)
	}
	f.table = library[table.Offset : table.Offset+table.FileSize]
	return f, nil
}

// hide renames functions, which are given without the nvml of their names. Programs then do
// not find them.
func (f functions) hide(missing map[string]bool) {
	for _, name := range f.names {
		if !missing[strings.TrimPrefix(name, "nvml")] {
			continue
		}
		// The linker may have put the name at the end of another one, such as the name of
		// the function in Go. No program looks that one up.
		for at := bytes.Index(f.table, []byte(name+"\x00")); at >= 0; at = bytes.Index(f.table, []byte(name+"\x00")) {
			f.table[at] = '_'
		}
	}
}
