package cli

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"
)

// notInChart are the flags of hub serve that the Helm chart does not set, with the reason.
var notInChart = map[string]string{
	"advertise-address":     "POD_IP is the default",
	"api-audit-log-path":    "of the embedded API server",
	"api-audit-policy-file": "of the embedded API server",
	"api-port":              "of the embedded API server",
	"assets-dir":            "the image has the agents beside the hub",
	"encryption-key-dir":    "of the embedded API server",
	"kubeconfig":            "the hub uses the cluster that it runs in",
	"node-driver-dir":       "the hub's image has no node drivers; who makes one that has sets it with extraArgs",
	"pprof-listen":          "for developers, who can use extraArgs",
	"providers":             "the chart installs all of them in one Deployment",
	"webhook-url":           "the Services drover-admission and drover-webhook are the default",
}

// chartArgument is a flag in the chart's template, with an expression for its value.
var (
	chartArgument = regexp.MustCompile(`^- --([a-z0-9-]+)=(.*)$`)
	chartWith     = regexp.MustCompile(`^{{- with \.Values\.(\w+) }}$`)
	chartValue    = regexp.MustCompile(`^{{ (?:join "," )?(\.Values)?\.(\w*) }}(s?)$`)
)

// TestChart checks that the Helm chart has a value for every flag of hub serve, with the default and the type of the flag.
func TestChart(t *testing.T) {
	const dir = "../../packaging/chart/drover/"
	template, err := os.ReadFile(dir + "templates/_helpers.tpl")
	if err != nil {
		t.Fatal(err)
	}
	values, schema := readMap(t, dir+"values.yaml"), readMap(t, dir+"values.schema.json")
	flags := newServe().Flags()
	set := map[string]bool{}
	with := ""
	for line := range strings.Lines(string(template)) {
		line = strings.TrimSpace(line)
		if match := chartWith.FindStringSubmatch(line); match != nil {
			with = match[1]
		}
		match := chartArgument.FindStringSubmatch(line)
		if match == nil {
			continue
		}
		flag := flags.Lookup(match[1])
		if flag == nil {
			t.Errorf("the chart sets --%s, which hub serve does not have", match[1])
			continue
		}
		set[flag.Name] = true
		expression := chartValue.FindStringSubmatch(match[2])
		if expression == nil {
			continue // the chart decides
		}
		path := []string{with, expression[2]}
		if expression[1] != "" {
			path = path[1:]
		} else if expression[2] == "" {
			path = path[:1]
		}
		checkChartValue(t, flag, path, expression[3], values, schema)
	}
	flags.VisitAll(func(flag *pflag.Flag) {
		if _, left := notInChart[flag.Name]; left == set[flag.Name] {
			t.Errorf("--%s must be either in the arguments of %stemplates/_helpers.tpl or in notInChart with a reason", flag.Name, dir)
		}
	})
	for name := range notInChart {
		if flags.Lookup(name) == nil {
			t.Errorf("notInChart has --%s, which hub serve does not have", name)
		}
	}
}

// checkChartValue compares the value at path, followed by a unit, with its flag.
func checkChartValue(t *testing.T, flag *pflag.Flag, path []string, unit string, values, schema map[string]any) {
	t.Helper()
	var value any = values
	for _, name := range path {
		value = value.(map[string]any)[name]
		properties, _ := schema["properties"].(map[string]any)
		schema, _ = properties[name].(map[string]any)
	}
	if got := fmt.Sprint(value) + unit; got != flag.DefValue {
		t.Errorf("values.yaml has the default %s for %s, --%s has %s", got, strings.Join(path, "."), flag.Name, flag.DefValue)
	}
	types := map[string]string{"string": "string", "bool": "boolean", "int": "integer", "duration": "integer", "stringSlice": "array"}
	if want := types[flag.Value.Type()]; schema["type"] != want {
		t.Errorf("values.schema.json has the type %v for %s, --%s has %s", schema["type"], strings.Join(path, "."), flag.Name, want)
	}
}

func readMap(t *testing.T, path string) map[string]any {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]any{}
	if err := yaml.UnmarshalStrict(content, &out); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return out
}
