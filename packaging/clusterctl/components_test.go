package clusterctl

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientscheme "k8s.io/client-go/kubernetes/scheme"

	"github.com/drover-dev/drover/hub/api/provider"
)

var withURL = []string{"DROVER_SERVER_URL=https://hub.example.com"}

// flag is the flag of clusterctl for a provider.
func flag(p provider.Provider) string { return "--" + string(p) }

// decode decodes YAML documents, and refuses fields that the kinds do not have.
func decode(t *testing.T, content string) (objects []runtime.Object) {
	t.Helper()
	scheme := runtime.NewScheme()
	utilruntime.Must(clientscheme.AddToScheme(scheme))
	utilruntime.Must(apiextensionsv1.AddToScheme(scheme))
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	for document := range strings.SplitSeq(strings.TrimPrefix(content, "---\n"), "\n---\n") {
		object, _, err := decoder.Decode([]byte(document), nil, nil)
		if err != nil {
			t.Fatalf("%v in\n%s", err, document)
		}
		objects = append(objects, object)
	}
	return objects
}

// find returns the objects of a type by their names.
func find[T runtime.Object](t *testing.T, objects []runtime.Object) map[string]T {
	t.Helper()
	out := map[string]T{}
	for _, object := range objects {
		if typed, ok := object.(T); ok {
			accessor, err := meta.Accessor(typed)
			if err != nil {
				t.Fatal(err)
			}
			out[accessor.GetName()] = typed
		}
	}
	return out
}

// TestComponents has clusterctl render the components of each provider as for clusterctl init.
func TestComponents(t *testing.T) {
	r := unpack(t, version)
	for _, p := range provider.All() {
		t.Run(string(p), func(t *testing.T) {
			objects := decode(t, r.run(t, withURL, "generate", "provider", flag(p), "drover:"+version))
			for _, object := range objects {
				accessor, err := meta.Accessor(object)
				if err != nil {
					t.Fatal(err)
				}
				if got := accessor.GetLabels()[provider.Label]; got != p.Value() {
					t.Errorf("%T %s has the label of provider %q", object, accessor.GetName(), got)
				}
			}
			if got := slices.Collect(maps.Keys(find[*corev1.Namespace](t, objects))); !slices.Equal(got, []string{namespace}) {
				t.Errorf("the namespaces are %v", got)
			}
			checkDeployment(t, p, find[*appsv1.Deployment](t, objects))
			checkRoles(t, p, objects)
		})
	}
}

func checkDeployment(t *testing.T, p provider.Provider, deployments map[string]*appsv1.Deployment) {
	t.Helper()
	if len(deployments) != 1 {
		t.Fatalf("there are %d Deployments", len(deployments))
	}
	pod := deployments["drover-"+string(p)].Spec.Template.Spec
	if pod.NodeSelector["kubernetes.io/os"] != "linux" {
		t.Errorf("the node selector is %v, and the image is for Linux", pod.NodeSelector)
	}
	container := pod.Containers[0]
	if container.Name != "manager" || container.Image != "docker.io/drover/hub:"+version {
		t.Errorf("the container is %s of the image %s", container.Name, container.Image)
	}
	want := map[provider.Provider][]string{
		provider.Bootstrap: {"--server-url=https://hub.example.com"},
		provider.ControlPlane: {
			"--server-url=https://hub.example.com", "--capi=external", "--cluster-agent-image=drover/cluster-agent:" + version,
			"--owner-cluster-role=cattle-system-drover-control-plane",
		},
		provider.Infrastructure: {"--node-driver-image=docker.io/drover/hub:" + version},
	}[p]
	for _, argument := range append(want, "--providers="+string(p), "--system-namespace=$(POD_NAMESPACE)",
		"--metrics-listen=127.0.0.1:9441") {
		if !slices.Contains(container.Args, argument) {
			t.Errorf("the arguments lack %s: %v", argument, container.Args)
		}
	}
	for _, argument := range container.Args {
		if strings.Contains(argument, "${") {
			t.Errorf("the argument %s has a variable", argument)
		}
	}
}

// checkRoles: clusterctl delete leaves cluster-wide roles whose names do not begin with the namespace, and Cluster API may handle all kinds
// of the contract.
func checkRoles(t *testing.T, p provider.Provider, objects []runtime.Object) {
	t.Helper()
	roles := find[*rbacv1.ClusterRole](t, objects)
	for name := range roles {
		if !strings.HasPrefix(name, namespace+"-") {
			t.Errorf("the ClusterRole %s would stay after clusterctl delete", name)
		}
	}
	for name, binding := range find[*rbacv1.ClusterRoleBinding](t, objects) {
		if roles[binding.RoleRef.Name] == nil || binding.Subjects[0].Name != "drover-"+string(p) || binding.Subjects[0].Namespace != namespace {
			t.Errorf("the ClusterRoleBinding %s is %+v for %+v", name, binding.RoleRef, binding.Subjects)
		}
	}
	for resource, only := range map[string]provider.Provider{
		"rkebootstraps/identity": provider.Bootstrap, "custommachines/requests": provider.Infrastructure,
	} {
		may := slices.ContainsFunc(roles[namespace+"-drover-"+string(p)].Rules, func(rule rbacv1.PolicyRule) bool {
			return slices.Contains(rule.Resources, resource)
		})
		if may != (p == only) {
			t.Errorf("it may update %s: %v", resource, may)
		}
	}
	if providers := roles[namespace+"-drover-control-plane-providers"]; (p == provider.ControlPlane) !=
		(providers != nil && providers.AggregationRule.ClusterRoleSelectors[0].MatchLabels["cluster.x-k8s.io/aggregate-to-manager"] == "true") {
		t.Errorf("the right to kinds of other providers is %+v", providers)
	}
	aggregated := roles[namespace+"-drover-"+string(p)+"-capi-manager"]
	if aggregated == nil || aggregated.Labels["cluster.x-k8s.io/aggregate-to-manager"] != "true" {
		t.Fatalf("nothing is granted to Cluster API's manager: %v", slices.Collect(maps.Keys(roles)))
	}
	for name, definition := range find[*apiextensionsv1.CustomResourceDefinition](t, objects) {
		_, contract := definition.Labels["cluster.x-k8s.io/v1beta2"]
		if contract != slices.Contains(aggregated.Rules[0].Resources, definition.Spec.Names.Plural) {
			t.Errorf("%s: it is of the contract: %v, but the rules are %v", name, contract, aggregated.Rules)
		}
	}
}

// TestEmbedded: with the other configuration, the hub runs Cluster API, whose definitions come from the repository.
func TestEmbedded(t *testing.T) {
	r := unpack(t, version)
	r.config = "clusterctl-embedded.yaml"
	deployment := find[*appsv1.Deployment](t, decode(t, r.run(t, withURL, "generate", "provider", "--control-plane", "drover:"+version)))
	if args := deployment["drover-control-plane"].Spec.Template.Spec.Containers[0].Args; !slices.Contains(args, "--capi=embedded") {
		t.Errorf("the arguments are %v", args)
	}
	core := r.run(t, nil, "generate", "provider", "--core", "cluster-api")
	definitions := find[*apiextensionsv1.CustomResourceDefinition](t, decode(t, core))
	machines := definitions["machines.cluster.x-k8s.io"]
	if machines == nil || machines.Spec.Conversion.Webhook.ClientConfig.Service.Name != webhookService {
		t.Errorf("there are the definitions %v", slices.Collect(maps.Keys(definitions)))
	}
}

// TestVariables: variables change what they are named for, and one that is missing is named.
func TestVariables(t *testing.T) {
	r := unpack(t, version)
	if out, err := r.try(t, nil, "generate", "provider", "--bootstrap", "drover"); err == nil ||
		!strings.Contains(out, "value for variables [DROVER_SERVER_URL] is not set") {
		t.Errorf("without the URL clusterctl says %v: %s", err, out)
	}
	config, err := os.ReadFile(filepath.Join(r.dir, r.config))
	if err != nil {
		t.Fatal(err)
	}
	config = append(config, "\nimages: {all: {repository: registry.example.com/hubs, tag: v9}}\n"...)
	if err := os.WriteFile(filepath.Join(r.dir, r.config), config, 0o600); err != nil {
		t.Fatal(err)
	}
	objects := decode(t, r.run(t, append(withURL, "DROVER_GATEWAY_SERVICE_TYPE=NodePort",
		"DROVER_GATEWAY_NODE_PORT=30443", "DROVER_GATEWAY_PORT=8443", "DROVER_SYSTEM_DEFAULT_REGISTRY=registry.example.com:5000",
		"DROVER_SYSTEM_DEFAULT_REGISTRY_PULL_SECRETS=one,two", "DROVER_RELEASE_DATA=https://data.example.com/data.json",
		"DROVER_GATEWAY_CA_SECRET=company-ca", "DROVER_METRICS_LISTEN=:9441", "DROVER_RKE2_PRIME=true"),
		"generate", "provider", "--control-plane", "drover"))
	container := find[*appsv1.Deployment](t, objects)["drover-control-plane"].Spec.Template.Spec.Containers[0]
	if container.Image != "registry.example.com/hubs/hub:v9" ||
		!slices.Contains(container.Env, corev1.EnvVar{Name: "SYSTEM_DEFAULT_REGISTRY", Value: "registry.example.com:5000"}) ||
		!slices.Contains(container.Env, corev1.EnvVar{Name: "SYSTEM_DEFAULT_REGISTRY_PULL_SECRETS", Value: "one,two"}) ||
		!slices.Contains(container.Args, "--system-default-registry-pull-secrets=$(SYSTEM_DEFAULT_REGISTRY_PULL_SECRETS)") ||
		!slices.Contains(container.Env, corev1.EnvVar{Name: "RELEASE_DATA", Value: "https://data.example.com/data.json"}) ||
		!slices.Contains(container.Env, corev1.EnvVar{Name: "GATEWAY_CA_SECRET", Value: "company-ca"}) ||
		!slices.Contains(container.Args, "--metrics-listen=:9441") || !slices.Contains(container.Args, "--rke2-prime=true") {
		t.Errorf("the container is %+v", container)
	}
	gateway := find[*corev1.Service](t, objects)["drover-gateway"].Spec
	if gateway.Type != corev1.ServiceTypeNodePort || gateway.Ports[0].NodePort != 30443 || gateway.Ports[0].Port != 8443 {
		t.Errorf("the Service of the gateway is %+v", gateway)
	}
	// clusterctl does not replace an image in an argument.
	const image = "registry.example.com/hubs/hub:v9"
	objects = decode(t, r.run(t, append(withURL, "DROVER_NODE_DRIVER_IMAGE="+image), "generate", "provider", "--infrastructure", "drover"))
	container = find[*appsv1.Deployment](t, objects)["drover-infrastructure"].Spec.Template.Spec.Containers[0]
	if container.Image != image || !slices.Contains(container.Args, "--node-driver-image="+image) {
		t.Errorf("the container of the infrastructure provider is %+v", container)
	}
}

// TestDescribe: clusterctl reads the components without values of variables, too. It finds the version that was unpacked last, also a
// release candidate, which it would not look for.
func TestDescribe(t *testing.T) {
	const version = "v0.1.1-rc.1"
	r := unpack(t, "v0.0.9", version)
	for _, p := range provider.All() {
		out := r.run(t, nil, "generate", "provider", flag(p), "drover", "--describe")
		if !strings.Contains(out, version) || !strings.Contains(out, namespace) {
			t.Errorf("%s is described as\n%s", p, out)
		}
	}
}

func TestReproducible(t *testing.T) {
	archive := func() string {
		files, err := Repository(Release{Version: version, ClusterAPI: clusterAPI})
		if err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		for _, name := range slices.Sorted(maps.Keys(files)) {
			out.Write(files[name])
		}
		return out.String()
	}
	if diff := cmp.Diff(archive(), archive()); diff != "" {
		t.Error(diff)
	}
}

// TestVersion: a version whose contract clusterctl could not find out is refused.
func TestVersion(t *testing.T) {
	for version, want := range map[string]string{
		"1.2.3":   `must be like v1.2.3, got "1.2.3"`,
		"v99.1.0": "metadata.yaml has no releaseSeries for v99.1.0: add one with major 99 and minor 1",
	} {
		if _, err := Repository(Release{Version: version, ClusterAPI: clusterAPI}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s is answered with %v, want %q", version, err, want)
		}
	}
	files, err := Repository(Release{Version: "v0.0.0+ab-dirty", HubVersion: "ab-dirty", ClusterAPI: clusterAPI})
	if err != nil {
		t.Fatal(err)
	}
	if image := "image: docker.io/drover/hub:ab-dirty\n"; !strings.Contains(string(
		files["infrastructure-drover/v0.0.0+ab-dirty/infrastructure-components.yaml"]), image) {
		t.Errorf("a commit without a version does not have the %s", image)
	}
}

// TestClusterAPI: the version of the tests is that of the hub.
func TestClusterAPI(t *testing.T) {
	content, err := os.ReadFile("../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(content), "sigs.k8s.io/cluster-api "+clusterAPI+"\n") {
		t.Errorf("go.mod has another version of Cluster API than %s", clusterAPI)
	}
}
