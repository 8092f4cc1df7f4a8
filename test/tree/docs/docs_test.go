// SPDX-License-Identifier: Apache-2.0

// Package docs keeps the documents honest: everything that they name exists, and
// everything that exists is named. Readers must judge the rest of the text. Their
// commands are run by test/e2e/walkthrough.
package docs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/simulator/nvmlsim"
	"github.com/gpu-dra/gpu-dra-driver/test/internal/markdown"
)

const (
	root = "../../.."
	// The pages with complete lists of names.
	flagsPage   = "docs/admin/flags.md"
	namesPage   = "docs/admin/names.md"
	metricsPage = "docs/admin/metrics.md"
	claimPage   = "docs/user/claim-reference.md"
	eventsPage  = "docs/user/events.md"
)

func TestEveryFlagIsInTheReference(t *testing.T) {
	flag := regexp.MustCompile(`(?m)^ +(?:-\w, )?--([a-z][a-z-]*)`)
	for _, program := range []string{"gpu-kubelet-plugin", "gpu-mps-supervisor"} {
		var names []string
		for _, m := range flag.FindAllStringSubmatch(read(t, "cmd/"+program+"/testdata/help.txt"), -1) {
			// Every program has it, and the text above the table names it.
			if m[1] != "help" {
				names = append(names, "--"+m[1])
			}
		}
		if len(names) < 10 {
			t.Errorf("%s has only the flags %q: is its help written in another way now?", program, names)
		}
		wantNamed(t, section(t, flagsPage, "## Flags of "+program), program, names)
	}
}

func TestEveryFlagInTheReferenceIsAProgramsWithItsDefault(t *testing.T) {
	row := regexp.MustCompile("(?m)^\\| `--([a-z-]+)`[^|]*\\| ([^|]*) \\|")
	for _, program := range []string{"gpu-kubelet-plugin", "gpu-mps-supervisor"} {
		help := strings.Join(strings.Fields(read(t, "cmd/"+program+"/testdata/help.txt")), " ")
		for _, m := range row.FindAllStringSubmatch(section(t, flagsPage, "## Flags of "+program), -1) {
			_, after, found := strings.Cut(help, " --"+m[1]+" ")
			if !found {
				t.Errorf("%s: %s has no --%s", flagsPage, program, m[1])
				continue
			}
			own, _, _ := strings.Cut(after, " --")
			quoted := regexp.MustCompile(`\(default "?([^")]+)"?\)`).FindStringSubmatch(own)
			if said := strings.Trim(m[2], "`"); quoted != nil && said != quoted[1] {
				t.Errorf("%s: --%s of %s has the default %s, not %s", flagsPage, m[1], program, quoted[1], said)
			}
		}
	}
}

// Names are read from the source. A metric with labels appears only after something
// has been counted.
func TestEveryMetricIsDocumented(t *testing.T) {
	source := read(t, "pkg/agent/telemetry/metrics.go") + read(t, "pkg/agent/telemetry/usagemetrics.go") + read(t, "pkg/agent/telemetry/gaugemetrics.go")
	var names []string
	for pattern, subsystem := range map[string]string{`(?:histogram|counter|gauge|byDevice)\("(\w+)"`: "", `Name: "(\w+)"`: "", `NewDesc\(namespace\+"_(\w+)"`: "", `usageDesc\("(\w+)"`: "claim", `gaugeDesc\("(\w+)"`: "device"} {
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
	documented := read(t, metricsPage)
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

func TestEveryAttributeAndCapacityIsDocumented(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(root, "pkg/catalog/testdata/*.txt"))
	if err != nil || len(files) < 20 {
		t.Fatalf("%d golden texts of slices: %v", len(files), err)
	}
	// An attribute is NAME=VALUE in the text and a capacity NAME:VALUE.
	quoted, word := regexp.MustCompile(`"[^"]*"|\([^)]*\)`), regexp.MustCompile(`^(\w[\w./]*)[=:].`)
	// This attribute is published only with a flag.
	names := map[string]bool{"nvlinkCliques": true}
	for _, file := range files {
		for line := range strings.Lines(readFile(t, file)) {
			if head := strings.TrimLeft(line, "+-"); !strings.HasPrefix(head, "each ") && !strings.HasPrefix(head, "gpu-") && !strings.HasPrefix(head, "node-gpus:") {
				continue
			}
			for _, text := range strings.Fields(quoted.ReplaceAllString(line, "X")) {
				if m := word.FindStringSubmatch(text); m != nil {
					names[m[1]] = true
				}
			}
		}
	}
	if len(names) < 25 {
		t.Fatalf("only the names %v are in %v", names, files)
	}
	wantNamed(t, read(t, "docs/user/attributes.md"), "docs/user/attributes.md", slices.Sorted(maps.Keys(names)))
}

// The source is read for the names: no claim has all of them.
func TestTheReferenceListsTheAttributesOfContainersAndNoOther(t *testing.T) {
	constants := publicNames(t)
	names := map[string]bool{}
	var values []string
	for _, m := range regexp.MustCompile(`\ba\.names?\(v1alpha1\.(Metadata\w+)`).FindAllStringSubmatch(read(t, "pkg/gpu/kind/attributes.go"), -1) {
		names[constants[m[1]]] = true
	}
	for _, m := range regexp.MustCompile(`\b(?:text|number|quantity)\(v1alpha1\.((?:Attribute|Metadata)\w+), (?:v1alpha1\.(\w+))?`).FindAllStringSubmatch(read(t, "pkg/agent/plugin/data.go"), -1) {
		names[constants[m[1]]] = true
		if m[2] != "" {
			values = append(values, constants[m[2]])
		}
	}
	if len(names) < 8 || len(values) < 3 {
		t.Fatalf("data.go writes only the attributes %v and the values %q: does it write them in another way now?", names, values)
	}
	table := section(t, claimPage, "## Metadata of a container")
	wantNamed(t, table, claimPage, slices.Concat(slices.Sorted(maps.Keys(names)), values))
	for _, m := range regexp.MustCompile("(?m)^\\| `(\\w+)`").FindAllStringSubmatch(table, -1) {
		if !names[m[1]] {
			t.Errorf("%s lists %s, which no container has", claimPage, m[1])
		}
	}
}

// publicNames returns the values of the constants of the public vocabulary.
func publicNames(t *testing.T) map[string]string {
	t.Helper()
	names := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^\t?(?:const )?(\w+)[\w ]* = (GroupName \+ )?"([^"]+)"(?: +//.*)?$`).FindAllStringSubmatch(read(t, "api/gpu/v1alpha1/names.go"), -1) {
		names[m[1]] = m[3]
		if m[2] != "" {
			names[m[1]] = v1alpha1.GroupName + m[3]
		}
	}
	if len(names) < 50 {
		t.Fatalf("names.go has only the names %v: is it written in another way now?", names)
	}
	return names
}

func TestEveryFieldOfTheDeviceDataIsInTheReference(t *testing.T) {
	wantNamed(t, section(t, claimPage, "## Status of a claim"), claimPage, fields(reflect.TypeFor[v1alpha1.DeviceData](), ""))
}

func TestEveryTaintAndLabelOfOursIsDocumented(t *testing.T) {
	keys := []string{v1alpha1.TaintUnhealthy, v1alpha1.TaintMIGMode, v1alpha1.TaintComputeMode, v1alpha1.TaintWithdrawn, v1alpha1.TaintInUse}
	wantNamed(t, section(t, namesPage, "## Taints"), namesPage, keys)
	// A taint is documented with a value.
	text := strings.ReplaceAll(read(t, "docs/user/troubleshooting.md"), "=", "`")
	wantNamed(t, text, "docs/user/troubleshooting.md", keys)
	wantNamed(t, section(t, namesPage, "## Labels"), namesPage, []string{v1alpha1.LabelOffer})
}

// knownProfiles has the MIG profiles that the chart knows.
const knownProfiles = "deployments/helm/gpu-dra-driver/templates/_mig.tpl"

func TestTheChartKnowsEveryMIGProfileOfEachModel(t *testing.T) {
	known := read(t, knownProfiles)
	for _, model := range nvmlsim.ModelNames() {
		m, err := nvmlsim.LoadModel(model)
		if err != nil {
			t.Fatal(err)
		}
		for _, kind := range m.Kinds {
			if kind.MIG == nil {
				continue
			}
			for _, p := range kind.MIG.Profiles {
				if !strings.Contains(known, `"`+p.Name+`"`) {
					t.Errorf("the chart does not know %s, which a %s has", p.Name, kind.Name)
				}
			}
		}
	}
}

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
		if err != nil {
			t.Fatal(err)
		}
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

func TestEveryKindAndFieldOfTheConfigurationIsInTheReference(t *testing.T) {
	text := section(t, claimPage, "## Configuration of claims and classes")
	for _, config := range []any{v1alpha1.GpuConfig{}, v1alpha1.MigConfig{}, v1alpha1.ShareConfig{}} {
		kind := reflect.TypeOf(config)
		wantNamed(t, text, claimPage, append(fields(kind, ""), kind.Name()))
	}
}

// fields returns the paths of the fields of a type that hold a value and no
// further fields: "sharing.mps.perDevice[].device".
func fields(of reflect.Type, prefix string) []string {
	var paths []string
	for i := range of.NumField() {
		field := of.Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name == "" {
			continue
		}
		inner := field.Type
		for inner.Kind() == reflect.Pointer || inner.Kind() == reflect.Slice {
			if inner.Kind() == reflect.Slice {
				name += "[]"
			}
			inner = inner.Elem()
		}
		if inner.Kind() == reflect.Struct && inner != reflect.TypeFor[resource.Quantity]() {
			paths = append(paths, fields(inner, prefix+name+".")...)
			continue
		}
		paths = append(paths, prefix+name)
	}
	return paths
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

// A folder without a row is covered by the row of a folder above it. Folders of test data and
// hidden folders are left out.
func TestTheListOfFoldersIsComplete(t *testing.T) {
	const doc = "docs/dev/source-tree.md"
	tops := []string{"api", "cmd", "deployments", "pkg", "simulator", "test", "tools"}
	folder := regexp.MustCompile("`((?:" + strings.Join(tops, "|") + ")(?:/[^`]+)?)`")
	var listed []string
	for _, row := range regexp.MustCompile("(?m)^\\| (`[^|]+`) \\|").FindAllStringSubmatch(read(t, doc), -1) {
		for _, m := range folder.FindAllStringSubmatch(row[1], -1) {
			listed = append(listed, m[1])
		}
	}
	// A row of a top folder is for its own files only.
	covered := func(path string) bool {
		for above := path; above != "."; above = filepath.Dir(above) {
			if slices.Contains(listed, above) && (above == path || strings.Contains(above, "/")) {
				return true
			}
		}
		return false
	}
	for _, top := range tops {
		err := fs.WalkDir(os.DirFS(root), top, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || !entry.IsDir() {
				return err
			}
			if entry.Name() == "testdata" || strings.HasPrefix(entry.Name(), ".") {
				return fs.SkipDir
			}
			if hasFiles(t, path) && !covered(path) {
				t.Errorf("%s does not list the folder %s, or one above it", doc, path)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(listed) < 80 {
		t.Errorf("%s lists only %d folders", doc, len(listed))
	}
	for _, folder := range listed {
		if info, err := os.Stat(filepath.Join(root, folder)); err != nil || !info.IsDir() {
			t.Errorf("%s lists %s, which is not a folder", doc, folder)
		}
	}
}

func hasFiles(t *testing.T, folder string) bool {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(root, folder))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return !e.IsDir() })
}

func TestDecisionsAreCompleteAndListed(t *testing.T) {
	const folder = "docs/dev/decisions"
	index := read(t, folder+"/README.md")
	entries, err := os.ReadDir(filepath.Join(root, folder))
	if err != nil {
		t.Fatal(err)
	}
	number := 0
	for _, entry := range entries {
		if entry.Name() == "README.md" {
			continue
		}
		number++
		if want := fmt.Sprintf("%04d-", number); !strings.HasPrefix(entry.Name(), want) {
			t.Errorf("%s/%s: want the next number, %s", folder, entry.Name(), want)
		}
		if !strings.Contains(index, "]("+entry.Name()+")") {
			t.Errorf("%s/README.md does not list %s", folder, entry.Name())
		}
		parts := regexp.MustCompile(`(?s)^# [^\n]+\n\n- Date: \d{4}-\d\d-\d\d\n- Status: [^\n]+\n\n## Context\n.*\n## Decision\n.*\n## Consequences\n`)
		if !parts.MatchString(read(t, folder+"/"+entry.Name())) {
			t.Errorf("%s/%s lacks a part, see %s/README.md", folder, entry.Name(), folder)
		}
	}
	if number == 0 {
		t.Error("no decisions found")
	}
}

func TestEveryTargetOfMakeExists(t *testing.T) {
	makefile := read(t, "Makefile")
	// In code only: the word is common elsewhere.
	named := regexp.MustCompile("(?m)(?:^|`)make ([a-z][a-z0-9-]*)")
	for _, doc := range documents(t) {
		var inCode bytes.Buffer
		text := read(t, doc)
		for _, block := range fenced.FindAllString(text, -1) {
			fmt.Fprintln(&inCode, block)
		}
		for _, span := range code.FindAllString(fenced.ReplaceAllString(text, ""), -1) {
			fmt.Fprintln(&inCode, span)
		}
		for _, m := range named.FindAllStringSubmatch(inCode.String(), -1) {
			pattern, _, _ := strings.Cut(m[1], "-")
			if !strings.Contains(makefile, "\n"+m[1]+":") && !strings.Contains(makefile, "\n"+pattern+"-%:") {
				t.Errorf("%s names `make %s`, which the Makefile does not have", doc, m[1])
			}
		}
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
	if err != nil {
		t.Fatal(err)
	}
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
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
