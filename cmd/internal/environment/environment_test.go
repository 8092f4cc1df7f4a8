// SPDX-License-Identifier: Apache-2.0

package environment

import (
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

func TestAFlagWinsOverItsTwinAndThatOverTheDefault(t *testing.T) {
	env := map[string]string{"X_NODE_NAME": "twin", "X_OTHER": "twin"}
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	name := flags.String("node-name", "default", "")
	other := flags.String("other", "default", "")
	third := flags.String("third", "default", "")
	if err := flags.Parse([]string{"--other=flag"}); err != nil {
		t.Fatal(err)
	}
	lookup := func(name string) (string, bool) { value, ok := env[name]; return value, ok }
	if err := Prefix("X_").Apply(flags, lookup); err != nil {
		t.Fatal(err)
	}
	if *name != "twin" || *other != "flag" || *third != "default" {
		t.Errorf("got %s, %s and %s", *name, *other, *third)
	}
}

func TestABadTwinIsNamed(t *testing.T) {
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	flags.Int("slots", 4, "")
	err := Prefix("X_").Apply(flags, func(string) (string, bool) { return "many", true })
	if err == nil || !strings.Contains(err.Error(), "X_SLOTS") {
		t.Errorf("got %v, want an error that names X_SLOTS", err)
	}
}
