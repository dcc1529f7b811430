package clusteragent

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func input(change func(*Input)) Input {
	in := Input{
		ServerURL: "https://hub.example:8443", CACerts: []byte("authority\n"), Cluster: "c-m-abcdefgh", Token: "id.secret",
		Image: "drover/cluster-agent:v1", Replicas: 1,
	}
	if change != nil {
		change(&in)
	}
	return in
}

func TestManifest(t *testing.T) {
	for name, change := range map[string]func(*Input){
		"imported": nil,
		"own-authority-two-replicas": func(in *Input) {
			in.AllowMasters, in.Replicas = true, 2
			in.ControlPlaneTaints = []corev1.Taint{
				{Key: "node-role.kubernetes.io/control-plane", Value: "true", Effect: corev1.TaintEffectNoSchedule},
				{Key: "CriticalAddonsOnly", Value: "true", Effect: corev1.TaintEffectNoExecute},
			}
		},
		"pull-secret": func(in *Input) {
			in.Image, in.PullConfig = "registry.example/drover/cluster-agent:v1", []byte(`{"auths":{}}`)
		},
		"publicly-trusted-hub": func(in *Input) { in.CACerts = nil },
		"environment": func(in *Input) {
			in.Env = []rkev1.EnvVar{{Name: "HTTPS_PROXY", Value: "http://proxy:3128"}, {Name: "CATTLE_SERVER", Value: "https://other"},
				{Name: "X", Value: "$(Y)"}, {Value: "z"}, {Name: "NO_PROXY=10.0.0.0/8"}, {Name: "export A", Value: "z"}}
		},
		"customized": func(in *Input) {
			in.Customization = &rkev1.AgentDeploymentCustomization{
				AppendTolerations: []corev1.Toleration{{Key: "dedicated", Operator: corev1.TolerationOpExists}, {Key: "x", Operator: "Like"}},
				OverrideAffinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
					RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
						NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "agents",
							Operator: corev1.NodeSelectorOpExists}}}},
					}}},
				OverrideResourceRequirements: &corev1.ResourceRequirements{Limits: corev1.ResourceList{
					corev1.ResourceMemory: resource.MustParse("256Mi")}},
				SchedulingCustomization: &rkev1.AgentSchedulingCustomization{
					PriorityClass:       &rkev1.PriorityClassSpec{Value: 1000, PreemptionPolicy: ptr.To(corev1.PreemptNever)},
					PodDisruptionBudget: &rkev1.PodDisruptionBudgetSpec{MaxUnavailable: ptr.To(intstr.FromString("50%"))},
				},
			}
		},
		"auth-endpoint": func(in *Input) { in.AuthEndpoint = &AuthEndpoint{Host: "127.0.0.1", PublicKeys: []byte(`{"keys":[]}`)} },
		"auth-endpoint-ipv6": func(in *Input) {
			in.AllowMasters, in.AuthEndpoint = true, &AuthEndpoint{Host: "[::1]", PublicKeys: []byte(`{"keys":[]}`)}
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Manifest(input(change))
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join("testdata", name+".golden.yaml")
			if *update {
				if err := os.WriteFile(path, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), string(got)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			keys := ""
			if input(change).AuthEndpoint != nil {
				keys = `{"keys":[]}`
			}
			if token, publicKeys := Parse(got); token != "id.secret" || string(publicKeys) != keys {
				t.Errorf("it is made with the token %q and the keys %q", token, publicKeys)
			}
		})
	}
}

func TestManifestNeeds(t *testing.T) {
	for want, change := range map[string]func(*Input){
		"ServerURL is needed":                    func(in *Input) { in.ServerURL = "" },
		"Cluster is needed":                      func(in *Input) { in.Cluster = "" },
		"Token is needed":                        func(in *Input) { in.Token = "" },
		"Image is needed":                        func(in *Input) { in.Image = "" },
		"Replicas is 3":                          func(in *Input) { in.Replicas = 3 },
		"AuthEndpoint needs Host and PublicKeys": func(in *Input) { in.AuthEndpoint = &AuthEndpoint{Host: "127.0.0.1"} },
		"Replicas is 0, it must be 1 or 2":       func(in *Input) { in.Replicas = 0 },
	} {
		if _, err := Manifest(input(change)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// TestManifestTokenOnlyInSecret: many users can read arguments and environment variables of a Pod.
func TestManifestTokenOnlyInSecret(t *testing.T) {
	const planted = "id.planted"
	raw, err := Manifest(input(func(in *Input) { in.Token = planted }))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(raw), planted) {
		t.Error("the token is in the manifest as it is")
	}
	var found int
	for _, document := range strings.Split(string(raw), "---\n")[1:] {
		var secret corev1.Secret
		if err := yaml.Unmarshal([]byte(document), &secret); err != nil {
			t.Fatal(err)
		}
		if secret.Kind == "Secret" && string(secret.Data["token"]) == planted {
			found++
		}
	}
	if found != 1 {
		t.Errorf("the token is in %d Secrets, want 1", found)
	}
}

// TestImmutableObjectNames: changed objects get another name if the API server refuses changes, as for a PriorityClass, or if a Pod would
// not restart, as for a Secret.
func TestImmutableObjectNames(t *testing.T) {
	a, b := input(nil), input(func(in *Input) { in.Token = "id.other" })
	if a.credentialName() == b.credentialName() {
		t.Error("another token has the same Secret")
	}
	class := func(value int, policy *corev1.PreemptionPolicy) string {
		return input(func(in *Input) {
			in.Customization = &rkev1.AgentDeploymentCustomization{SchedulingCustomization: &rkev1.AgentSchedulingCustomization{
				PriorityClass: &rkev1.PriorityClassSpec{Value: value, PreemptionPolicy: policy},
			}}
		}).priorityClassName()
	}
	names := map[string]bool{class(1, nil): true, class(2, nil): true, class(1, ptr.To(corev1.PreemptNever)): true}
	if len(names) != 3 {
		t.Errorf("of three priorities, there are %d names", len(names))
	}
}
