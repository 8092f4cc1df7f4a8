// SPDX-License-Identifier: Apache-2.0

// Package docs keeps the documents honest: everything that they name exists, and
// everything that exists is named. Readers must judge the rest of the text. Their
// commands are run by test/e2e/walkthrough.
package docs

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/test/allocator"
	"github.com/gpu-dra/gpu-dra-driver/test/internal/markdown"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

const (
	root = "../../.."
	// The pages with complete lists of names.
	metricsPage = "docs/admin/metrics.md"
	roomPage    = "docs/admin/room.md" // of a controller of its own
	claimPage   = "docs/user/claim-reference.md"
	eventsPage  = "docs/user/events.md"
)

// Names are read from the source. A metric with labels appears only after something
// has been counted.
func TestEveryMetricIsDocumented(t *testing.T) {
	source := read(t, "pkg/agent/telemetry/metrics.go") + read(t, "pkg/agent/telemetry/statemetrics.go")
	var names []string
	for pattern, subsystem := range map[string]string{`(?:histogram|counter|gauge|byDevice|value)\("(\w+)",`: "", `Name: "(\w+)"`: "", `ofClaim\("(\w+)"`: "claim", `ofGPU\("(\w+)"`: "device"} {
		found := regexp.MustCompile(pattern).FindAllStringSubmatch(source, -1)
		if len(found) == 0 {
			t.Errorf("the metrics have nothing like %s: are they made in another way now?", pattern)
		}
		for _, m := range found {
			names = append(names, prometheus.BuildFQName("gpu_dra", subsystem, m[1]))
		}
	}
	text := read(t, metricsPage)
	wantNamed(t, text, metricsPage, names)
	for _, name := range regexp.MustCompile(`gpu_dra_\w+`).FindAllString(text, -1) {
		if !slices.Contains(names, name) {
			t.Errorf("%s names %s, which is not a metric", metricsPage, name)
		}
	}
}

// A query of a metric that was renamed has no result, and its alert never fires.
func TestRulesAndDashboardReadDocumentedMetrics(t *testing.T) {
	documented := read(t, metricsPage) + read(t, roomPage)
	for _, file := range []string{"deployments/helm/gpu-dra-driver/files/rules.yaml", "deployments/helm/gpu-dra-driver/files/dashboard.json", "docs/admin/monitoring.md"} {
		var names []string
		for _, name := range regexp.MustCompile(`[\w:]*gpu_dra_\w+`).FindAllString(read(t, file), -1) {
			if !strings.Contains(name, ":") { // else a rule records it
				names = append(names, regexp.MustCompile(`_(bucket|count|sum)$`).ReplaceAllString(name, ""))
			}
		}
		if len(names) == 0 {
			t.Errorf("%s reads no metric", file)
		}
		wantNamed(t, documented, metricsPage, names)
	}
	reasons := regexp.MustCompile(`reason=~"([\w|]+)"`).FindStringSubmatch(read(t, "deployments/helm/gpu-dra-driver/files/rules.yaml"))
	if reasons == nil {
		t.Fatal("no rule selects reasons of refusals")
	}
	for _, doc := range []string{eventsPage, "docs/admin/monitoring.md"} {
		wantNamed(t, read(t, doc), doc, strings.Split(reasons[1], "|"))
	}
}

// knownProfiles has the MIG profiles that the chart knows.
const knownProfiles = "deployments/helm/gpu-dra-driver/templates/_mig.tpl"

// chartClasses returns the DeviceClasses of the chart with its default values.
func chartClasses(t *testing.T) []resourceapi.DeviceClass {
	t.Helper()
	var classes []resourceapi.DeviceClass
	decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(read(t, "deployments/static/install.yaml")), 4096)
	for {
		var class resourceapi.DeviceClass
		err := decoder.Decode(&class)
		if errors.Is(err, io.EOF) {
			return classes
		}
		must(t, err)
		if class.Kind == "DeviceClass" {
			classes = append(classes, class)
		}
	}
}

func TestEveryDeviceClassOfTheChartIsInTheReferenceAndNoOther(t *testing.T) {
	var names []string
	text := section(t, claimPage, "## DeviceClasses and extended resources")
	for _, class := range chartClasses(t) {
		names = append(names, class.Name)
		// Profiles have a rule instead of a column.
		if e := class.Spec.ExtendedResourceName; e != nil && *e != "nvidia.com/"+class.Name {
			wantNamed(t, text, claimPage, []string{*e})
		}
	}
	if len(names) < 5 {
		t.Fatalf("install.yaml has only the classes %q", names)
	}
	for _, m := range regexp.MustCompile(`"([0-9]+g\.[^"]+)"`).FindAllStringSubmatch(read(t, knownProfiles), -1) {
		names = append(names, "mig-"+strings.ReplaceAll(m[1], "+", "."))
	}
	// Classes of profiles have a rule instead of a row.
	wantNamed(t, text, claimPage, slices.DeleteFunc(slices.Clone(names), func(name string) bool { return strings.HasPrefix(name, "mig-") }))
	for _, m := range regexp.MustCompile("`(mig-[^`]+|[a-z]+\\.nvidia\\.com)`").FindAllStringSubmatch(text, -1) {
		if !slices.Contains(names, m[1]) {
			t.Errorf("%s names the class %s, which the chart does not have", claimPage, m[1])
		}
	}
}

// The admission policies ignore a class without its type. The classes of demo/course/dra that a page
// shows as mistakes have none.
func TestTheClassesOfTheDemosAreKnownToThePolicies(t *testing.T) {
	var checked int
	for _, pattern := range []string{"demo/*/*.yaml", "demo/*/*/*.yaml"} {
		files, err := filepath.Glob(filepath.Join(root, pattern))
		must(t, err)
		for _, file := range files {
			classes, err := allocator.ReadClasses(file)
			must(t, err)
			for _, class := range classes {
				selector := class.Spec.Selectors[0].CEL.Expression
				mistake := strings.HasSuffix(file, "/dra/map-as-number.yaml") || strings.HasSuffix(file, "/dra/attribute.yaml")
				if !strings.Contains(selector, "'"+v1alpha1.DriverName+"'") || mistake {
					continue
				}
				checked++
				if kind := class.Labels[v1alpha1.LabelType]; kind == "" || !strings.Contains(selector, "== '"+kind+"'") {
					t.Errorf("%s: the label %s is %q, and the selector %s", file, v1alpha1.LabelType, kind, selector)
				}
			}
		}
	}
	if checked < 9 {
		t.Errorf("%d classes in the demos", checked)
	}
}

func TestEveryLinkLeadsSomewhere(t *testing.T) {
	for _, doc := range documents(t) {
		// Brackets in code are not links.
		text := code.ReplaceAllString(fenced.ReplaceAllString(read(t, doc), ""), "")
		for _, m := range regexp.MustCompile(`\]\(([^)\s]+)\)`).FindAllStringSubmatch(text, -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			path, anchor, _ := strings.Cut(m[1], "#")
			target := doc
			if path != "" {
				target = filepath.Join(filepath.Dir(doc), path)
			}
			if _, err := os.Stat(filepath.Join(root, target)); err != nil {
				t.Errorf("%s links to %s: %v", doc, m[1], err)
				continue
			}
			if anchor != "" && !slices.Contains(anchors(read(t, target)), anchor) {
				t.Errorf("%s links to %s, and %s has no such heading", doc, m[1], target)
			}
		}
	}
}

// A page that no index has is found by search only. The decisions have an index of their own.
func TestTheIndexHasEveryPage(t *testing.T) {
	text := read(t, "docs/README.md")
	for _, doc := range documents(t) {
		page, found := strings.CutPrefix(doc, "docs/")
		if strings.HasPrefix(page, "dev/decisions/") {
			page = "dev/decisions/README.md"
		}
		if found && page != "README.md" && !strings.Contains(text, "]("+page) {
			t.Errorf("docs/README.md does not link to %s", doc)
		}
	}
}

func TestEveryTargetOfMakeExists(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(root, ".github/workflows/*.yml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no workflows: %v", err)
	}
	var text strings.Builder
	for _, file := range files {
		text.WriteString(readFile(t, file))
	}
	// In code only: the word is common elsewhere.
	for _, doc := range documents(t) {
		page := read(t, doc)
		inCode := append(fenced.FindAllString(page, -1), code.FindAllString(fenced.ReplaceAllString(page, ""), -1)...)
		text.WriteString(strings.Join(inCode, "\n") + "\n")
	}
	makefile, found := read(t, "Makefile"), 0
	for _, command := range regexp.MustCompile("(?m)(?:^ *|`|run: .*)\\bmake ([a-z][a-z0-9 -]*)").FindAllStringSubmatch(text.String(), -1) {
		targets, _, _ := strings.Cut(command[1], "  ")
		for _, target := range strings.Fields(targets) {
			found++
			pattern, _, _ := strings.Cut(target, "-")
			if !strings.Contains(makefile, "\n"+target+":") && !strings.Contains(makefile, "\n"+pattern+"-%:") {
				t.Errorf("`make %s` is named, which the Makefile does not have", target)
			}
		}
	}
	if found < 50 {
		t.Errorf("found %d targets", found)
	}
}

var (
	fenced = regexp.MustCompile("(?ms)^ *```.*?^ *```$")
	code   = regexp.MustCompile("`[^`\n]+`")
)

// documents are all of the repository, relative to the root.
func documents(t *testing.T) []string {
	t.Helper()
	docs, err := markdown.Files(root)
	must(t, err)
	return docs
}

// anchors returns the headings of a document as links name them: in small
// letters, without punctuation, with hyphens for spaces.
func anchors(text string) []string {
	var all []string
	for _, m := range regexp.MustCompile(`(?m)^#+ (.+)$`).FindAllStringSubmatch(fenced.ReplaceAllString(text, ""), -1) {
		anchor := regexp.MustCompile(`[^\p{L}\p{N}_ -]`).ReplaceAllString(strings.ToLower(m[1]), "")
		all = append(all, strings.ReplaceAll(anchor, " ", "-"))
	}
	return all
}

// section returns a document's text from a heading to the next of its level.
func section(t *testing.T, doc, heading string) string {
	t.Helper()
	_, text, found := strings.Cut(read(t, doc), "\n"+heading+"\n")
	if !found {
		t.Fatalf("%s has no heading %q", doc, heading)
	}
	text, _, _ = strings.Cut(text, "\n## ")
	return text
}

// wantNamed fails for names that are not in the text as code.
func wantNamed(t *testing.T, text, where string, names []string) {
	t.Helper()
	for _, name := range names {
		if !strings.Contains(text, "`"+name+"`") {
			t.Errorf("%s: `%s` is not documented", where, name)
		}
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	return readFile(t, filepath.Join(root, path))
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	must(t, err)
	return string(b)
}

var must = require.NoError
