package main

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
)

// providers are the entries of clusterctl's inventory that the chart renders, as clusterctl reads them.
func providers(t *testing.T, values string) (out []string) {
	t.Helper()
	rendered, err := render(t, serverURL+values)
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range decode(t, rendered) {
		p, ok := object.(*clusterctlv1.Provider)
		if !ok {
			continue
		}
		if p.Name != p.ManifestLabel() || p.Namespace != "drover-system" {
			t.Errorf("the entry of %s is %s/%s", p.ManifestLabel(), p.Namespace, p.Name)
		}
		if p.GetProviderType() == clusterctlv1.ProviderTypeUnknown {
			t.Errorf("clusterctl does not know the type %s", p.Type)
		}
		if _, ok := p.Labels[clusterctlv1.ClusterctlLabel]; !ok ||
			p.Labels[clusterctlv1.ClusterctlCoreLabel] != clusterctlv1.ClusterctlCoreLabelInventoryValue ||
			p.Labels["cluster.x-k8s.io/provider"] != p.ManifestLabel() {
			t.Errorf("clusterctl does not find %s by its labels %v", p.Name, p.Labels)
		}
		out = append(out, p.Name+" "+p.Version)
	}
	return out
}

// TestInventory renders what clusterctl reads before it moves clusters.
func TestInventory(t *testing.T) {
	ours := []string{"bootstrap-drover v1.2.3", "control-plane-drover v1.2.3", "infrastructure-drover v1.2.3"}
	for values, want := range map[string][]string{
		"":                              nil,
		"clusterctl: {inventory: true}": append([]string{"cluster-api " + clusterAPI(t)}, ours...),
		"clusterctl: {inventory: true}\ncapi: external": ours,
	} {
		if diff := cmp.Diff(want, providers(t, values)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", values, diff)
		}
	}
}

// clusterAPI is the version of Cluster API that the hub is built with.
func clusterAPI(t *testing.T) string {
	t.Helper()
	content, err := os.ReadFile("../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(content)) {
		if fields := strings.Fields(line); len(fields) == 2 && fields[0] == "sigs.k8s.io/cluster-api" {
			return fields[1]
		}
	}
	t.Fatal("go.mod does not require sigs.k8s.io/cluster-api")
	return ""
}

// TestAuthority renders what tells the hub about the certificate authority of its gateway.
func TestAuthority(t *testing.T) {
	for values, want := range map[string]string{
		"tls: {source: self}":                                                      "",
		"tls: {source: secret, secretName: company-ca}":                            "company-ca",
		"tls: {source: certManager, issuerRef: {name: a}}":                         "drover-gateway-ca",
		"tls: {source: certManager, issuerRef: {name: a}, secretName: company-ca}": "company-ca",
	} {
		rendered, err := render(t, serverURL+values)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(rendered, "- --gateway-ca-secret="+want+"\n"); got != (want != "") {
			t.Errorf("%s: the hub reads the Secret %q: %t", values, want, got)
		}
		certificate := strings.Contains(rendered, "kind: Certificate\n")
		if certificate != strings.Contains(values, "certManager") {
			t.Errorf("%s: there is a Certificate: %t", values, certificate)
		}
		if certificate && !strings.Contains(rendered, "  secretName: "+want+"\n") {
			t.Errorf("%s: the Certificate is not for Secret %s", values, want)
		}
	}
}

// certificate has the fields of cert-manager's Certificate that are used, with its names and types.
type certificate struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		IsCA       bool            `json:"isCA"`
		CommonName string          `json:"commonName"`
		SecretName string          `json:"secretName"`
		Duration   metav1.Duration `json:"duration"`
		PrivateKey struct {
			Algorithm string `json:"algorithm"`
			Size      int    `json:"size"`
		} `json:"privateKey"`
		Usages    []string `json:"usages"`
		IssuerRef struct {
			Name  string `json:"name"`
			Kind  string `json:"kind"`
			Group string `json:"group"`
		} `json:"issuerRef"`
	} `json:"spec"`
}

func (c *certificate) DeepCopyObject() runtime.Object {
	out := *c
	c.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	out.Spec.Usages = slices.Clone(c.Spec.Usages)
	return &out
}
