package render

import (
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/plans"
)

// TestOwnPrivateRegistry: registries that a cluster gives as an argument stay, unless it has others in its field; then a warning says so.
func TestOwnPrivateRegistry(t *testing.T) {
	const own = "mirrors: {docker.io: {endpoint: [https://own.example.com]}}\n"
	mirrors := &rkev1.Registry{Mirrors: map[string]rkev1.Mirror{"docker.io": {Endpoints: []string{"https://other.example.com"}}}}
	for name, tc := range map[string]struct {
		argument     string
		registries   *rkev1.Registry
		want, config string
		warns        bool
	}{
		"content": {argument: own, want: "own.example.com", config: "/etc/rancher/k3s/registries.yaml"},
		"content and an empty field": {argument: own, registries: &rkev1.Registry{}, want: "own.example.com",
			config: "/etc/rancher/k3s/registries.yaml"},
		"path": {argument: "/etc/own.yaml", config: "/etc/own.yaml"},
		"content and field": {argument: own, registries: mirrors, want: "other.example.com",
			config: "/etc/rancher/k3s/registries.yaml", warns: true},
		"path and field": {argument: "/etc/own.yaml", registries: mirrors, want: "other.example.com",
			config: "/etc/rancher/k3s/registries.yaml", warns: true},
	} {
		in := machineOf(t, k3s, "a", "w")
		in.Cluster.Settings.SystemDefaultRegistry = "hub.example.com"
		in.Cluster.PullSecrets = []Object{{Data: map[string][]byte{
			".dockerconfigjson": []byte(`{"auths":{"hub.example.com":{"username":"u","password":"p"}}}`)}}}
		in.Cluster.Spec.MachineGlobalConfig.Data = map[string]any{"private-registry": tc.argument}
		in.Cluster.Spec.Registries = tc.registries
		plan, problems := Plan(in)
		if err := problems.Err(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got := fileOf(t, plan, "/etc/rancher/k3s/registries.yaml"); (got == "") != (tc.want == "") || !strings.Contains(got, tc.want) {
			t.Errorf("%s: the distribution has the registries %q", name, got)
		}
		if got := fileOf(t, plan, "/etc/rancher/k3s/config.yaml.d/50-rancher.yaml"); !strings.Contains(got, `"`+tc.config+`"`) {
			t.Errorf("%s: the configuration is %s", name, got)
		}
		if got := fileOf(t, plan, agentRegistriesPath); !strings.Contains(got, "hub.example.com") || !strings.Contains(got, tc.want) {
			t.Errorf("%s: the agent has the registries %q", name, got)
		}
		if warns := slices.ContainsFunc(problems, func(p Problem) bool {
			return p.Field == "spec.rkeConfig.machineGlobalConfig.private-registry"
		}); warns != tc.warns {
			t.Errorf("%s: problems %+v", name, problems)
		}
	}
}

// TestAgentOfOwnPrivateRegistry: an agent pulls the installer with the registries that the cluster gives as an argument, and with the hub's
// credentials for those that it has none for.
func TestAgentOfOwnPrivateRegistry(t *testing.T) {
	for name, tc := range map[string]struct {
		argument   any
		registries *rkev1.Registry
		pulls      bool
		want       string
	}{
		"no credentials": {argument: "mirrors: {a: {endpoint: [b]}}", registries: &rkev1.Registry{},
			want: `{"configs":{},"mirrors":{"a":{"endpoint":["b"]}}}`},
		"a certificate": {argument: "configs: {hub.example.com: {tls: {ca_file: /ca}}}", pulls: true,
			want: `{"configs":{"hub.example.com":{"auth":{"password":"p","username":"u"},"tls":{"ca_file":"/ca"}}}}`},
		"credentials of its own": {argument: map[string]any{"configs": map[string]any{"hub.example.com": map[string]any{
			"auth": map[string]any{"username": "own"}}}}, pulls: true, want: `{"configs":{"hub.example.com":{"auth":{"username":"own"}}}}`},
		"no such content": {argument: "[a]", pulls: true,
			want: `{"configs":{"hub.example.com":{"auth":{"password":"p","username":"u"}}}}`},
		"path": {argument: "/etc/own.yaml", pulls: true, want: `{"configs":{"hub.example.com":{"auth":{"password":"p","username":"u"}}}}`},
	} {
		in := machineOf(t, k3s, "a", "w")
		in.Cluster.Settings.SystemDefaultRegistry = "hub.example.com"
		if tc.pulls {
			in.Cluster.PullSecrets = []Object{{Data: map[string][]byte{
				".dockerconfigjson": []byte(`{"auths":{"hub.example.com":{"username":"u","password":"p"}}}`)}}}
		}
		in.Cluster.Spec.MachineGlobalConfig.Data = map[string]any{"private-registry": tc.argument}
		in.Cluster.Spec.Registries = tc.registries
		plan, _ := Plan(in)
		var got any
		if err := yaml.Unmarshal([]byte(fileOf(t, plan, agentRegistriesPath)), &got); err != nil {
			t.Fatal(err)
		}
		if sorted, err := json.Marshal(got); err != nil || string(sorted) != tc.want {
			t.Errorf("%s: the agent has the registries %s, %v", name, sorted, err)
		}
	}
}

// TestPullCredentialsOfPath: machines get the hub's credentials for the path of its registry, and not those for another path of that host.
func TestPullCredentialsOfPath(t *testing.T) {
	in := machineOf(t, k3s, "a", "w")
	in.Cluster.Settings.SystemDefaultRegistry = "hub.example.com/mirror"
	in.Cluster.PullSecrets = []Object{{Data: map[string][]byte{".dockerconfigjson": []byte(
		`{"auths":{"hub.example.com/internal":{"username":"x","password":"y"},"hub.example.com/mirror":{"username":"u","password":"p"}}}`)}}}
	plan, problems := Plan(in)
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	if got := fileOf(t, plan, agentRegistriesPath); !strings.Contains(got, `"username": "u"`) || strings.Contains(got, `"x"`) {
		t.Errorf("the agent has the registries %s", got)
	}
}

// TestPullCredentialsBesideConfiguration: a registry with a certificate authority of the company's own needs an entry of the cluster, to
// which the hub's credentials are added, unless it has others.
func TestPullCredentialsBesideConfiguration(t *testing.T) {
	for name, tc := range map[string]struct {
		config rkev1.RegistryConfig
		want   string
	}{
		"a certificate": {rkev1.RegistryConfig{CABundle: []byte("pem")},
			`{"auth":{"password":"p","username":"u"},"tls":{"ca_file":"/var/lib/rancher/k3s/etc/tls/registries/hub.example.com/ca.crt"}}`},
		"credentials of its own": {rkev1.RegistryConfig{AuthConfigSecretName: "auth"}, `{"auth":{"password":"y","username":"x"}}`},
	} {
		in := machineOf(t, k3s, "a", "w")
		in.Cluster.Settings.SystemDefaultRegistry = "hub.example.com"
		in.Cluster.PullSecrets = []Object{{Data: map[string][]byte{
			".dockerconfigjson": []byte(`{"auths":{"hub.example.com":{"username":"u","password":"p"}}}`)}}}
		in.Cluster.Objects = map[Reference]Object{{Kind: KindSecret, Name: "auth"}: {Type: "kubernetes.io/basic-auth",
			Data: map[string][]byte{"username": []byte("x"), "password": []byte("y")}}}
		in.Cluster.Spec.Registries = &rkev1.Registry{Configs: map[string]rkev1.RegistryConfig{"hub.example.com": tc.config}}
		plan, problems := Plan(in)
		if err := problems.Err(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for _, path := range []string{agentRegistriesPath, "/etc/rancher/k3s/registries.yaml"} {
			var got struct{ Configs map[string]any }
			if err := yaml.Unmarshal([]byte(fileOf(t, plan, path)), &got); err != nil {
				t.Fatal(err)
			}
			if sorted, err := json.Marshal(got.Configs["hub.example.com"]); err != nil || string(sorted) != tc.want {
				t.Errorf("%s: %s has %s, %v", name, path, sorted, err)
			}
		}
	}
}

// fileOf is the content of a file of a plan; empty if it has none.
func fileOf(t *testing.T, plan plans.Plan, path string) string {
	t.Helper()
	for _, file := range plan.Files {
		if file.Path == path {
			content, err := base64.StdEncoding.DecodeString(file.Content)
			if err != nil {
				t.Fatal(err)
			}
			return string(content)
		}
	}
	return ""
}

// TestSystemDefaultRegistry: with a registry that is no prefix of images, no machine could pull its installer.
func TestSystemDefaultRegistry(t *testing.T) {
	const want = "spec.rkeConfig.machineGlobalConfig.system-default-registry: must be a host"
	for registry, valid := range map[string]bool{
		"own.example.com:5000/mirror": true, "https://own.example.com": false, "own.example.com/": false,
	} {
		for _, roles := range []string{"ecw", "w"} {
			in := machineOf(t, k3s, "a", roles)
			in.Cluster.Spec.MachineGlobalConfig.Data = map[string]any{"system-default-registry": registry}
			_, problems := Plan(in)
			if err := problems.Err(); (err == nil) != valid || err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%s, %s: got %v", registry, roles, err)
			}
		}
	}
}

// TestRegistryPath: before it took a registry with a path, RKE2 ended at each start with one.
func TestRegistryPath(t *testing.T) {
	const field = "spec.rkeConfig.machineGlobalConfig.system-default-registry"
	const want = `takes a host without a path only, and not "r.example/mirror"`
	for name, tc := range map[string]struct {
		version, own string
		unmanaged    bool
		fails        bool
	}{
		"RKE2 before it":            {"v1.35.2+rke2r1", "", false, true},
		"own registry with a path":  {"v1.33.9+rke2r1", "r.example/mirror", false, true},
		"own registry without one":  {"v1.33.9+rke2r1", "own.example:5000", false, false},
		"configuration of the user": {"v1.35.2+rke2r1", "", true, false},
		"RKE2 with it":              {"v1.35.3+rke2r1", "", false, false},
		"k3s":                       {"v1.35.2+k3s1", "", false, false},
	} {
		in := machineOf(t, tc.version, "a", "ecw")
		in.Cluster.Settings.SystemDefaultRegistry, in.Cluster.Spec.UnmanagedConfig = "r.example/mirror", tc.unmanaged
		in.Cluster.Spec.MachineGlobalConfig.Data = map[string]any{"system-default-registry": tc.own}
		_, problems := Plan(in)
		fails := slices.ContainsFunc(problems, func(p Problem) bool {
			return p.Fatal && p.Field == field && strings.Contains(p.Message, want)
		})
		if fails != tc.fails || (problems.Err() != nil) != tc.fails {
			t.Errorf("%s: problems %v", name, problems)
		}
	}
}

// TestRegistriesWithoutEffect: a mirror that nobody finds would not be missed before an image is pulled from the registry.
func TestRegistriesWithoutEffect(t *testing.T) {
	in := machineOf(t, k3s, "a", "w")
	in.Cluster.Spec.Registries = &rkev1.Registry{
		Mirrors: map[string]rkev1.Mirror{
			"https://docker.io": {Endpoints: []string{"https://mirror.example.com"}},
			"quay.io":           {Rewrites: map[string]string{"^(a": "b", "^c": "d"}},
			"*":                 {Endpoints: []string{"https://mirror.example.com"}},
		},
		Configs: map[string]rkev1.RegistryConfig{"mirror.example.com/v2": {InsecureSkipVerify: true}, "mirror.example.com:5000": {}},
	}
	_, problems := Plan(in)
	want := []string{
		`spec.rkeConfig.registries.configs["mirror.example.com/v2"]`, `spec.rkeConfig.registries.mirrors["https://docker.io"]`,
		`spec.rkeConfig.registries.mirrors["quay.io"].rewrite["^(a"]`,
	}
	var got []string
	for _, p := range problems {
		if p.Kept {
			got = append(got, p.Field)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("problems %v", problems)
	}
}
