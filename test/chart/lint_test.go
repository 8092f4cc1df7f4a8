// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"path/filepath"
	"testing"

	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/lint/support"
	"sigs.k8s.io/yaml"
)

// As `helm lint --strict` does.
func TestHelmHasNothingToSayAgainstTheChart(t *testing.T) {
	files, err := filepath.Glob("testdata/values/*.yaml")
	must(t, err)
	for _, file := range files {
		values := map[string]any{}
		must(t, yaml.Unmarshal([]byte(valuesFile(t, filepath.Base(file))), &values))
		for _, m := range lint.RunAll(chartDir, values, release).Messages {
			if m.Severity > support.InfoSev {
				t.Errorf("%s: %v", file, m)
			}
		}
	}
}
