package cluster

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

func TestValidate(t *testing.T) {
	optional := func(c *provisioningv1.Cluster) {
		c.Spec.RKEConfig.MachineSelectorFiles = []rkev1.RKEProvisioningFiles{{FileSources: []rkev1.ProvisioningFileSource{
			{Secret: &rkev1.K8sObjectFileSource{Name: "s", Optional: true}},
		}}}
	}
	withFile := func(c *provisioningv1.Cluster) {
		c.Spec.RKEConfig.MachineSelectorFiles = []rkev1.RKEProvisioningFiles{{FileSources: []rkev1.ProvisioningFileSource{
			{Secret: &rkev1.K8sObjectFileSource{Name: "s"}, ConfigMap: &rkev1.K8sObjectFileSource{}},
		}}}
	}
	authorized := func(list string) map[fileSource]metav1.ObjectMeta {
		return map[fileSource]metav1.ObjectMeta{{"Secret", "s"}: {Annotations: map[string]string{rkev1.AuthorizedObjectAnnotation: list}}}
	}
	for _, tt := range []struct {
		name    string
		change  func(*provisioningv1.Cluster)
		sources map[fileSource]metav1.ObjectMeta
		// reason is empty for a valid spec; the message must hold field.
		reason, field string
	}{
		{name: "valid"},
		{name: "no such version", change: func(c *provisioningv1.Cluster) { c.Spec.KubernetesVersion = "v2.0.0+k3s1" },
			reason: "UnknownVersion", field: "spec.kubernetesVersion"},
		{name: "no version at all", change: func(c *provisioningv1.Cluster) { c.Spec.KubernetesVersion = "latest" },
			reason: "UnknownVersion", field: "spec.kubernetesVersion"},
		{name: "infrastructure elsewhere", change: func(c *provisioningv1.Cluster) {
			c.Spec.RKEConfig.InfrastructureRef = &provisioningv1.ObjectReference{APIVersion: "g/v1", Kind: "K", Name: "n", Namespace: "other"}
		}, reason: "InvalidInfrastructureRef", field: "spec.rkeConfig.infrastructureRef.namespace"},
		{name: "file source missing", change: withFile, reason: "FileSourceNotFound",
			field: "spec.rkeConfig.machineSelectorFiles[0].fileSources[0].secret.name"},
		{name: "file source of others", change: withFile, sources: authorized("two,three"), reason: "FileSourceNotAuthorized",
			field: rkev1.AuthorizedObjectAnnotation},
		{name: "name is a part only", change: withFile, sources: authorized("one-more"), reason: "FileSourceNotAuthorized", field: "secret.name"},
		{name: "optional file source missing", change: optional},
		{name: "optional file source of others", change: optional, sources: authorized("two"), reason: "FileSourceNotAuthorized",
			field: "secret.name"},
		{name: "file source authorized", change: withFile, sources: authorized("two, one")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cluster := testCluster()
			if tt.change != nil {
				tt.change(cluster)
			}
			got := validate(cluster, tt.sources)
			if tt.reason == "" {
				if len(got) > 0 {
					t.Fatalf("got %+v, want none", got)
				}
				return
			}
			if len(got) != 1 || got[0].Reason != tt.reason || !strings.Contains(got[0].Message, tt.field) {
				t.Errorf("got %+v, want reason %s and a message with %s", got, tt.reason, tt.field)
			}
		})
	}
}
