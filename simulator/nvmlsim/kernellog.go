// SPDX-License-Identifier: Apache-2.0

package nvmlsim

import (
	"cmp"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"golang.org/x/sys/unix"
)

// kernelLog is a plain file with the records that the driver would write into the kernel's log. A
// program reads its end as it reads the device. Nothing removes records.
const kernelLog = "dev/kmsg"

// logXIDs adds a record for each new XID, as the driver does.
func (t tree) logXIDs(before, after *State) error {
	var records strings.Builder
	for _, e := range after.Events {
		if e.Serial <= before.Serial || e.Type != nvml.EventTypeXidCriticalError {
			continue
		}
		var now unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
			return fmt.Errorf("log an XID: %w", err)
		}
		instances, pid := "", "'<unknown>'"
		if e.MIG != nil {
			instances = fmt.Sprintf(" GPU-I:%02d GPU-CI:%02d", e.MIG.GPU, e.MIG.Compute)
		}
		if e.PID > 0 {
			pid = strconv.Itoa(e.PID)
		}
		address := strings.TrimSuffix(t.node.gpus[e.GPU].address.String(), ".0")
		fmt.Fprintf(&records, "3,%d,%d,-;NVRM: Xid (PCI:%s%s): %d, pid=%s, name=%s, simulated\n",
			e.Serial, now.Nano()/1000, address, instances, e.Data, pid, escaped(cmp.Or(e.Name, "<unknown>")))
	}
	if records.Len() == 0 {
		return nil
	}
	file, err := os.OpenFile(t.path(kernelLog), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return fmt.Errorf("log an XID: %w", err)
	}
	defer func() { _ = file.Close() }()
	if _, err := file.WriteString(records.String()); err != nil {
		return fmt.Errorf("log an XID: %w", err)
	}
	return nil
}

// escaped returns a text as the kernel writes it.
func escaped(text string) string {
	var b strings.Builder
	for _, c := range []byte(text) {
		if c < ' ' || c >= 0x7f || c == '\\' {
			fmt.Fprintf(&b, "\\x%02x", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}
