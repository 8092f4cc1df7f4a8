// SPDX-License-Identifier: Apache-2.0

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

// unlimited is a memory limit above that of any GPU. It removes a limit, for which the
// daemon has no command.
const unlimited = 1 << 40

// setting is one ceiling: the multiprocessors (device -1) in percent, or the memory of a
// device in bytes.
type setting struct {
	device int
	value  uint64
}

// eitherCeilings returns every ceiling that one of the two has, and the higher of both.
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

// settings returns the settings that change a daemon's ceilings from before to want.
// before is the zero value for a daemon that starts.
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

// commands returns the commands that set and read the setting. Server 0 is for
// future servers; other servers are running and change for new clients.
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

// check returns an error if the daemon's answer contradicts the setting. Percentages have
// the form "25.0", and limits are in whole units, rounded down: "19G" for 19968M. Only
// the first form is documented, so check accepts a limit that it cannot parse.
func (s setting) check(said string) error {
	if s.device < 0 {
		if got, err := strconv.ParseFloat(said, 64); err != nil || got != float64(s.value) {
			return fmt.Errorf("%w: its active thread percentage was set to %d, and it answers %q", gpu.ErrNotSupported, s.value, said)
		}
		return nil
	}
	if n, unit, ok := readSize(said); ok && n != s.value/unit && s.value != unlimited {
		return fmt.Errorf("%w: its memory limit was set to %dM for device %d, and it answers %q", gpu.ErrNotSupported, s.value/mebibyte, s.device, said)
	}
	return nil
}

var size = regexp.MustCompile(`^(\d+)\s*([KMGT]?)(?:i?B)?$`)

// readSize parses a size into a number of units, and the unit in bytes.
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

// refusal matches the program's error messages. Its exit status is 0 all the same.
var refusal = regexp.MustCompile(`(?i)\b(invalid|usage:|error|fail(ed|ure)?|unknown|unrecognized|denied|cannot|not (found|valid|permitted|supported))`)

// applyFirst applies the settings to a daemon that has no servers yet. If there are none,
// it checks that the daemon answers.
func (o *Options) applyFirst(ctx context.Context, f folders, all []setting) error {
	if len(all) == 0 {
		_, err := o.servers(ctx, f)
		return err
	}
	return o.set(ctx, f, 0, all)
}

// apply applies the settings to future servers and to new clients of running servers.
func (o *Options) apply(ctx context.Context, f folders, all []setting) error {
	if err := o.set(ctx, f, 0, all); err != nil {
		return err
	}
	// The list follows the defaults, so that a server that starts now has the settings.
	servers, err := o.servers(ctx, f)
	if err != nil || len(all) == 0 {
		return err
	}
	for _, server := range servers {
		if err := o.set(ctx, f, server, all); err != nil {
			// A server that has ended meanwhile needs no settings.
			if left, listErr := o.servers(ctx, f); listErr == nil && !slices.Contains(left, server) {
				continue
			}
			return err
		}
	}
	return nil
}

// set applies all settings in one call of the program and reads them back.
func (o *Options) set(ctx context.Context, f folders, server int, all []setting) error {
	if len(all) == 0 {
		return nil
	}
	var sets, gets []string
	for _, s := range all {
		set, get := s.commands(server)
		sets, gets = append(sets, set), append(gets, get)
	}
	lines, err := o.query(ctx, f, append(sets, gets...)...)
	if err != nil {
		return err
	}
	// The output of a set command is not documented; a get command prints one line.
	told := len(lines) - len(gets)
	if i := slices.IndexFunc(lines, refusal.MatchString); i >= 0 {
		return fmt.Errorf("%w: it refuses its settings: %q to %q", gpu.ErrNotSupported, lines[i], strings.Join(sets, "; "))
	}
	if told < 0 {
		return fmt.Errorf("%w: it answers a query for %d settings with %q", gpu.ErrNotSupported, len(gets), lines)
	}
	for i, s := range all {
		if err := s.check(strings.TrimSpace(lines[told+i])); err != nil {
			return err
		}
	}
	return nil
}
