package references

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

const page = "../../../docs/references.md"

// TestDocument: the page has a row for each rule and each field that is none.
func TestDocument(t *testing.T) {
	raw, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(document()) {
		if !strings.Contains(string(raw), line) {
			t.Errorf("%s lacks the line\n%s", page, line)
		}
	}
	known := document()
	for line := range strings.Lines(string(raw)) {
		if strings.HasPrefix(line, "| `") && !strings.Contains(known, line) {
			t.Errorf("%s has a line for which there is no rule:\n%s", page, line)
		}
	}
}

// TestForbidden: what belongs to the hub, to Cluster API or to Kubernetes is given to nobody.
func TestForbidden(t *testing.T) {
	for secretType, forbidden := range map[corev1.SecretType]bool{
		"": false, corev1.SecretTypeOpaque: false, corev1.SecretTypeTLS: false, corev1.SecretTypeBasicAuth: false,
		corev1.SecretTypeDockerConfigJson: false,
		rkev1.AuthConfigSecretType:        false, "provisioning.cattle.io/cloud-credential": false,
		clusterv1.ClusterSecretType: true, corev1.SecretTypeServiceAccountToken: true, corev1.SecretTypeBootstrapToken: true,
		rkev1.MachinePlanSecretType: true, rkev1.MachineStateSecretType: true, rkev1.MachineRequestSecretType: true,
		rkev1.BootstrapSecretType:    true,
		rkev1.ClusterStateSecretType: true, "rke.cattle.io/whatever-comes": true,
	} {
		if got := Forbidden(&corev1.Secret{Type: secretType}); (got != "") != forbidden {
			t.Errorf("%s: %q", secretType, got)
		}
	}
	if Forbidden(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{managementv3.RegistrationTokenLabel: "true"}}}) == "" {
		t.Error("a registration token is given away")
	}
	for name, want := range map[string]string{"demo-ca": "demo", "demo-cca": "demo", "demo-kubeconfig": "demo", "demo-rke-state": "demo",
		"demo": "", "-ca": "", "ca": ""} {
		if got, ok := ClusterOf(name); got != want || ok != (want != "") {
			t.Errorf("%s is a Secret of %q, %t", name, got, ok)
		}
	}
}

// document are the tables of docs/references.md.
func document() string {
	var out strings.Builder
	out.WriteString("| field | names | form | type of the Secret | must say itself that the cluster may have it |\n|---|---|---|---|---|\n")
	for _, rule := range Rules {
		field := fmt.Sprintf("`%s`", rule.Field)
		if rule.Of != "" {
			field += " of " + rule.Of
		}
		types := "any that is not excluded below"
		if names := rule.TypeNames(); names != "" {
			types = names
		}
		consent := string(rule.Consent)
		switch rule.Consent {
		case NoConsent:
			consent = "no"
		case NeverRead:
			types = "the hub never reads it"
			consent = "the hub never reads it"
		}
		if rule.Kind == ConfigMap {
			types = ""
		}
		fmt.Fprintf(&out, "| %s | %s | `%s` | %s | %s |\n", field, rule.Kind, rule.Form, types, consent)
	}
	out.WriteString("\n| field that is no reference | it |\n|---|---|\n")
	for _, field := range slices.Sorted(maps.Keys(Others)) {
		fmt.Fprintf(&out, "| `%s` | %s |\n", field, Others[field])
	}
	return out.String()
}
