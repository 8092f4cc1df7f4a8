// SPDX-License-Identifier: Apache-2.0

package migconfig

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	strictjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// version is the only version of the format.
const version = "v1"

// maxCount is more than the partitions of any GPU.
const maxCount = 64

// File is a file with named configurations. Each is valid or not by itself. The zero value
// has none.
type File struct {
	configs map[string]*Config
	invalid map[string]error
}

// Config is a named configuration of a node.
type Config struct {
	Name    string
	entries []entry
}

// entry is the configuration of some GPUs.
type entry struct {
	filters []filter // empty for GPUs of all models
	all     bool
	indices []int // unless all
	mig     bool
	devices []Devices
}

// Devices are equal MIG devices of one GPU.
type Devices struct {
	Profile gpu.Profile
	Count   int
}

// filter is a model of GPU. subsystem is nil if the filter has none.
type filter struct {
	device    uint32
	subsystem *uint32
}

// Parse reads a file. It returns an error only if the file as a whole is not valid. The error
// of a configuration names it and its entry, counted from 1. All errors wrap
// [gpu.ErrInvalid].
func Parse(data []byte) (File, error) {
	text, err := toJSON(data)
	if err != nil {
		return File{}, err
	}
	var head struct {
		Version string                     `json:"version"`
		Configs map[string]json.RawMessage `json:"mig-configs"`
	}
	if err := decode(text, &head); err != nil {
		return File{}, err
	}
	if head.Version != version {
		return File{}, fmt.Errorf("%w: version %q; want version: %s", gpu.ErrInvalid, head.Version, version)
	}
	if len(head.Configs) == 0 {
		return File{}, fmt.Errorf("%w: no mig-configs; want at least one configuration", gpu.ErrInvalid)
	}
	f := File{configs: map[string]*Config{}, invalid: map[string]error{}}
	for name, text := range head.Configs {
		if f.configs[name], err = parseConfig(name, text); err != nil {
			f.invalid[name] = err
			delete(f.configs, name)
		}
	}
	return f, nil
}

// parseConfig reads the entries of a configuration.
func parseConfig(name string, text []byte) (*Config, error) {
	var raw []json.RawMessage
	if err := decode(text, &raw); err != nil {
		return nil, fmt.Errorf("MIG configuration %q: want a list of entries: %w", name, err)
	}
	if len(raw) == 0 {
		return nil, fmt.Errorf("MIG configuration %q: %w: no entry; want at least one", name, gpu.ErrInvalid)
	}
	c := &Config{Name: name}
	for i, text := range raw {
		e, err := parseEntry(text)
		if err != nil {
			return nil, fmt.Errorf("MIG configuration %q, entry %d: %w", name, i+1, err)
		}
		c.entries = append(c.entries, e)
	}
	return c, nil
}

// Names returns the names of the valid configurations, in order.
func (f File) Names() []string { return slices.Sorted(maps.Keys(f.configs)) }

// Invalid returns the errors of the configurations that are not valid, in order of their
// names.
func (f File) Invalid() []error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(f.invalid)) {
		errs = append(errs, f.invalid[name])
	}
	return errs
}

// Config returns the configuration with the name. The error wraps [gpu.ErrNotFound] and
// lists the valid configurations if there is none, or [gpu.ErrInvalid] if it is not valid.
func (f File) Config(name string) (*Config, error) {
	if err := f.invalid[name]; err != nil {
		return nil, err
	}
	if c := f.configs[name]; c != nil {
		return c, nil
	}
	return nil, fmt.Errorf("MIG configuration %q: %w; known are: %s", name, gpu.ErrNotFound, cmp.Or(strings.Join(f.Names(), ", "), "none"))
}

// toJSON returns the only YAML document that is not empty as JSON.
func toJSON(data []byte) ([]byte, error) {
	text := []byte("null")
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return text, nil
		}
		if err == nil {
			document, err = yaml.YAMLToJSONStrict(document)
		}
		switch {
		case err != nil:
			return nil, fmt.Errorf("%w: not YAML: %w", gpu.ErrInvalid, err)
		case string(document) == "null":
		case string(text) != "null":
			return nil, fmt.Errorf("%w: more than one YAML document", gpu.ErrInvalid)
		default:
			text = document
		}
	}
}

// decode decodes JSON without unknown or repeated fields.
func decode(text []byte, into any) error {
	strict, err := strictjson.UnmarshalStrict(text, into)
	if err := cmp.Or(err, errors.Join(strict...)); err != nil {
		return fmt.Errorf("%w: %w", gpu.ErrInvalid, err)
	}
	return nil
}

func parseEntry(text []byte) (entry, error) {
	var raw struct {
		Filter  json.RawMessage `json:"device-filter"`
		Devices json.RawMessage `json:"devices"`
		Enabled *bool           `json:"mig-enabled"`
		Counts  *map[string]int `json:"mig-devices"`
	}
	if err := decode(text, &raw); err != nil {
		return entry{}, err
	}
	switch {
	case raw.Devices == nil:
		return entry{}, fmt.Errorf(`%w: no devices; want "all" or a list of indices`, gpu.ErrInvalid)
	case raw.Enabled == nil:
		return entry{}, fmt.Errorf("%w: no mig-enabled; want true or false", gpu.ErrInvalid)
	case *raw.Enabled && raw.Counts == nil:
		return entry{}, fmt.Errorf("%w: no mig-devices, and mig-enabled is true; want profiles with their counts, or {} for MIG on demand", gpu.ErrInvalid)
	case !*raw.Enabled && raw.Counts != nil && len(*raw.Counts) > 0:
		return entry{}, fmt.Errorf("%w: mig-devices, and mig-enabled is false", gpu.ErrInvalid)
	}
	e := entry{mig: *raw.Enabled}
	err := e.parseDevices(raw.Devices)
	if err == nil {
		e.filters, err = parseFilters(raw.Filter)
	}
	if err == nil && raw.Counts != nil {
		e.devices, err = parseCounts(*raw.Counts)
	}
	return e, err
}

// parseDevices reads "all" or a list of indices.
func (e *entry) parseDevices(text []byte) error {
	var all string
	if decode(text, &all) == nil && all == "all" {
		e.all = true
		return nil
	}
	if err := decode(text, &e.indices); err != nil || len(e.indices) == 0 || slices.Min(e.indices) < 0 {
		return fmt.Errorf(`%w: devices: %s; want "all" or a list of indices from 0, such as [0, 1]`, gpu.ErrInvalid, text)
	}
	return nil
}

// parseFilters reads a filter or a list of filters.
func parseFilters(text []byte) ([]filter, error) {
	var one string
	var list []string
	switch {
	case text == nil:
		return nil, nil
	case decode(text, &one) == nil:
		if one != "" {
			list = []string{one}
		}
	default:
		if err := decode(text, &list); err != nil {
			return nil, fmt.Errorf("%w: device-filter: %s; want a text or a list of texts", gpu.ErrInvalid, text)
		}
	}
	var filters []filter
	for _, s := range list {
		device, subsystem, hasSubsystem := strings.Cut(s, ":")
		var f filter
		var err error
		if f.device, err = parseID(device); err == nil && hasSubsystem {
			f.subsystem = new(uint32)
			*f.subsystem, err = parseID(subsystem)
		}
		if err != nil {
			return nil, fmt.Errorf("%w: device-filter %q; want the IDs of device and vendor, such as 0x233010DE, and those of the subsystem after a colon if needed", gpu.ErrInvalid, s)
		}
		filters = append(filters, f)
	}
	return filters, nil
}

// parseID reads a PCI ID: the device's or subsystem's in the upper 16 bits, the
// vendor's in the lower ones.
func parseID(s string) (uint32, error) {
	id, err := strconv.ParseUint(s, 0, 32)
	return uint32(id), err
}

// parseCounts returns the MIG devices, large ones first.
func parseCounts(counts map[string]int) ([]Devices, error) {
	var devices []Devices
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		n := counts[name]
		p, err := gpu.ParseProfile(name)
		switch {
		case err != nil && strings.Contains(name, "c."):
			return nil, fmt.Errorf("%w; compute instances such as 1c.2g.20gb are not supported", err)
		case err != nil:
			return nil, err
		case n < 0 || n > maxCount:
			return nil, fmt.Errorf("%w: %d MIG devices %s; want a number that a GPU can have", gpu.ErrInvalid, n, name)
		case n > 0:
			devices = append(devices, Devices{p, n})
		}
	}
	if len(counts) > 0 && len(devices) == 0 {
		return nil, fmt.Errorf("%w: all counts of mig-devices are 0", gpu.ErrInvalid)
	}
	slices.SortStableFunc(devices, func(a, b Devices) int {
		return cmp.Or(cmp.Compare(b.Profile.Slices, a.Profile.Slices), cmp.Compare(b.Profile.MemoryGB, a.Profile.MemoryGB))
	})
	return devices, nil
}
