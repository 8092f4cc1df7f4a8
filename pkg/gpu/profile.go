package gpu

import (
	"fmt"
	"regexp"
	"strconv"
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

// mediaNames gives each suffix its spelling inside a device name, where only
// lower-case letters, digits and dashes are legal.
var mediaNames = map[string]string{
	"":        "",
	"+me":     "-me",
	"+me.all": "-meall",
	"+gfx":    "-gfx",
	"-me":     "-nome",
}

var profile = regexp.MustCompile(`^([1-9][0-9]?)g\.([1-9][0-9]{0,3})gb([+-][a-z.]+)?$`)

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
	slices, _ := strconv.Atoi(m[1])
	memory, _ := strconv.Atoi(m[2])
	return Profile{Slices: slices, MemoryGB: memory, Media: m[3]}, nil
}

// String gives NVIDIA's notation, which is also the value of the attribute
// "profile": "1g.10gb+me".
func (p Profile) String() string {
	return fmt.Sprintf("%dg.%dgb%s", p.Slices, p.MemoryGB, p.Media)
}
