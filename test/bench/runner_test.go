// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"
)

func TestDriversAlternate(t *testing.T) {
	r := runner{drivers: []*driver{{name: "A"}, {name: "B"}}}
	var order []string
	for number := range 3 {
		must(t, r.each(number, func(d *driver) error {
			order = append(order, d.name)
			return nil
		}))
	}
	if got := strings.Join(order, " "); got != "A B B A A B" {
		t.Errorf("got the order %s, want A B B A A B", got)
	}
}
