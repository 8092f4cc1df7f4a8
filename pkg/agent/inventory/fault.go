// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	texts "github.com/gpu-dra/gpu-dra-driver/pkg/gpu/cause"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/use"
)

const (
	// silence is the time without a request for a recovery action after which a fault
	// ends. The action follows the XID.
	silence = time.Minute
	// repeatTime is the time in which repeated reports of a fault are ignored. So a
	// burst of events causes one write to the disk.
	repeatTime = 10 * time.Second
)

// cause is one reason why new claims must not get a GPU. It stays until evidence
// shows that it has ended; see [examine].
type cause struct {
	// Cause is the value of the taint, such as "xid-79". Its texts are in package cause.
	Cause string `json:"value"`
	// Message is the text of the release that noticed the cause. It is for agents that
	// do not know the value.
	Message string `json:"message"`
	// First and Last are when it was reported.
	First time.Time `json:"first"`
	Last  time.Time `json:"last"`
	// Branch is the first branch of the driver whose recovery action covers it;
	// 0 if there is none.
	Branch int `json:"branch,omitempty"`
	// Driver identifies the load of the driver that reported it last; empty if
	// unknown.
	Driver string `json:"driver,omitempty"`
	// Asked: the driver has asked for a recovery action since.
	Asked bool `json:"asked,omitempty"`
	// Lost: the GPU was lost since.
	Lost bool `json:"lost,omitempty"`
	// Declared are the entries of the annotation [v1alpha1.AnnotationRepaired] for the GPU when it was reported last.
	// They do not end it, whatever a clock said.
	Declared []string `json:"declared,omitempty"`
}

// recovery reports whether the cause is that the driver asks for an action.
func (c cause) recovery() bool { return strings.HasPrefix(c.Cause, use.RecoveryPrefix) }

// newCause returns a cause with the text of the table.
func newCause(value string) cause {
	return cause{Cause: value, Message: texts.Unhealthy(value).Message()}
}

// text returns the message. The record of a newer agent has one for values that this
// release does not know.
func (c cause) text() string {
	if c.Message != "" && !texts.Known(v1alpha1.TaintUnhealthy, c.Cause) {
		return c.Message
	}
	return texts.Unhealthy(c.Cause).Message()
}

// causeOf returns the cause that an event reports. ok is false if it reports
// none. recovery is what the GPU's driver last asked for, empty if it does not
// report that.
func causeOf(e gpu.Event, recovery gpu.RecoveryAction) (c cause, ok bool) {
	rule := xidRules[e.XID]
	switch {
	case e.XID != 0 && (rule.marks == always || rule.marks == unlessReported && recovery == ""):
		c = newCause(fmt.Sprintf("xid-%d", e.XID))
		c.Branch = rule.branch
		return c, true
	case e.XID == 0 && e.Kind == gpu.EventECC:
		c = newCause("ecc")
		c.Branch = eccBranch
		return c, true
	}
	return cause{}, false
}

// add returns the causes with an additional one. at is the time of its report, and
// driver the load of the driver then. changed is false if a recent report of the same
// cause after the same declarations is recorded. A report after another declaration begins anew, so
// that its time is new too.
func add(causes []cause, c cause, at time.Time, driver string) (_ []cause, changed bool) {
	c.First, c.Last, c.Driver = at, at, driver
	i := slices.IndexFunc(causes, func(other cause) bool { return other.Cause == c.Cause })
	if i < 0 {
		return append(slices.Clone(causes), c), true
	}
	same := slices.Equal(c.Declared, causes[i].Declared)
	if same && at.Sub(causes[i].Last) < repeatTime {
		return causes, false
	}
	causes = slices.Clone(causes)
	if same {
		c.First = causes[i].First
	}
	causes[i] = c
	return causes, true
}

// bound returns the causes with no report after now. changed is false if there was none.
// It compares the wall clock, which may have been set back since the report.
func bound(causes []cause, now time.Time) (_ []cause, changed bool) {
	now = now.Round(0) // without the reading of the monotonic clock
	causes = slices.Clone(causes)
	for i := range causes {
		for _, t := range []*time.Time{&causes[i].First, &causes[i].Last} {
			if t.After(now) {
				*t, changed = now, true
			}
		}
	}
	return causes, changed
}

// markLost returns the causes, marked as those of a lost GPU. changed is false if all
// were marked before.
func markLost(causes []cause) (_ []cause, changed bool) {
	causes = slices.Clone(causes)
	for i := range causes {
		changed = changed || !causes[i].Lost
		causes[i].Lost = true
	}
	return causes, changed
}

// evidence is the result of a scan for a GPU that answers.
type evidence struct {
	at time.Time
	// driver identifies the load of the driver, and branch is its release branch.
	driver   string
	branch   int
	recovery gpu.RecoveryAction
}

// ended is a cause and the evidence that ended it.
type ended struct {
	cause
	why string
}

// examine returns the causes that remain and the causes that the evidence ends. The
// action is the recovery action that the driver requests:
//
//	the driver was reloaded                       all causes end
//	the GPU was lost, answers, and has no action  all causes end
//	the GPU has an action                         all causes stay; the action is one
//	the GPU no longer has an action               causes from the time of the action end
//	the GPU had no action for a minute            causes that an action would cover end
//	the driver does not report actions            all causes stay
//
// A reboot and an administrator's annotation end causes too; see [faultRecords] and
// [repairs].
func examine(causes []cause, e evidence) (left []cause, over []ended, changed bool) {
	asks := e.recovery != "" && e.recovery != gpu.RecoveryNone
	for _, c := range causes {
		why := ""
		switch {
		case c.Driver != "" && e.driver != "" && c.Driver != e.driver:
			why = "the driver was loaded anew"
		case asks:
			if c.recovery() && c.Cause != use.Recovery(e.recovery) {
				why = "the driver asks for something else"
			}
			changed = changed || !c.Asked
			c.Asked = true
		case c.Lost:
			why = "the GPU was lost and answers again"
		case e.recovery == "":
		case c.Asked || c.recovery():
			why = "the driver no longer asks for recovery"
		case c.Branch > 0 && e.branch >= c.Branch && e.at.Sub(c.Last) >= silence:
			why = "the driver has not asked for recovery"
		}
		if why != "" {
			over = append(over, ended{c, why})
			continue
		}
		left = append(left, c)
	}
	if asks && !slices.ContainsFunc(left, func(c cause) bool { return c.Cause == use.Recovery(e.recovery) }) {
		c := newCause(use.Recovery(e.recovery))
		c.First, c.Last, c.Driver, c.Asked = e.at, e.at, e.driver, true
		left = append(left, c)
		changed = true
	}
	return left, over, changed || len(over) > 0
}

// messages joins the messages of the causes.
func messages(causes []cause) string {
	var all []string
	for _, c := range causes {
		all = append(all, c.text())
	}
	return strings.Join(all, "; ")
}

// decisive returns the value of the cause whose remedy counts: the recovery action that the
// driver requests, or else the first cause.
func decisive(causes []cause) string {
	if i := slices.IndexFunc(causes, cause.recovery); i >= 0 {
		return causes[i].Cause
	}
	return causes[0].Cause
}

// branchOf returns the release branch of a driver version: 570 of 570.86.15; 0 if
// it has none.
func branchOf(version string) int {
	major, _, _ := strings.Cut(version, ".")
	branch, err := strconv.Atoi(major)
	if err != nil {
		return 0
	}
	return branch
}
