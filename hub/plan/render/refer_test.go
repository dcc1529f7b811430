package render

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/drover-dev/drover/hub/api/references"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

// TestReferencesOfAllRules: what the rules allow to be named is loaded before plans are made, and nothing else is.
func TestReferencesOfAllRules(t *testing.T) {
	for _, rule := range references.Rules {
		if rule.Of != "" {
			continue
		}
		value := any("named")
		if rule.Form == references.URL {
			value = "secret://named"
		}
		for _, segment := range slices.Backward(strings.Split(rule.Field, ".")) {
			switch name, kind := strings.TrimRight(segment, "[]{}"), segment[max(0, len(segment)-2):]; kind {
			case "[]":
				value = map[string]any{name: []any{value}}
			case "{}":
				value = map[string]any{name: map[string]any{"key": value}}
			default:
				value = map[string]any{name: value}
			}
		}
		raw, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		var spec rkev1.RKEControlPlaneSpec
		if err := json.Unmarshal(raw, &spec); err != nil {
			t.Fatalf("%s: %v", rule.Field, err)
		}
		if got := References(spec); len(got) != 1 || got[0] != (Reference{Kind: rule.Kind, Name: "named"}) {
			t.Errorf("%s refers to %v", rule.Field, got)
		}
	}
}

// TestRefer: a Secret is given to machines only if it is what the field is for, no key of anybody's, and says so where it must.
func TestRefer(t *testing.T) {
	const ca = "it holds a key, a kubeconfig or bootstrap data of a cluster"
	pair := map[string][]byte{"tls.crt": []byte("crt"), "tls.key": []byte("hush")}
	for name, tt := range map[string]struct {
		rule   references.Rule
		ref    Reference
		object Object
		// problem is part of the message; empty means that the object is given.
		problem string
	}{
		"a client certificate": {references.RegistryTLS, Reference{Name: "x"}, Object{Type: "kubernetes.io/tls", Data: pair}, ""},
		"a cluster's authority": {references.RegistryTLS, Reference{Name: "x"},
			Object{Type: "cluster.x-k8s.io/secret", Data: pair, Forbidden: ca}, "is given to no machine: " + ca},
		"an authority by its name": {references.RegistryTLS, Reference{Name: "x"},
			Object{Type: "kubernetes.io/tls", Data: pair, Forbidden: "its name"}, "is given to no machine: its name"},
		"another pair": {references.RegistryTLS, Reference{Name: "x"}, Object{Type: "Opaque", Data: pair},
			`has type "Opaque"; it takes kubernetes.io/tls`},
		"TLS of another namespace": {references.RegistryTLS, Reference{Namespace: "other", Name: "x"},
			Object{Type: "kubernetes.io/tls", GrantedTo: "fleet-default/prod"}, "not authorized"},
		"a token for a registry": {references.RegistryAuth, Reference{Name: "x"}, Object{Type: "kubernetes.io/service-account-token"},
			"it takes rke.cattle.io/auth-config, kubernetes.io/basic-auth or kubernetes.io/dockerconfigjson"},
		"an authority as a file": {references.FileSecret, Reference{Name: "x"}, Object{AuthorizedFor: "prod", Forbidden: ca},
			"is given to no machine"},
		"a file": {references.FileSecret, Reference{Name: "x"}, Object{Type: "kubernetes.io/tls", AuthorizedFor: "a, prod"},
			""},
		"a file of others": {references.FileSecret, Reference{Name: "x"}, Object{AuthorizedFor: "a"},
			`add "prod" to its annotation rke.cattle.io/object-authorized-for-clusters`},
		"a file that is granted only": {references.FileSecret, Reference{Name: "x"}, Object{GrantedTo: "prod"}, "not authorized"},
		"a credential":                {references.S3Credential, Reference{Name: "x"}, Object{Type: "Opaque"}, ""},
		"a credential of no type":     {references.S3Credential, Reference{Namespace: "fleet-default", Name: "x"}, Object{}, ""},
		"a credential of Rancher's": {references.S3Credential, Reference{Namespace: "other", Name: "x"},
			Object{Type: "provisioning.cattle.io/cloud-credential", GrantedTo: "fleet-default/prod"}, ""},
		"a credential of others": {references.S3Credential, Reference{Namespace: "other", Name: "x"}, Object{GrantedTo: "prod"},
			`add "fleet-default/prod" to its annotation v2prov-secret-authorized-for-cluster`},
		"a key as a credential": {references.S3Credential, Reference{Name: "x"}, Object{Type: "kubernetes.io/tls"},
			"it takes Opaque or provisioning.cattle.io/cloud-credential"},
		"a cloud's configuration": {references.CloudProvider, Reference{Name: "x"}, Object{GrantedTo: "prod"}, ""},
		"one that says nothing": {references.CloudProvider, Reference{Name: "x"}, Object{},
			`add "prod" to its annotation v2prov-secret-authorized-for-cluster`},
	} {
		t.Run(name, func(t *testing.T) {
			in := Inputs{Cluster: cluster(t, k3s), Machine: node("a", "w")}
			tt.ref.Kind = tt.rule.Kind
			in.Cluster.Objects = Objects{tt.ref: tt.object}
			b := builder{Inputs: in}
			_, ok := b.refer(tt.rule, "spec.field", tt.ref)
			problem := ""
			if len(b.problems) > 0 {
				problem = b.problems[0].String()
			}
			if ok != (tt.problem == "") || !strings.Contains(problem, tt.problem) || strings.Contains(problem, "hush") {
				t.Errorf("got %t, %s", ok, problem)
			}
		})
	}
}
