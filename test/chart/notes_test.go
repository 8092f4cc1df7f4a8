// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"strings"
	"testing"
)

func TestTheNotesWarnAboutAnEmptyRegistry(t *testing.T) {
	for values, want := range map[string]bool{"": true, "image: {pullPolicy: Never}": false, "image: {registry: registry.example.com}": false} {
		notes := mustRender(t, cluster{}, values).notes
		if got := strings.Contains(notes, "image.registry is empty"); got != want {
			t.Errorf("%q: the notes warn: %v, want %v", values, got, want)
		}
	}
}

func TestTheNotesWarnAboutManySlots(t *testing.T) {
	for values, want := range map[string]bool{"": false, "timeslice: {slots: 32}": false, "timeslice: {slots: 33}": true} {
		notes := mustRender(t, cluster{}, values).notes
		if got := strings.Contains(notes, "33 slots"); got != want {
			t.Errorf("%q: the notes warn: %v, want %v", values, got, want)
		}
	}
}
