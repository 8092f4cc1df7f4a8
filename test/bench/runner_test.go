// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"strings"
	"testing"
)

func TestDriversAlternate(t *testing.T) {
	r := runner{drivers: []*driver{{name: "A"}, {name: "B"}}}
	var order []string
	for number := range 3 {
		if err := r.each(number, func(d *driver) error {
			order = append(order, d.name)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	if got := strings.Join(order, " "); got != "A B B A A B" {
		t.Errorf("got the order %s, want A B B A A B", got)
	}
}

func TestAFailedStepNamesTheDriver(t *testing.T) {
	r := runner{drivers: []*driver{{name: "A"}, {name: "/tmp/older/agent"}}}
	refused := errors.New("refused")
	err := r.each(0, func(d *driver) error {
		if d.name == "A" {
			return nil
		}
		return refused
	})
	if !errors.Is(err, refused) || !strings.Contains(err.Error(), "/tmp/older/agent") {
		t.Errorf("got %v, want the name of the driver and its error", err)
	}
}

func TestEachPeriodHasItsPartOfTheRounds(t *testing.T) {
	r := runner{options: options{starts: 5}}
	for repetitions, want := range map[int]int{200: 40, 5: 1, 2: 1} {
		if got := r.perPeriod(repetitions); got != want {
			t.Errorf("%d repetitions in 5 periods: got %d each, want %d", repetitions, got, want)
		}
	}
}
