// SPDX-License-Identifier: Apache-2.0

package migconfig_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog/migconfig"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

const (
	a100 = 0x20b210de
	h100 = 0x233010de
	t4   = 0x1eb810de
)

// node returns GPUs with the PCI IDs, in order. All but the T4 have MIG.
func node(ids ...uint32) gpu.Node {
	var n gpu.Node
	for i, id := range ids {
		n.GPUs = append(n.GPUs, gpu.GPU{
			Address: gpu.PCIAddress{Bus: uint8(0x10 + i)}, PCIDevice: id, PCISubsystem: 0x16c110de,
			MIG: gpu.MIG{Capable: id != t4},
		})
	}
	return n
}

// config returns the configuration "a" with the entries.
func config(entries ...string) string {
	return "version: v1\nmig-configs:\n  a:\n" + strings.Join(entries, "")
}

func entry(fields ...string) string { return "  - " + strings.Join(fields, "\n    ") + "\n" }

func TestEveryFormOfAnEntry(t *testing.T) {
	text := `# Of a machine.
---
version: v1
mig-configs:
  all-disabled:
  - devices: all
    mig-enabled: false
  all-enabled:
  - devices: all
    mig-enabled: true
    mig-devices: {}
  all-balanced:
  - device-filter: ["0x233110DE", "0x233010DE"]
    devices: all
    mig-enabled: true
    mig-devices: {"1g.10gb": 2, "2g.20gb": 1, "3g.40gb": 1, "4g.40gb": 0}
  - device-filter: "0x20B210DE"
    devices: all
    mig-enabled: true
    mig-devices: {"1g.5gb+me": 1}
  some:
  - devices: [0, 2]
    mig-enabled: true
    mig-devices: {"7g.80gb": 1}
  - devices: [1]
    mig-enabled: false
  subsystem:
  - device-filter: 0x233010DE:0x16C110DE
    devices: all
    mig-enabled: true
    mig-devices: {"7g.80gb": 1}
  - device-filter: 0x233010DE:0x16C210DE
    devices: all
    mig-enabled: false
`
	file, err := migconfig.Parse([]byte(text))
	must(t, err)
	if names := file.Names(); !slices.Equal(names, []string{"all-balanced", "all-disabled", "all-enabled", "some", "subsystem"}) {
		t.Errorf("names %q", names)
	}
	for _, c := range []struct {
		config string
		node   gpu.Node
		want   string
	}{
		{"all-disabled", node(h100, h100), "10 off\n11 off\n"},
		{"all-enabled", node(h100, h100), "10 on demand\n11 on demand\n"},
		{"all-balanced", node(h100, t4, a100), "10 3g.40gb*1 2g.20gb*1 1g.10gb*2\n12 1g.5gb+me*1\n"},
		{"some", node(h100, h100, h100, h100), "10 7g.80gb*1\n11 off\n12 7g.80gb*1\n"},
		{"subsystem", node(h100), "10 7g.80gb*1\n"},
		{"all-enabled", node(t4), ""},
		{"some", node(), ""},
	} {
		t.Run(c.config, func(t *testing.T) {
			chosen, err := file.Config(c.config)
			must(t, err)
			choices, err := chosen.Select(c.node)
			must(t, err)
			require.Same(t, "choices", c.want, describe(c.node, choices))
		})
	}
}

func describe(n gpu.Node, choices map[gpu.PCIAddress]migconfig.Choice) string {
	var b strings.Builder
	for _, g := range n.GPUs {
		choice, chosen := choices[g.Address]
		if !chosen {
			continue
		}
		fmt.Fprintf(&b, "%02x", g.Address.Bus)
		switch {
		case !choice.MIG:
			b.WriteString(" off")
		case len(choice.Devices) == 0:
			b.WriteString(" on demand")
		}
		for _, d := range choice.Devices {
			fmt.Fprintf(&b, " %s*%d", d.Profile, d.Count)
		}
		b.WriteString("\n")
	}
	return b.String()
}

func TestFilesThatAreNotValid(t *testing.T) {
	const all, on, seven = "devices: all", "mig-enabled: true", "mig-devices: {1g.10gb: 7}"
	for name, c := range map[string]struct{ text, want string }{
		"no YAML":                  {"{", "not YAML"},
		"empty":                    {"", `version ""`},
		"another version":          {"version: v2\nmig-configs: {}", `version "v2"`},
		"no configurations":        {"version: v1", "no mig-configs"},
		"an unknown field":         {"version: v1\nconfigs: {}", `unknown field "configs"`},
		"a field in capitals":      {"version: v1\nMig-Configs: {}", `unknown field "Mig-Configs"`},
		"a configuration twice":    {config(entry(all, "mig-enabled: false")) + "  a: []\n", `"a" already set`},
		"no entry":                 {"version: v1\nmig-configs: {a: []}", `configuration "a": invalid: no entry`},
		"a document too many":      {config(entry(all, "mig-enabled: false")) + "---\nversion: v1\n", "more than one YAML document"},
		"an entry's unknown field": {config(entry(all, on, seven, "device-filters: x")), `configuration "a", entry 1: invalid: unknown field "device-filters"`},
		"an entry's field twice":   {config(entry(all, on, seven, seven)), "already set"},
		"no devices":               {config(entry(on, seven)), "no devices"},
		"no mode":                  {config(entry(all, seven)), "no mig-enabled"},
		"no MIG devices":           {config(entry(all, on)), "no mig-devices"},
		"MIG devices without MIG":  {config(entry(all, "mig-enabled: false", seven)), "mig-enabled is false"},
		"other devices":            {config(entry("devices: some", on, seven)), `devices: "some"; want "all"`},
		"no index":                 {config(entry("devices: []", on, seven)), `devices: []; want "all"`},
		"a negative index":         {config(entry("devices: [-1]", on, seven)), `devices: [-1]; want "all"`},
		"a negative count":         {config(entry(all, on, "mig-devices: {1g.10gb: -1}")), "-1 MIG devices 1g.10gb"},
		"an absurd count":          {config(entry(all, on, "mig-devices: {1g.10gb: 1000000000}")), "1000000000 MIG devices"},
		"a broken count":           {config(entry(all, on, "mig-devices: {1g.10gb: 1.5}")), "cannot unmarshal"},
		"counts of nothing":        {config(entry(all, on, "mig-devices: {1g.10gb: 0}")), "all counts of mig-devices are 0"},
		"a list of profiles":       {config(entry(all, on, "mig-devices: [1g.10gb]")), "cannot unmarshal"},
		"no profile":               {config(entry(all, on, "mig-devices: {small: 1}")), `MIG profile "small"`},
		"a suffix that is unknown": {config(entry(all, on, "mig-devices: {1g.10gb+x: 1}")), `unknown suffix "+x"`},
		"a compute instance":       {config(entry(all, on, "mig-devices: {1c.2g.20gb: 1}")), "compute instances such as 1c.2g.20gb are not supported"},
		"a filter without an ID":   {config(entry("device-filter: H100", all, on, seven)), `device-filter "H100"`},
		"a subsystem that is none": {config(entry("device-filter: '0x233010DE:'", all, on, seven)), `device-filter "0x233010DE:"`},
		"a filter of another type": {config(entry("device-filter: {}", all, on, seven)), "device-filter: {}"},
	} {
		t.Run(name, func(t *testing.T) {
			file, err := migconfig.Parse([]byte(c.text))
			err = errors.Join(append(file.Invalid(), err)...)
			require.Error(t, "Parse", err, gpu.ErrInvalid, c.want)
		})
	}
}

func TestAConfigurationIsValidByItself(t *testing.T) {
	file, err := migconfig.Parse([]byte(config(entry("devices: all", "mig-enabled: false")) + "  b: [{devices: all, mig-enabeld: true}]\n  c: 3\n  d: []\n"))
	must(t, err)
	if _, err := file.Config("a"); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"b", "c", "d"} {
		_, err := file.Config(name)
		require.Error(t, name, err, gpu.ErrInvalid, `MIG configuration "`+name+`"`)
	}
	if got := len(file.Invalid()); got != 3 {
		t.Errorf("%d errors, want that of each invalid one", got)
	}
}

func TestAConfigurationThatIsNotThere(t *testing.T) {
	file, err := migconfig.Parse([]byte(config(entry("devices: all", "mig-enabled: false"))))
	must(t, err)
	_, err = file.Config("b")
	require.Error(t, "Config", err, gpu.ErrNotFound, "known are: a")
}

func TestConfigurationsThatAreNotValidOnANode(t *testing.T) {
	const on, seven = "mig-enabled: true", "mig-devices: {1g.10gb: 7}"
	nameless := node(h100)
	nameless.Unreadable = []gpu.Unreadable{{Index: 1, Err: gpu.ErrTimeout}}
	silent := node(h100, h100)
	silent.GPUs[0].Address.Bus = 0x20
	silent.Unreadable = []gpu.Unreadable{{Index: 2, Address: &gpu.PCIAddress{Bus: 0x10}, Err: gpu.ErrTimeout}}
	reordered := node(h100, h100)
	slices.Reverse(reordered.GPUs)
	for i := range reordered.GPUs {
		reordered.GPUs[i].Index = i
	}
	for name, c := range map[string]struct {
		entries []string
		node    gpu.Node
		err     error
		want    string
	}{
		"two entries for a GPU": {
			[]string{entry("devices: all", on, seven), entry("devices: [1]", "mig-enabled: false")}, node(h100, h100), gpu.ErrInvalid,
			`MIG configuration "a", entry 2: invalid: the GPU at 0000:11:00.0 is of entry 1 too`,
		},
		"a GPU that the node lacks": {[]string{entry("devices: [0, 2]", on, seven)}, node(h100, h100), gpu.ErrInvalid, "GPU 2, and the node has 2 GPUs"},
		"a GPU without MIG":         {[]string{entry("devices: [1]", on, seven)}, node(h100, t4), gpu.ErrInvalid, "the GPU at 0000:11:00.0 has no MIG"},
		"an order that is not known": {
			[]string{entry("devices: [0]", on, seven)}, nameless, gpu.ErrNotReady, "a GPU does not tell its PCI address",
		},
		"GPUs in another order of NVML":                    {[]string{entry("devices: [0]", on, seven)}, reordered, nil, "10 1g.10gb*7\n"},
		"all GPUs, of which one does not answer":           {[]string{entry("devices: all", on, seven)}, nameless, nil, "10 1g.10gb*7\n"},
		"a GPU that does not answer counts":                {[]string{entry("devices: [1]", on, seven)}, silent, nil, "11 1g.10gb*7\n"},
		"an index that another model of nodes has":         {[]string{entry("device-filter: '0x20B210DE'", "devices: [7]", on, seven)}, node(h100), nil, ""},
		"an entry without MIG for a GPU that cannot do it": {[]string{entry("devices: [0]", "mig-enabled: false")}, node(t4), nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			file, err := migconfig.Parse([]byte(config(c.entries...)))
			must(t, err)
			chosen, err := file.Config("a")
			must(t, err)
			choices, err := chosen.Select(c.node)
			got := describe(c.node, choices)
			if err != nil {
				got = err.Error()
			}
			if !errors.Is(err, c.err) || !strings.Contains(got, c.want) || c.want == "" && got != "" {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

// FuzzParse checks that a file that is read selects without a panic.
func FuzzParse(f *testing.F) {
	f.Add([]byte(config(entry("devices: [0]", "mig-enabled: true", "mig-devices: {1g.10gb: 7}"))))
	f.Fuzz(func(t *testing.T, text []byte) {
		file, err := migconfig.Parse(text)
		if err != nil {
			require.Error(t, "Parse", err, gpu.ErrInvalid)
			return
		}
		for _, name := range file.Names() {
			c, err := file.Config(name)
			must(t, err)
			_, _ = c.Select(node(h100, t4))
		}
	})
}

var must = require.NoError
