package supervisor

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// unlimited is the memory limit that takes one away, more than any GPU has: the
// daemon has no command for that.
const unlimited = 1 << 40

// setting is one ceiling: of the multiprocessors (device -1) in percent, or of
// a device's memory in bytes.
type setting struct {
	device int
	value  uint64
}

// eitherCeilings has a ceiling where one of the two has.
func eitherCeilings(a, b gpu.MPSDaemon) gpu.MPSDaemon {
	either := gpu.MPSDaemon{ThreadPercentage: max(a.ThreadPercentage, b.ThreadPercentage), MemoryLimits: slices.Clone(a.MemoryLimits)}
	for i, limit := range b.MemoryLimits {
		if i == len(either.MemoryLimits) {
			either.MemoryLimits = append(either.MemoryLimits, 0)
		}
		either.MemoryLimits[i] = max(either.MemoryLimits[i], limit)
	}
	return either
}

// settings that make a daemon which may have the ceilings of before what it is
// to be. A daemon that starts is the zero value.
func settings(before, want gpu.MPSDaemon) []setting {
	var all []setting
	switch {
	case want.ThreadPercentage > 0:
		all = append(all, setting{-1, uint64(want.ThreadPercentage)})
	case before.ThreadPercentage > 0:
		all = append(all, setting{-1, 100})
	}
	limit := func(d gpu.MPSDaemon, i int) uint64 {
		if i < len(d.MemoryLimits) {
			return d.MemoryLimits[i]
		}
		return 0
	}
	for i := range want.Devices {
		switch {
		case limit(want, i) > 0:
			all = append(all, setting{i, limit(want, i)})
		case limit(before, i) > 0:
			all = append(all, setting{i, unlimited})
		}
	}
	return all
}

// commands set and ask for it, for the servers of the future (server 0) or for
// new clients of one that runs.
func (s setting) commands(server int) (set, get string) {
	scope, pid := "default_", ""
	if server != 0 {
		scope, pid = "", fmt.Sprintf(" %d", server)
	}
	if s.device < 0 {
		return fmt.Sprintf("set_%sactive_thread_percentage%s %d", scope, pid, s.value),
			fmt.Sprintf("get_%sactive_thread_percentage%s", scope, pid)
	}
	return fmt.Sprintf("set_%sdevice_pinned_mem_limit%s %d %dM", scope, pid, s.device, s.value/mebibyte),
		fmt.Sprintf("get_%sdevice_pinned_mem_limit%s %d", scope, pid, s.device)
}

// check reads what a daemon says when asked for it. Percentages come as "25.0"
// and limits in whole units, rounded down: 19968M as "19G". Only the first is
// documented, so what cannot be read as a limit is taken as no contradiction.
func (s setting) check(said string) error {
	if s.device < 0 {
		if got, err := strconv.ParseFloat(said, 64); err != nil || got != float64(s.value) {
			return fmt.Errorf("%w: it was told an active thread percentage of %d and says %q", gpu.ErrNotSupported, s.value, said)
		}
		return nil
	}
	if n, unit, ok := readSize(said); ok && n != s.value/unit && s.value != unlimited {
		return fmt.Errorf("%w: it was told a memory limit of %dM for device %d and says %q", gpu.ErrNotSupported, s.value/mebibyte, s.device, said)
	}
	return nil
}

var size = regexp.MustCompile(`^(\d+)\s*([KMGT]?)(?:i?B)?$`)

// readSize reads a size as a number of binary units of so many bytes.
func readSize(text string) (n, unit uint64, ok bool) {
	m := size.FindStringSubmatch(strings.TrimSpace(text))
	if m == nil {
		return 0, 0, false
	}
	n, err := strconv.ParseUint(m[1], 10, 64)
	if err != nil {
		return 0, 0, false
	}
	return n, 1 << map[string]int{"": 0, "K": 10, "M": 20, "G": 30, "T": 40}[m[2]], true
}

// refusal is how the program says no: in words, and with success.
var refusal = regexp.MustCompile(`(?i)\b(invalid|usage:|error|fail(ed|ure)?|unknown|unrecognized|denied|cannot|not (found|valid|permitted|supported))`)

// applyFirst gives the settings to a daemon that has no servers yet, and finds
// out whether it answers if there are none to give.
func (o *Options) applyFirst(ctx context.Context, f folders, all []setting) error {
	if len(all) == 0 {
		_, err := o.servers(ctx, f)
		return err
	}
	return o.set(ctx, f, 0, all)
}

// apply gives the settings to the servers of the future and to new clients of
// those that run.
func (o *Options) apply(ctx context.Context, f folders, all []setting) error {
	if err := o.set(ctx, f, 0, all); err != nil {
		return err
	}
	// After the defaults, so that a server that starts now has them.
	servers, err := o.servers(ctx, f)
	if err != nil || len(all) == 0 {
		return err
	}
	for _, server := range servers {
		if err := o.set(ctx, f, server, all); err != nil {
			// One that has ended since needs no settings.
			if left, listErr := o.servers(ctx, f); listErr == nil && !slices.Contains(left, server) {
				continue
			}
			return err
		}
	}
	return nil
}

// set gives all settings at once and asks for them.
func (o *Options) set(ctx context.Context, f folders, server int, all []setting) error {
	if len(all) == 0 {
		return nil
	}
	var sets, gets []string
	for _, s := range all {
		set, get := s.commands(server)
		sets, gets = append(sets, set), append(gets, get)
	}
	lines, err := o.ask(ctx, f, append(sets, gets...)...)
	if err != nil {
		return err
	}
	// What it says when told is not documented; when asked, it says one line.
	told := len(lines) - len(gets)
	if i := slices.IndexFunc(lines, refusal.MatchString); i >= 0 {
		return fmt.Errorf("%w: it refuses its settings: %q to %q", gpu.ErrNotSupported, lines[i], strings.Join(sets, "; "))
	}
	if told < 0 {
		return fmt.Errorf("%w: it was asked for %d settings and says %q", gpu.ErrNotSupported, len(gets), lines)
	}
	for i, s := range all {
		if err := s.check(strings.TrimSpace(lines[told+i])); err != nil {
			return err
		}
	}
	return nil
}
