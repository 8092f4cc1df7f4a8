// SPDX-License-Identifier: Apache-2.0

package gpu

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// Profile names a kind of MIG partition, such as 1g.10gb or 1g.10gb+me.
type Profile struct {
	// Slices is the number before the g.
	Slices int
	// MemoryGB is the number before gb: NVIDIA's rounded figure, not bytes.
	MemoryGB int
	// Media is the suffix as NVIDIA writes it: "", "+me", "+me.all", "+gfx",
	// "-me".
	Media string
}

// mediaNames maps each suffix to its spelling in a label. Labels can contain only
// lower-case letters, digits and dashes.
var mediaNames = map[string]string{
	"":        "",
	"+me":     "-me",
	"+me.all": "-meall",
	"+gfx":    "-gfx",
	"-me":     "-nome",
}

var (
	profile      = regexp.MustCompile(`^([1-9][0-9]?)g\.([1-9][0-9]{0,3})gb([+-][a-z.]+)?$`)
	profileLabel = regexp.MustCompile(`^([1-9][0-9]?)g-([1-9][0-9]{0,3})gb(-[a-z]+)?$`)
)

// ParseProfile reads NVIDIA's notation. It accepts exactly what
// [Profile.String] writes.
func ParseProfile(s string) (Profile, error) {
	m := profile.FindStringSubmatch(s)
	if m == nil {
		return Profile{}, fmt.Errorf("MIG profile %q: %w: want <slices>g.<memory>gb, such as 1g.10gb or 1g.10gb+me", s, ErrInvalid)
	}
	if _, ok := mediaNames[m[3]]; !ok {
		return Profile{}, fmt.Errorf("MIG profile %q: %w: unknown suffix %q", s, ErrInvalid, m[3])
	}
	return newProfile(m[1], m[2], m[3]), nil
}

// ParseProfileLabel reads the spelling in a device name. It accepts exactly what
// [Profile.Label] writes.
func ParseProfileLabel(s string) (Profile, error) {
	m := profileLabel.FindStringSubmatch(s)
	if m == nil {
		return Profile{}, fmt.Errorf("%w: %q is not a MIG profile such as 1g-10gb", ErrInvalid, s)
	}
	for media, spelled := range mediaNames {
		if spelled == m[3] {
			return newProfile(m[1], m[2], media), nil
		}
	}
	return Profile{}, fmt.Errorf("%w: unknown profile suffix %q", ErrInvalid, strings.TrimPrefix(m[3], "-"))
}

// newProfile returns a profile. The regular expressions above ensure that both
// texts are numbers.
func newProfile(slices, memory, media string) Profile {
	p := Profile{Media: media}
	p.Slices, _ = strconv.Atoi(slices)
	p.MemoryGB, _ = strconv.Atoi(memory)
	return p
}

// String returns NVIDIA's notation, which is also the value of the attribute
// "profile": "1g.10gb+me".
func (p Profile) String() string {
	return fmt.Sprintf("%dg.%dgb%s", p.Slices, p.MemoryGB, p.Media)
}

// Label returns the spelling in a device name: "1g-10gb-me".
func (p Profile) Label() string {
	return fmt.Sprintf("%dg-%dgb%s", p.Slices, p.MemoryGB, mediaNames[p.Media])
}
