// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

var noon = time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)

// xid62 is covered by the recovery action from 565 on, and xid119 by none.
func xid62() cause {
	return cause{Cause: "xid-62", Message: "XID 62", First: noon, Last: noon, Branch: 565, Driver: "570 1"}
}

func xid119() cause {
	return cause{Cause: "xid-119", Message: "XID 119", First: noon, Last: noon, Driver: "570 1"}
}

func lost(c cause) cause  { c.Lost = true; return c }
func asked(c cause) cause { c.Asked = true; return c }

func values(causes []cause) []string {
	all := []string{}
	for _, c := range causes {
		all = append(all, c.Cause)
	}
	return all
}

func TestWhatEndsACause(t *testing.T) {
	reset := cause{Cause: "recovery-gpu-reset", First: noon, Last: noon, Driver: "570 1", Asked: true}
	for name, tc := range map[string]struct {
		causes []cause
		// A minute has passed and the driver is the same, unless told otherwise.
		e    evidence
		left []string
		why  string // of the first that has ended
	}{
		"no action is reported":                          {causes: []cause{xid62(), xid119()}, left: []string{"xid-62", "xid-119"}},
		"no action for a minute":                         {causes: []cause{xid62(), xid119()}, e: evidence{recovery: gpu.RecoveryNone}, left: []string{"xid-119"}, why: "the driver has not asked for recovery"},
		"no action yet":                                  {causes: []cause{xid62()}, e: evidence{at: noon.Add(59 * time.Second), recovery: gpu.RecoveryNone}, left: []string{"xid-62"}},
		"no action by an older driver":                   {causes: []cause{xid62()}, e: evidence{branch: 560, recovery: gpu.RecoveryNone}, left: []string{"xid-62"}},
		"an action is withdrawn":                         {causes: []cause{asked(xid119()), asked(xid62())}, e: evidence{at: noon, recovery: gpu.RecoveryNone}, left: []string{}, why: "the driver no longer asks for recovery"},
		"actions are no longer reported":                 {causes: []cause{asked(xid119()), reset}, left: []string{"xid-119", "recovery-gpu-reset"}},
		"a reset is requested":                           {causes: []cause{xid119()}, e: evidence{recovery: gpu.RecoveryGPUReset}, left: []string{"xid-119", "recovery-gpu-reset"}},
		"a reset is requested for a GPU without a cause": {e: evidence{recovery: gpu.RecoveryGPUReset}, left: []string{"recovery-gpu-reset"}},
		"a reset is still requested":                     {causes: []cause{reset}, e: evidence{recovery: gpu.RecoveryGPUReset}, left: []string{"recovery-gpu-reset"}},
		"another action is requested":                    {causes: []cause{reset}, e: evidence{recovery: gpu.RecoveryNodeReboot}, left: []string{"recovery-node-reboot"}, why: "the driver asks for something else"},
		"the reset is done":                              {causes: []cause{reset}, e: evidence{recovery: gpu.RecoveryNone}, left: []string{}, why: "the driver no longer asks for recovery"},
		"it was lost":                                    {causes: []cause{lost(xid119())}, left: []string{}, why: "the GPU was lost and answers again"},
		"it was lost and has no action":                  {causes: []cause{lost(xid119())}, e: evidence{recovery: gpu.RecoveryNone}, left: []string{}, why: "the GPU was lost and answers again"},
		"it was lost and a reset is requested":           {causes: []cause{lost(xid119())}, e: evidence{recovery: gpu.RecoveryGPUReset}, left: []string{"xid-119", "recovery-gpu-reset"}},
		"another load of the driver":                     {causes: []cause{xid119()}, e: evidence{driver: "570 2"}, left: []string{}, why: "the driver was loaded anew"},
		"another load that asks again":                   {causes: []cause{xid119(), reset}, e: evidence{driver: "570 2", recovery: gpu.RecoveryGPUReset}, left: []string{"recovery-gpu-reset"}, why: "the driver was loaded anew"},
		"an unknown load of the driver":                  {causes: []cause{xid119()}, e: evidence{driver: "?"}, left: []string{"xid-119"}},
		"a load that was unknown":                        {causes: []cause{{Cause: "ecc", Last: noon}}, left: []string{"ecc"}},
		"a damaged record":                               {causes: []cause{{Cause: damaged, Last: noon}}, e: evidence{recovery: gpu.RecoveryNone}, left: []string{damaged}},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.e.at.IsZero() {
				tc.e.at = noon.Add(time.Minute)
			}
			if tc.e.branch == 0 {
				tc.e.branch = 570
			}
			switch tc.e.driver {
			case "":
				tc.e.driver = "570 1"
			case "?":
				tc.e.driver = ""
			}
			left, over, changed := examine(tc.causes, tc.e)
			require.Same(t, "left", tc.left, values(left))
			why := ""
			if len(over) > 0 {
				why = over[0].why
			}
			if why != tc.why {
				t.Errorf("ended because %q, want %q", why, tc.why)
			}
			if _, _, again := examine(left, tc.e); again {
				t.Error("the same evidence changes something again")
			}
			if same := cmp.Equal(tc.causes, left) || len(tc.causes)+len(left) == 0; changed == same {
				t.Errorf("changed %v", changed)
			}
		})
	}
}

func TestWhichEventsAreFaults(t *testing.T) {
	for _, tc := range []struct {
		kind             gpu.EventKind
		xid              uint64
		reported, silent string // with and without a recovery action
	}{
		{gpu.EventXID, 48, "xid-48", "xid-48"},
		{gpu.EventLost, 79, "xid-79", "xid-79"},
		{gpu.EventLink, 74, "xid-74", "xid-74"},
		{gpu.EventXID, 94, "", ""},
		{gpu.EventXID, 95, "xid-95", "xid-95"},
		{gpu.EventXID, 109, "", ""},
		{gpu.EventXID, 144, "", "xid-144"},
		{gpu.EventXID, 145, "", "xid-145"},
		{gpu.EventXID, 146, "", "xid-146"},
		{gpu.EventXID, 147, "", ""},
		{gpu.EventXID, 148, "", ""},
		{gpu.EventXID, 149, "", "xid-149"},
		{gpu.EventXID, 150, "", "xid-150"},
		{gpu.EventXID, 154, "", ""},
		{gpu.EventXID, 155, "", ""},
		{gpu.EventXID, 156, "xid-156", "xid-156"},
		{gpu.EventXID, 162, "", ""},
		{gpu.EventXID, 163, "", ""},
		{gpu.EventXID, 166, "", ""},
		{gpu.EventXID, 167, "xid-167", "xid-167"},
		{gpu.EventXID, 168, "", ""},
		{gpu.EventXID, 169, "xid-169", "xid-169"},
		{gpu.EventXID, 170, "", ""},
		{gpu.EventXID, 171, "", ""},
		{gpu.EventXID, 172, "", ""},
		{gpu.EventECC, 0, "ecc", "ecc"},
		{gpu.EventLost, 0, "", ""},
		{gpu.EventRecovery, 0, "", ""},
		{gpu.EventAnswer, 0, "", ""},
	} {
		e := gpu.Event{Kind: tc.kind, UUID: "GPU-0", XID: tc.xid}
		if c, _ := causeOf(e, gpu.RecoveryNone); c.Cause != tc.reported {
			t.Errorf("%s %d is %q where recovery actions are reported, want %q", tc.kind, tc.xid, c.Cause, tc.reported)
		}
		if c, _ := causeOf(e, ""); c.Cause != tc.silent {
			t.Errorf("%s %d is %q where recovery actions are not reported, want %q", tc.kind, tc.xid, c.Cause, tc.silent)
		}
	}
}

func TestAFaultThatIsReportedAgainIsAsNewAsItsLastReport(t *testing.T) {
	causes, changed := add([]cause{asked(lost(xid119()))}, cause{Cause: "xid-119"}, noon.Add(repeatTime-1), "570 2")
	if diff := cmp.Diff([]cause{asked(lost(xid119()))}, causes); diff != "" || changed {
		t.Errorf("within a burst (-want +got):\n%s", diff)
	}
	later := noon.Add(repeatTime)
	causes, changed = add(causes, cause{Cause: "xid-119"}, later, "570 2")
	want := []cause{{Cause: "xid-119", First: noon, Last: later, Driver: "570 2"}}
	if diff := cmp.Diff(want, causes); diff != "" || !changed {
		t.Errorf("after it (-want +got):\n%s", diff)
	}
}

// Else the declaration that names the new fault would be the one that was there before.
func TestAReportAfterADeclarationIsANewFault(t *testing.T) {
	later, declared := noon.Add(time.Hour), []string{"all@2026-01-31T12:00:00Z"}
	causes, _ := add([]cause{xid119()}, cause{Cause: "xid-119", Declared: declared}, later, "570 2")
	want := []cause{{Cause: "xid-119", First: later, Last: later, Driver: "570 2", Declared: declared}}
	require.Same(t, "causes", want, causes)
}

// A declaration can come within a burst of reports.
func TestAReportAfterADeclarationIsRecordedWithinABurst(t *testing.T) {
	at, declared := noon.Add(time.Second), []string{"all@2026-01-31T12:00:00Z"}
	causes, changed := add([]cause{xid119()}, cause{Cause: "xid-119", Declared: declared}, at, "570 2")
	if want := []cause{{Cause: "xid-119", First: at, Last: at, Driver: "570 2", Declared: declared}}; !changed || !cmp.Equal(want, causes) {
		t.Errorf("got %+v, %t", causes, changed)
	}
	if left, over := (repair{"all", at.Add(time.Second), declared[0]}).end(causes); len(left) != 1 || over != nil {
		t.Errorf("the declaration ends %+v", over)
	}
}

func TestReportsFromTheFutureAreFromNow(t *testing.T) {
	now := noon
	ahead := cause{Cause: "xid-119", First: now.Add(-time.Hour), Last: now.Add(time.Hour)}
	got, changed := bound([]cause{ahead}, now)
	if !changed || !got[0].First.Equal(ahead.First) || !got[0].Last.Equal(now) {
		t.Errorf("%+v, %v; want the last report at %v", got, changed, now)
	}
	if _, changed := bound(got, now.Add(time.Second)); changed {
		t.Error("a second later it is moved again, and no word could end it")
	}
}

func TestTheWordOfAnAdministratorIsRead(t *testing.T) {
	for value, want := range map[string][]repair{
		"":                                nil,
		" ":                               nil,
		"gpu-1b-00@2026-01-31T12:00:00Z":  {{"gpu-1b-00", noon, "gpu-1b-00@2026-01-31T12:00:00Z"}},
		"all@2026-01-31T12:00:00Z":        {{"all", noon, "all@2026-01-31T12:00:00Z"}},
		"GPU-1@2026-01-31T12:00:00+00:00": {{"GPU-1", noon, "GPU-1@2026-01-31T12:00:00+00:00"}},
		"gpu-1b-00@2026-01-31T12:00:00Z, all@2026-01-31T12:00:01Z": {{"gpu-1b-00", noon, "gpu-1b-00@2026-01-31T12:00:00Z"}, {"all", noon.Add(time.Second), "all@2026-01-31T12:00:01Z"}},
	} {
		got, err := parseRepaired(value)
		if err != nil || !cmp.Equal(want, got, cmp.AllowUnexported(repair{})) {
			t.Errorf("%q is %v, %v; want %v", value, got, err, want)
		}
	}
	for _, value := range []string{"gpu-1b-00", "@2026-01-31T12:00:00Z", "gpu-1b-00@", "gpu-1b-00@yesterday", "gpu-1b-00@2026-01-31", "all@2026-01-31T12:00:00Z,", "gpu-1b-00=2026-01-31T12:00:00Z"} {
		if got, err := parseRepaired(value); err == nil {
			t.Errorf("%q is %v, want an error", value, got)
		}
	}
}
