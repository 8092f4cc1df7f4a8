// SPDX-License-Identifier: Apache-2.0

// Package require has the checks that most tests need.
package require

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// NoError ends the test unless err is nil.
func NoError(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Same fails the test unless two values are the same.
func Same[T any](t testing.TB, what string, want, got T, options ...cmp.Option) {
	t.Helper()
	if diff := cmp.Diff(want, got, options...); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// Error fails the test unless the error of a call wraps another and contains the texts.
func Error(t testing.TB, call string, err, want error, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if !strings.Contains(fmt.Sprint(err), text) {
			t.Errorf("%s: %v, want an error that contains %q", call, err, text)
		}
	}
	if !errors.Is(err, want) {
		t.Errorf("%s: %v, want %v", call, err, want)
	}
}
