package crds

import (
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/drover-dev/drover/hub/api/provider"
)

func definitions(t *testing.T, opts Options) map[string]*apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	all, err := Definitions(opts)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]*apiextensionsv1.CustomResourceDefinition{}
	for _, crd := range all {
		out[crd.Name] = crd
	}
	return out
}

func TestConversionCallsTheHub(t *testing.T) {
	url := "https://127.0.0.1:9443/"
	ca := []byte("ca")
	for name, crd := range definitions(t, Options{Conversion: &apiextensionsv1.WebhookClientConfig{URL: &url, CABundle: ca}}) {
		if !strings.HasSuffix(crd.Spec.Group, "cluster.x-k8s.io") {
			continue
		}
		config := crd.Spec.Conversion.Webhook.ClientConfig
		if config.URL == nil || *config.URL != "https://127.0.0.1:9443/convert" || config.Service != nil || string(config.CABundle) != "ca" {
			t.Errorf("%s is converted by %+v", name, config)
		}
	}
	service := &apiextensionsv1.ServiceReference{Namespace: "a", Name: "b"}
	crd := definitions(t, Options{Conversion: &apiextensionsv1.WebhookClientConfig{Service: service}})["machines.cluster.x-k8s.io"]
	if got := crd.Spec.Conversion.Webhook.ClientConfig.Service; got.Name != "b" || got.Path == nil || *got.Path != "/convert" {
		t.Errorf("a Service became %+v", got)
	}
	if service.Path != nil {
		t.Error("the caller's value was changed")
	}
}

func TestClusterAPIIsLeftOut(t *testing.T) {
	for name := range definitions(t, Options{SkipCAPI: true}) {
		if strings.HasSuffix(name, "cluster.x-k8s.io") {
			t.Errorf("%s is there", name)
		}
	}
}

// Each of Drover's kinds belongs to one provider, and those of the contract to the one that their names say.
func TestProviders(t *testing.T) {
	count := 0
	for _, p := range provider.All() {
		for name, crd := range definitions(t, Options{SkipCAPI: true, Providers: provider.Set{p}}) {
			count++
			if got := crd.Labels[provider.Label]; got != p.Value() {
				t.Errorf("%s has the label of provider %q, want %q", name, got, p.Value())
			}
		}
	}
	all := definitions(t, Options{SkipCAPI: true})
	if count != len(all) {
		t.Errorf("the providers have %d kinds together, want %d", count, len(all))
	}
	for name, want := range map[string]provider.Provider{
		"rkebootstraps.rke.cattle.io": provider.Bootstrap, "rkebootstraptemplates.rke.cattle.io": provider.Bootstrap,
		"rkeclusters.rke.cattle.io": provider.Infrastructure, "custommachines.rke.cattle.io": provider.Infrastructure,
		"rkecontrolplanes.rke.cattle.io": provider.ControlPlane, "clusters.provisioning.cattle.io": provider.ControlPlane,
	} {
		if got := all[name].Labels[provider.Label]; got != want.Value() {
			t.Errorf("%s belongs to %q, want %q", name, got, want.Value())
		}
	}
}

// Every kind is served in exactly one stored version, and everything that clusterctl and Cluster API look at definitions for is there.
func TestDefinitionsAreComplete(t *testing.T) {
	all := definitions(t, Options{})
	for _, name := range []string{
		"clusters.cluster.x-k8s.io", "machines.cluster.x-k8s.io", "machinesets.cluster.x-k8s.io", "machinedeployments.cluster.x-k8s.io",
		"machinehealthchecks.cluster.x-k8s.io", "machinepools.cluster.x-k8s.io", "machinedrainrules.cluster.x-k8s.io",
		"clusterclasses.cluster.x-k8s.io", "clusterresourcesets.addons.cluster.x-k8s.io", "clusterresourcesetbindings.addons.cluster.x-k8s.io",
		"ipaddresses.ipam.cluster.x-k8s.io", "ipaddressclaims.ipam.cluster.x-k8s.io", "extensionconfigs.runtime.cluster.x-k8s.io",
		"clusters.provisioning.cattle.io", "clusters.management.cattle.io", "clusterregistrationtokens.management.cattle.io",
		"rkeclusters.rke.cattle.io", "rkecontrolplanes.rke.cattle.io", "rkebootstraps.rke.cattle.io", "rkebootstraptemplates.rke.cattle.io",
		"custommachines.rke.cattle.io", "custommachinetemplates.rke.cattle.io", "etcdsnapshots.rke.cattle.io",
	} {
		if all[name] == nil {
			t.Errorf("%s is missing", name)
		}
	}
	for name, crd := range all {
		stored := slices.Collect(func(yield func(string) bool) {
			for _, version := range crd.Spec.Versions {
				if version.Storage && version.Served && !yield(version.Name) {
					return
				}
			}
		})
		if len(stored) != 1 {
			t.Errorf("%s is stored and served in versions %v", name, stored)
		}
		if crd.Name != crd.Spec.Names.Plural+"."+crd.Spec.Group {
			t.Errorf("%s is not named after its kind", name)
		}
		// clusterctl init labels what it installs; hubs that were installed in another way must look the same to clusterctl move.
		if _, ok := crd.Labels["clusterctl.cluster.x-k8s.io"]; !ok {
			t.Errorf("%s lacks the label by which clusterctl knows definitions", name)
		}
		switch {
		case crd.Spec.Group == "rke.cattle.io" && crd.Spec.Names.Kind != "ETCDSnapshot": // which plays no part in the contract
			if crd.Labels["cluster.x-k8s.io/v1beta2"] != "v1" {
				t.Errorf("%s lacks the label of contract v1beta2", name)
			}
		}
	}
}

// TestUnobserved: programs that compare status.observedGeneration with the generation do not take an object for done that no hub has seen.
func TestUnobserved(t *testing.T) {
	all := definitions(t, Options{SkipCAPI: true})
	for _, name := range []string{"clusters.provisioning.cattle.io", "rkecontrolplanes.rke.cattle.io",
		"clusterregistrationtokens.management.cattle.io", "nodedrivers.management.cattle.io"} {
		status := all[name].Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["status"]
		if status.Default == nil || string(status.Default.Raw) != `{"observedGeneration":-1}` {
			t.Errorf("%s: the default of the status is %v", name, status.Default)
		}
	}
}
