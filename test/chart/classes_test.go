// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
)

// profileClasses returns the names of the classes of MIG profiles, sorted.
func profileClasses(t *testing.T, r rendered) []string {
	t.Helper()
	names := []string{}
	for _, m := range r.manifests {
		if kindOf(t, m) != "DeviceClass" {
			continue
		}
		if name := decode[resourceapi.DeviceClass](t, m).Name; strings.HasPrefix(name, "mig-") {
			names = append(names, strings.TrimPrefix(name, "mig-"))
		}
	}
	slices.Sort(names)
	return names
}

// Each class costs the API server time for each claim, so a cluster has the classes of profiles
// in use only.
func TestProfilesInUseHaveClasses(t *testing.T) {
	common := profileClasses(t, mustRender(t, cluster{}, ""))
	if len(common) > 20 || !slices.Contains(common, "1g.10gb") || !slices.Contains(common, "3g.71gb") {
		t.Errorf("the defaults have the classes of %q, want those of common GPUs", common)
	}
	all := profileClasses(t, mustRender(t, cluster{}, "deviceClasses: {migProfiles: {profiles: all}}"))
	for _, want := range append(common, "1g.12gb.me", "2g.48gb.me.all", "1g.24gb-me") {
		if !slices.Contains(all, want) {
			t.Errorf("all has no class of %s", want)
		}
	}
	for name, tc := range map[string]struct {
		on     cluster
		values string
		// want are the profiles in addition to the common ones.
		want []string
	}{
		"profiles that nodes offer":           {values: "mig: {profiles: [1g.10gb, 1g.12gb+me]}", want: []string{"1g.12gb.me"}},
		"profiles of pools":                   {values: "nodeConfigs: {a: {mig: {profiles: [1g.24gb]}}, b: {mig: {gpus: 2}}, c: {offer: []}}", want: []string{"1g.24gb"}},
		"profiles of layouts":                 {values: "mig: {layouts: '" + layouts("a: [{devices: all, mig-enabled: true, mig-devices: {3g.47gb: 2}}], b: [{devices: all, mig-enabled: false}]") + "'}", want: []string{"3g.47gb"}},
		"profiles of a new GPU":               {values: "mig: {profiles: [1g.33gb], otherProfiles: [1g.33gb, 2g.66gb]}", want: []string{"1g.33gb", "2g.66gb"}},
		"an upgrade":                          {on: cluster{claims: []string{"mig-1g.24gb", "mig-1g.12gb.me", "mig-mine", "gpu.nvidia.com"}, templates: []string{"mig-7g.96gb"}}, want: []string{"1g.12gb.me", "1g.24gb", "7g.96gb"}},
		"an upgrade of a cluster without any": {on: cluster{claims: []string{}}},
	} {
		t.Run(name, func(t *testing.T) {
			tc.on.apis = []string{"resource.k8s.io/v1", "resource.k8s.io/v1/ResourceClaim"}
			want := slices.Concat(common, tc.want)
			slices.Sort(want)
			if diff := cmp.Diff(want, profileClasses(t, mustRender(t, tc.on, tc.values))); diff != "" {
				t.Errorf("classes of profiles (-want +got):\n%s", diff)
			}
		})
	}
	for values, want := range map[string][]string{
		"deviceClasses: {migProfiles: {profiles: [1g.6gb]}}":                               {"1g.6gb"},
		"deviceClasses: {migProfiles: {profiles: []}}":                                     {},
		"deviceClasses: {migProfiles: {enabled: false}}":                                   {},
		"{mig: {profiles: [1g.12gb]}, deviceClasses: {migProfiles: {profiles: [1g.6gb]}}}": {"1g.6gb"},
	} {
		if diff := cmp.Diff(want, profileClasses(t, mustRender(t, cluster{claims: []string{"mig-7g.96gb"}}, values))); diff != "" {
			t.Errorf("%s: classes of profiles (-want +got):\n%s", values, diff)
		}
	}
}

func TestUnknownProfilesAreRefusedWithKnownOnes(t *testing.T) {
	const ofOne = "1g.10gb, 1g.10gb+me, 1g.20gb, 1g.5gb"
	for values, want := range map[string][]string{
		"mig: {profiles: [1g.10gb, 1g.10bg]}":                     {`mig.profiles: "1g.10bg" is not a known MIG profile`, ofOne, "mig.otherProfiles"},
		"mig: {profiles: [1g.11gb]}":                              {`mig.profiles: "1g.11gb" is not`, ofOne},
		"mig: {profiles: [1g.10gb+you]}":                          {`"1g.10gb+you" is not`, ofOne},
		"mig: {profiles: [1g10gb]}":                               {`"1g10gb" is not`, "7g.186gb"},
		"mig: {profiles: [\"1g.10gb\\n\"]}":                       {`"1g.10gb\n" is not`},
		"mig: {profiles: [5g.40gb]}":                              {`"5g.40gb" is not`, "7g.186gb"},
		"nodeConfigs: {inference: {mig: {profiles: [3g.40bg]}}}":  {`nodeConfigs.inference.mig.profiles: "3g.40bg" is not`, "3g.20gb, 3g.47gb"},
		"deviceClasses: {migProfiles: {profiles: [2g.20gb+mee]}}": {`deviceClasses.migProfiles.profiles: "2g.20gb+mee" is not`, "2g.20gb, 2g.10gb"},
		"mig: {otherProfiles: [1g.10bg]}":                         {"/mig/otherProfiles"},
		"{mig: {otherProfiles: [1g.33gb], profiles: [2g.66gb]}}":  {`"2g.66gb" is not`},
	} {
		_, err := render(t, cluster{}, values)
		if err == nil {
			t.Errorf("%s: accepted", values)
			continue
		}
		for _, part := range want {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: the error does not name %q: %v", values, part, err)
			}
		}
	}
}

// The name mps.nvidia.com says how shares are limited, and share.nvidia.com does not. A limit of
// one that the other does not have would be no limit.
func TestBothClassesOfSharesAreTheSame(t *testing.T) {
	for _, values := range []string{"", "policies: {classes: {mps.nvidia.com: {max-memory: 20Gi, max-compute: 50, strategies: MPS.Plain}}}", "driverName: gpu.example.com"} {
		r := mustRender(t, cluster{}, values)
		mps := find[resourceapi.DeviceClass](t, r, "DeviceClass", "mps.nvidia.com")
		share := find[resourceapi.DeviceClass](t, r, "DeviceClass", "share.nvidia.com")
		share.Name = mps.Name
		if diff := cmp.Diff(mps, share); diff != "" {
			t.Errorf("%s: share.nvidia.com differs (-mps +share):\n%s", values, diff)
		}
	}
	for values, want := range map[string]string{
		"deviceClasses: {share: {enabled: false}}": "mps.nvidia.com",
		"deviceClasses: {mps: {enabled: false}}":   "share.nvidia.com",
		"mps: {enabled: false}":                    "",
	} {
		var got []string
		for _, m := range mustRender(t, cluster{}, values).manifests {
			for _, name := range []string{"mps.nvidia.com", "share.nvidia.com"} {
				if kindOf(t, m) == "DeviceClass" && strings.Contains(m, "\n  name: "+name+"\n") {
					got = append(got, name)
				}
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: the classes of shares are %q, want %q", values, got, want)
		}
	}
}
