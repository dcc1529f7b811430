package rkecontrolplane

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/plan/machinestate"
	"github.com/drover-dev/drover/hub/plan/release"
	"github.com/drover-dev/drover/hub/plan/render"
	"github.com/drover-dev/drover/hub/plan/rollout"
	"github.com/drover-dev/drover/plans"
)

// documentedWriters is the table in the package documentation: writers by kind ("data", "label", ...) and key.
func documentedWriters(t *testing.T) map[string]map[string][]string {
	t.Helper()
	raw, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]map[string][]string{}
	for line := range strings.Lines(string(raw)) {
		row, isRow := strings.CutPrefix(line, "//\t")
		fields := strings.Fields(strings.ReplaceAll(row, ",", ""))
		if !isRow || fields[1] == "all" {
			continue
		}
		if out[fields[0]] == nil {
			out[fields[0]] = map[string][]string{}
		}
		out[fields[0]][fields[1]] = fields[2:]
	}
	return out
}

// constants are the string constants of the Go files of a directory, names by value.
func constants(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatal(dir, err)
	}
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok || len(spec.Values) != 1 {
				return true
			}
			if literal, ok := spec.Values[0].(*ast.BasicLit); ok && literal.Kind == token.STRING {
				value, err := strconv.Unquote(literal.Value)
				if err != nil {
					t.Fatal(err)
				}
				out[value] = spec.Names[0].Name
			}
			return true
		})
	}
	return out
}

// TestDocumentedWriters: the table has all keys of the data, the agent's are those that the gateway lets it write, and every other writer
// mentions the keys that it is said to write.
func TestDocumentedWriters(t *testing.T) {
	documented := documentedWriters(t)
	names, keys := constants(t, "../../api/rke/v1"), constants(t, "../../../plans")
	for value, name := range keys {
		if strings.HasPrefix(name, "Key") && documented["data"][value] == nil {
			t.Errorf("nobody is said to write the key %s", value)
		}
	}
	names["UpToDate"] = "MachineUpToDateCondition"
	var agents []string
	for key, writers := range documented["data"] {
		if slices.Contains(writers, "agent") {
			agents = append(agents, key)
		}
	}
	slices.Sort(agents)
	if want := slices.Sorted(slices.Values(plans.AgentKeys())); !slices.Equal(agents, want) {
		t.Errorf("agents are said to write %v, and may write %v", agents, want)
	}
	// Delivery, signature and report are written by functions of these packages.
	elsewhere := map[string]string{"rkecontrolplane": "../../../plans/delivery.go ../../identity/signing/*.go"}
	for kind, rows := range documented {
		for key, writers := range rows {
			name := names[key]
			if kind == "data" {
				name = keys[key]
			}
			for _, writer := range writers {
				if writer == "agent" || writer == "user" {
					continue
				}
				dir := "../" + writer
				if writer == "gateway" {
					dir = "../../gateway"
				}
				if !mentions(t, name, append(strings.Fields(elsewhere[writer]), dir+"/*.go", dir+"/*/*.go")) {
					t.Errorf("%s is said to write %s (%s), and does not mention it", writer, key, name)
				}
			}
		}
	}
}

func mentions(t *testing.T, name string, patterns []string) bool {
	t.Helper()
	for _, pattern := range patterns {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			raw, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.HasSuffix(file, "_test.go") && name != "" && strings.Contains(string(raw), name) {
				return true
			}
		}
	}
	return false
}

// TestWritesDocumentedKeys: a delivery changes those parts of a plan Secret only that this controller is said to write.
func TestWritesDocumentedKeys(t *testing.T) {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "a-machine-plan"}}
	api := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(secret).Build()
	if err := api.Get(t.Context(), client.ObjectKeyFromObject(secret), secret); err != nil {
		t.Fatal(err)
	}
	found, err := release.Lookup("v1.36.3+k3s1")
	if err != nil {
		t.Fatal(err)
	}
	s := &scope{controlPlane: &rkev1.RKEControlPlane{}, inputs: render.Cluster{Release: found}}
	m := &machine{
		machine: &clusterv1.Machine{}, secret: secret, encoded: []byte("{}"), joinURL: "https://b:6443",
		state: rollout.Machine{Init: true, JoinURL: "https://a:6443"}, selected: machinestate.Addresses{Internal: []string{"10.0.0.1"}},
		decision: rollout.Decision{Deliver: true, Drain: "{}"},
	}
	r := &Reconciler{Client: api, Now: time.Now}
	if err := r.updatePlanSecret(t.Context(), s, m); err != nil {
		t.Fatal(err)
	}
	written := &corev1.Secret{}
	if err := api.Get(t.Context(), client.ObjectKeyFromObject(secret), written); err != nil {
		t.Fatal(err)
	}
	if len(written.Data) == 0 || len(written.Annotations) == 0 || len(written.Labels) == 0 {
		t.Fatalf("written: %+v", written)
	}
	documented := documentedWriters(t)
	for kind, keys := range map[string][]string{
		"data":       slices.Collect(maps.Keys(written.Data)),
		"annotation": slices.Collect(maps.Keys(written.Annotations)),
		"label":      slices.Collect(maps.Keys(written.Labels)),
	} {
		for _, key := range keys {
			if !slices.Contains(documented[kind][key], "rkecontrolplane") {
				t.Errorf("rkecontrolplane writes the %s %s, which is %v's", kind, key, documented[kind][key])
			}
		}
	}
}
