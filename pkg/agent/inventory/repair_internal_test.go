// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// The clocks of the node and of the administrator may differ.
func TestARepairEndsTheFaultThatItNames(t *testing.T) {
	began := time.Date(2026, 1, 31, 12, 0, 0, 123456789, time.UTC)
	published := began.Truncate(time.Second)
	fault := []cause{
		{Cause: "xid-79", First: began, Last: began.Add(time.Hour)},
		{Cause: "xid-48", First: began.Add(time.Minute), Last: began.Add(time.Minute)},
		{Cause: "recovery-reset", First: began, Last: began},
	}
	later := []cause{{Cause: "xid-79", First: began.Add(-time.Hour), Last: began.Add(-time.Hour), Declared: []string{"all"}}}
	next := []cause{{Cause: "xid-79", First: began.Add(2 * time.Hour), Last: began.Add(2 * time.Hour)}}
	for name, c := range map[string]struct {
		causes []cause
		until  time.Time
		left   []string
	}{
		"the time of the fault":                                         {fault, published, []string{"recovery-reset"}},
		"the time of the fault, which has ended since":                  {next, published, []string{"xid-79"}},
		"the time of a recovery action, with another":                   {[]cause{fault[2], fault[0]}, published, []string{"recovery-reset", "xid-79"}},
		"a time before the fault":                                       {fault, published.Add(-time.Second), []string{"xid-79", "xid-48", "recovery-reset"}},
		"a time between the causes":                                     {fault, published.Add(2 * time.Minute), []string{"xid-79", "recovery-reset"}},
		"a fault that was reported later, by a clock that was set back": {later, published, []string{"xid-79"}},
		"a time after all":                                              {fault, published.Add(3 * time.Hour), []string{"recovery-reset"}},
	} {
		left, over := repair{"all", c.until, "all"}.end(c.causes)
		var values []string
		for _, of := range left {
			values = append(values, of.Cause)
		}
		if diff := cmp.Diff(c.left, values); diff != "" || len(over) != len(c.causes)-len(left) {
			t.Errorf("%s: %d ended, left (-want +got):\n%s", name, len(over), diff)
		}
	}
}
