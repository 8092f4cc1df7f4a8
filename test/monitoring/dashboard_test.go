// SPDX-License-Identifier: Apache-2.0

package monitoring

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"
)

const dashboardFile = "../../deployments/helm/gpu-dra-driver/files/dashboard.json"

// dashboard has the fields of Grafana's format that these tests read.
type dashboard struct {
	Templating struct {
		List []struct{ Name, Type string }
	}
	Panels []panel
}

type panel struct {
	ID          int
	Type, Title string
	Description string
	Datasource  source
	GridPos     struct{ X, Y, W, H int }
	FieldConfig struct {
		Defaults struct{ Unit string }
	}
	Targets []struct {
		Expr       string
		Datasource source
	}
}

type source struct{ Type, UID string }

func TestDashboardIsPortable(t *testing.T) {
	var d dashboard
	if err := json.Unmarshal([]byte(read(t, dashboardFile)), &d); err != nil {
		t.Fatal(err)
	}
	var variables []string
	for _, v := range d.Templating.List {
		variables = append(variables, v.Name)
	}
	// The unit of a title, in parentheses, is the one that Grafana shows.
	units := map[string]string{"bytes": "bytes", "percentunit": "%", "s": "seconds", "h": "hours", "ops": "per second"}
	p := parser.NewParser(parser.Options{})
	ids := map[int]bool{}
	for _, panel := range d.Panels {
		if ids[panel.ID] {
			t.Errorf("two panels have the id %d", panel.ID)
		}
		ids[panel.ID] = true
		if panel.Type == "row" {
			continue
		}
		if unit := units[panel.FieldConfig.Defaults.Unit]; !strings.HasSuffix(panel.Title, "("+unit+")") && unit != "" {
			t.Errorf("the title %q lacks the unit (%s)", panel.Title, unit)
		}
		if panel.Description == "" || panel.Datasource.UID != "${datasource}" || panel.GridPos.X+panel.GridPos.W > 24 {
			t.Errorf("%q has the description %q, the datasource %q and the place %v", panel.Title, panel.Description, panel.Datasource.UID, panel.GridPos)
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
	for i, a := range d.Panels {
		for _, b := range d.Panels[i+1:] {
			if g, h := a.GridPos, b.GridPos; g.X < h.X+h.W && h.X < g.X+g.W && g.Y < h.Y+h.H && h.Y < g.Y+g.H {
				t.Errorf("%q and %q overlap", a.Title, b.Title)
			}
		}
	}
}
