// SPDX-License-Identifier: Apache-2.0

package environment

import (
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

func TestAFlagWinsOverItsTwinAndThatOverTheDefault(t *testing.T) {
	env := map[string]string{"X_NODE_NAME": "twin", "X_OTHER": "twin"}
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	name := flags.String("node-name", "default", "")
	other := flags.String("other", "default", "")
	third := flags.String("third", "default", "")
	require.NoError(t, flags.Parse([]string{"--other=flag"}))
	lookup := func(name string) (string, bool) { value, ok := env[name]; return value, ok }
	require.NoError(t, Prefix("X_").Apply(flags, lookup))
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
