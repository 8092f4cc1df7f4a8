// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"testing"
	"time"
)

func TestScansAreRareAgainAfterEachTrouble(t *testing.T) {
	now := time.Unix(0, 0)
	missing, joining, well := outcome{}, outcome{complete: true, joining: true}, outcome{complete: true}
	for name, tc := range map[string]struct {
		o           outcome
		first, last time.Duration
	}{
		"a GPU is missing":                {missing, time.Second, time.Minute},
		"a GPU has not joined its fabric": {joining, 2 * time.Second, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPace()
			for range 2 {
				if got := p.next(tc.o, now); got != tc.first {
					t.Errorf("the next scan is in %v at first, want %v", got, tc.first)
				}
				for range 100 {
					p.next(tc.o, now)
				}
				if got := p.next(tc.o, now); got != tc.last {
					t.Errorf("the next scan is in %v at last, want %v", got, tc.last)
				}
				if got := p.next(well, now); got < idleTime || got > idleTime+idleTime/5 {
					t.Errorf("the next scan is in %v when all is well", got)
				}
			}
		})
	}
	p := newPace()
	event, after := outcome{complete: true, others: true, passing: true}, outcome{complete: true, passing: true}
	if got := p.next(event, now); got != followUpTime {
		t.Errorf("the next scan is in %v after an event, want %v", got, followUpTime)
	}
	if got := p.next(after, now.Add(followUpTime/5)); got != followUpTime*4/5 {
		t.Errorf("a requested scan comes first, and the one that follows up in %v, want %v", got, followUpTime*4/5)
	}
	if got := p.next(after, now.Add(followUpTime)); got != passingTime {
		t.Errorf("the next scan is in %v while there is a fault, want %v", got, passingTime)
	}
}
