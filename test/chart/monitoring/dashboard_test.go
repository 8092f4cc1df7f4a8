// SPDX-License-Identifier: Apache-2.0

package monitoring

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/rules"
)

const dashboardFile = "../../../deployments/helm/gpu-dra-driver/files/dashboard.json"

// dashboard has the fields of Grafana's format that these tests read.
type dashboard struct {
	Templating struct {
		List []struct{ Name, Type string }
	}
	Panels []panel
}

type panel struct {
	Type, Title string
	Description string
	Datasource  source
	Targets     []struct {
		Expr       string
		Datasource source
	}
}

type source struct{ Type, UID string }

func readDashboard(t *testing.T) dashboard {
	t.Helper()
	var d dashboard
	must(t, json.Unmarshal([]byte(read(t, dashboardFile)), &d))
	return d
}

func TestDashboardIsPortable(t *testing.T) {
	d := readDashboard(t)
	var variables []string
	for _, v := range d.Templating.List {
		variables = append(variables, v.Name)
	}
	p := parser.NewParser(parser.Options{})
	for _, panel := range d.Panels {
		if panel.Type == "row" {
			continue
		}
		if panel.Description == "" || panel.Datasource.UID != "${datasource}" {
			t.Errorf("%q has the description %q and the datasource %q", panel.Title, panel.Description, panel.Datasource.UID)
		}
		for _, target := range panel.Targets {
			if target.Datasource.UID != "${datasource}" {
				t.Errorf("%q reads the datasource %q", panel.Title, target.Datasource.UID)
			}
			for _, used := range regexp.MustCompile(`\$(\w+)`).FindAllStringSubmatch(target.Expr, -1) {
				if !strings.HasPrefix(used[1], "__") && !slices.Contains(variables, used[1]) {
					t.Errorf("%q uses the variable %s, which the dashboard does not have", panel.Title, used[1])
				}
			}
			expr := strings.NewReplacer("$__rate_interval", "2m", "$__range", "6h").Replace(target.Expr)
			if _, err := p.ParseExpr(expr); err != nil {
				t.Errorf("%q: %s: %v", panel.Title, expr, err)
			}
		}
	}
}

// The table merges the answers by their common labels. Answers with different pods stay
// apart: so limits must name the container, also those of a claim with a GPU to itself.
func TestDashboardShowsLimitsInTheRowsOfContainers(t *testing.T) {
	const labelsOf = `{namespace="team",claim="%s",%sdevice="%s",node="a",enforcement="%s"}`
	const used, limit = "gpu_dra_claim_memory_used_bytes", "gpu_dra_claim_memory_limit_bytes"
	whole := fmt.Sprintf(labelsOf, "whole", `pod="train",container="main",`, "gpu-1b-00", "hardware")
	share := fmt.Sprintf(labelsOf, "share", `pod="chat",container="main",`, "gpu-1c-00", "driver")
	idle := fmt.Sprintf(labelsOf, "idle", "", "gpu-1d-00", "hardware")
	series := held(used+whole, 5) + held(limit+fmt.Sprintf(labelsOf, "whole", "", "gpu-1b-00", "hardware"), 80) +
		held(used+share, 5) + held(limit+share, 10) +
		held(used+idle, 0) + held(limit+idle, 70)
	want := map[string]float64{"train": 80, "chat": 10, "": 70}
	var query string
	for _, panel := range readDashboard(t).Panels {
		for _, target := range panel.Targets {
			if panel.Type == "table" && strings.Contains(target.Expr, limit) {
				query = strings.NewReplacer("$node", ".*", "$namespace", ".*").Replace(target.Expr)
			}
		}
	}
	got := map[string]float64{}
	evaluate(t, rulesFile, series, 10*time.Minute, func(suite *promqltest.LazyLoader, at time.Time) {
		result, err := rules.EngineQueryFunc(suite.QueryEngine(), suite.Queryable())(suite.Context(), query, at)
		must(t, err)
		for _, sample := range result {
			got[sample.Metric.Get("pod")] = sample.F
		}
	})
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("limits by pod (-want +got):\n%s", diff)
	}
}
