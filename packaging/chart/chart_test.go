package main

import (
	"flag"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"helm.sh/helm/v4/pkg/chart/common"
	commonutil "helm.sh/helm/v4/pkg/chart/common/util"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/lint/support"
	"helm.sh/helm/v4/pkg/engine"
	appsv1 "k8s.io/api/apps/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "write the golden files again")

const serverURL = "serverURL: https://hub.example.com:8443\n"

// render returns the objects of the chart with values in YAML, in the order of their files, as helm template prints them.
func render(t *testing.T, values string) (string, error) {
	t.Helper()
	loaded, err := load("drover", "v1.2.3", time.Unix(0, 0))
	if err != nil {
		t.Fatal(err)
	}
	return renderChart(t, loaded, values)
}

func renderChart(t *testing.T, loaded *chart.Chart, values string) (string, error) {
	t.Helper()
	parsed, err := common.ReadValues([]byte(values))
	if err != nil {
		t.Fatal(err)
	}
	release := common.ReleaseOptions{Name: "drover", Namespace: "drover-system", Revision: 1, IsInstall: true}
	complete, err := commonutil.ToRenderValues(loaded, parsed, release, common.DefaultCapabilities)
	if err != nil {
		return "", err
	}
	files, err := engine.Render(loaded, complete)
	if err != nil {
		return "", err
	}
	var out strings.Builder
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if text := strings.TrimSpace(files[name]); strings.HasSuffix(name, ".yaml") && text != "" {
			out.WriteString("---\n# Source: " + name + "\n" + text + "\n")
		}
	}
	return out.String(), nil
}

// decode refuses fields that the kinds do not have.
func decode(t *testing.T, rendered string) (objects []runtime.Object) {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientscheme.AddToScheme, gatewayv1.Install, monitoringv1.AddToScheme,
		clusterctlv1.AddToScheme} {
		utilruntime.Must(add(scheme))
	}
	// cert-manager's types need newer libraries of Kubernetes than the hub.
	scheme.AddKnownTypeWithName(schema.GroupVersionKind{Group: "cert-manager.io", Version: "v1", Kind: "Certificate"}, &certificate{})
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	for document := range strings.SplitSeq(rendered, "\n---\n") {
		object, _, err := decoder.Decode([]byte(document), nil, nil)
		if err != nil {
			t.Fatalf("%v in\n%s", err, document)
		}
		objects = append(objects, object)
	}
	return objects
}

// find returns the only object of a type.
func find[T runtime.Object](t *testing.T, objects []runtime.Object) (out T) {
	t.Helper()
	found := 0
	for _, object := range objects {
		if typed, ok := object.(T); ok {
			out = typed
			found++
		}
	}
	if found != 1 {
		t.Fatalf("%d objects of type %T, want 1", found, out)
	}
	return out
}

// TestValues renders the chart with each file in drover/ci, which golden files show.
func TestValues(t *testing.T) {
	paths, err := filepath.Glob("drover/ci/*-values.yaml")
	if err != nil || len(paths) < 4 {
		t.Fatalf("files of values: %v, %v", paths, err)
	}
	for _, path := range paths {
		name := strings.TrimSuffix(filepath.Base(path), "-values.yaml")
		t.Run(name, func(t *testing.T) {
			values, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			parsed, err := common.ReadValues(values)
			if err != nil {
				t.Fatal(err)
			}
			for _, message := range lint.RunAll("drover", parsed, "drover-system").Messages {
				if message.Severity > support.InfoSev {
					t.Error(message)
				}
			}
			rendered, err := render(t, string(values))
			if err != nil {
				t.Fatal(err)
			}
			objects := decode(t, rendered)
			checkRestricted(t, find[*appsv1.Deployment](t, objects))
			checkRules(t, objects)
			golden(t, "testdata/"+name+".yaml", rendered)
		})
	}
}

// golden compares all but the rules of the ClusterRole, which checkRules compares.
func golden(t *testing.T, path, rendered string) {
	t.Helper()
	before, rest, _ := strings.Cut(rendered, "\nrules:\n")
	_, after, _ := strings.Cut(rest, "\n---\n")
	rendered = before + "\nrules: [] # those of packaging/rbac/hub.yaml\n---\n" + after
	if *update {
		if err := os.WriteFile(path, []byte(rendered), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if rendered != string(want) {
		t.Errorf("differs from %s; run go test . -update and look at git diff:\n%s", path, rendered)
	}
}

// checkRestricted evaluates the Pod as a namespace with pod-security.kubernetes.io/enforce: restricted does.
func checkRestricted(t *testing.T, deployment *appsv1.Deployment) {
	t.Helper()
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	pod := deployment.Spec.Template
	level := api.LevelVersion{Level: api.LevelRestricted, Version: api.LatestVersion()}
	if result := policy.AggregateCheckResults(evaluator.EvaluatePod(level, &pod.ObjectMeta, &pod.Spec)); !result.Allowed {
		t.Error(result.ForbiddenDetail())
	}
}

// checkRules compares the rights with those that integration tests compare with the requests of hubs. The other role has what providers of
// infrastructure grant.
func checkRules(t *testing.T, objects []runtime.Object) {
	t.Helper()
	role := &rbacv1.ClusterRole{}
	for _, object := range objects {
		switch found, _ := object.(*rbacv1.ClusterRole); {
		case found == nil:
		case found.Name == "drover-hub":
			role = found
		case found.AggregationRule == nil || len(found.Rules) > 0:
			t.Errorf("a ClusterRole that is neither the hub's nor aggregated: %+v", found)
		}
	}
	content, err := os.ReadFile("../rbac/hub.yaml")
	if err != nil {
		t.Fatal(err)
	}
	want := &rbacv1.ClusterRole{}
	if err := yaml.UnmarshalStrict(content, want); err != nil {
		t.Fatal(err)
	}
	if len(want.Rules) == 0 || !equality.Semantic.DeepEqual(role.Rules, want.Rules) {
		t.Errorf("the rules of the ClusterRole are not those of packaging/rbac/hub.yaml: %v", role.Rules)
	}
}

// TestRefused lists values that cannot work, with what the message must contain.
func TestRefused(t *testing.T) {
	for values, want := range map[string]string{
		"{}":                                                                "serverURL: must be the URL",
		"serverURL: http://hub.example.com":                                 "/serverURL",
		serverURL + "replica: 3":                                            "'replica'",
		serverURL + "replicas: two":                                         "/replicas",
		serverURL + "replicas: 0":                                           "/replicas",
		serverURL + "image: {registry: x}":                                  "'registry'",
		serverURL + "image: {digest: abc}":                                  "/image/digest",
		serverURL + "capi: none":                                            "/capi",
		serverURL + "exposure: {type: route}":                               "/exposure/type",
		serverURL + "exposure: {type: gateway}":                             "exposure.gateway.parentRefs: must name a Gateway",
		serverURL + "exposure: {nodePort: 30000}":                           "exposure.nodePort: is for exposure.type nodePort",
		serverURL + "metrics: {serviceMonitor: {enabled: true}}":            "metrics.serviceMonitor.enabled: needs metrics.enabled=true",
		serverURL + "networkPolicy: {metricsFrom: [{podSelector: {}}]}":     "networkPolicy.metricsFrom: needs",
		"serverURL: https://192.0.2.1\nexposure: {type: ingress}":           "serverURL: must have a DNS name",
		"serverURL: https://[2001:db8::1]:443\nexposure: {type: ingress}":   "serverURL: must have a DNS name",
		serverURL + "tls: {source: secret}":                                 "tls.secretName: must name the Secret",
		serverURL + "tls: {secretName: ca}":                                 "tls.secretName: is for tls.source secret and certManager",
		serverURL + "tls: {source: secret, secretName: drover-gateway-tls}": "which the hub writes",
		serverURL + "tls: {source: certManager}":                            "tls.issuerRef.name: must name the issuer",
		serverURL + "tls: {issuerRef: {name: ca}}":                          "tls.issuerRef.name: must name the issuer",
		serverURL + "tls: {source: letsEncrypt}":                            "/tls/source",
		serverURL + "clusterctl: {inventory: yes please}":                   "/clusterctl/inventory",
		serverURL + "extraArgs: [--log-level=debug]":                        "extraArgs: --log-level is set by the chart",
		serverURL + "extraArgs: [log-level]":                                "/extraArgs/0",
	} {
		if _, err := render(t, values); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\n is answered with %v, want %q", values, err, want)
		}
	}
}

// TestSchemaKnowsAllValues: no level of the schema but maps accepts what values.yaml does not have.
func TestSchemaKnowsAllValues(t *testing.T) {
	loaded, err := load("drover", "v1.2.3", time.Unix(0, 0))
	if err != nil {
		t.Fatal(err)
	}
	schema := map[string]any{}
	if err := yaml.UnmarshalStrict(loaded.Schema, &schema); err != nil {
		t.Fatal(err)
	}
	var compare func(path string, schema, values map[string]any)
	compare = func(path string, schema, values map[string]any) {
		properties, ok := schema["properties"].(map[string]any)
		if !ok { // a map
			return
		}
		if schema["additionalProperties"] != false {
			t.Errorf("the schema accepts unknown keys below %q", path)
		}
		for name := range properties {
			if _, ok := values[name]; !ok && name != "global" { // which Helm adds
				t.Errorf("values.yaml lacks %s%s", path, name)
			}
		}
		for name, value := range values {
			property, ok := properties[name].(map[string]any)
			if !ok {
				t.Errorf("the schema lacks %s%s", path, name)
			}
			if below, ok := value.(map[string]any); ok {
				compare(path+name+".", property, below)
			}
		}
	}
	compare("", schema, loaded.Values)
}
