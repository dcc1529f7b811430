package cluster

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/identity/pki"
)

func TestPartialProblems(t *testing.T) {
	authority, err := pki.Issue(pki.Request{CommonName: "test", IsCA: true, Lifetime: time.Hour}, nil, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	tolerate := func(tolerations ...corev1.Toleration) func(*provisioningv1.ClusterSpec) {
		return func(s *provisioningv1.ClusterSpec) {
			s.FleetAgentDeploymentCustomization = &rkev1.AgentDeploymentCustomization{AppendTolerations: tolerations}
		}
	}
	caCerts := func(text string) func(*provisioningv1.ClusterSpec) {
		return func(s *provisioningv1.ClusterSpec) { s.LocalClusterAuthEndpoint.CACerts = text }
	}
	for _, tt := range []struct {
		name   string
		change func(*provisioningv1.ClusterSpec)
		// want begins the one message; empty means that there is none.
		want string
	}{
		{name: "nothing", change: func(*provisioningv1.ClusterSpec) {}},
		{name: "certificates", change: caCerts(string(authority.CertPEM()) + string(authority.CertPEM()))},
		{name: "no certificate", change: caCerts("x"), want: "spec.localClusterAuthEndpoint.caCerts: contains no PEM certificate"},
		{name: "a key", change: caCerts("-----BEGIN PRIVATE KEY-----\nYQ==\n-----END PRIVATE KEY-----\n"),
			want: "spec.localClusterAuthEndpoint.caCerts: contains a PRIVATE KEY"},
		{name: "half a certificate", change: caCerts("-----BEGIN CERTIFICATE-----\nYQ==\n-----END CERTIFICATE-----\n"),
			want: "spec.localClusterAuthEndpoint.caCerts: parsing a certificate"},
		{name: "template of Pod security",
			change: func(s *provisioningv1.ClusterSpec) { s.DefaultPodSecurityAdmissionConfigurationTemplateName = "strict" },
			want:   `spec.defaultPodSecurityAdmissionConfigurationTemplateName is "strict"`},
		{name: "tolerations", change: tolerate(corev1.Toleration{Operator: "Exists"}, corev1.Toleration{Key: "a.b/c", Value: "d",
			Effect: "NoExecute"})},
		{name: "unknown operator", change: tolerate(corev1.Toleration{Operator: "Exists"}, corev1.Toleration{Key: "a", Operator: "Is"}),
			want: `spec.fleetAgentDeploymentCustomization.appendTolerations[1].operator is "Is": it must be Equal or Exists`},
		{name: "no key", change: tolerate(corev1.Toleration{Value: "a"}),
			want: "spec.fleetAgentDeploymentCustomization.appendTolerations[0]: without a key"},
		{name: "bad key", change: tolerate(corev1.Toleration{Key: "a b"}),
			want: `spec.fleetAgentDeploymentCustomization.appendTolerations[0].key is "a b"`},
		{name: "value of Exists", change: tolerate(corev1.Toleration{Key: "a", Operator: "Exists", Value: "b"}),
			want: `spec.fleetAgentDeploymentCustomization.appendTolerations[0].value is "b"`},
		{name: "seconds", change: tolerate(corev1.Toleration{Key: "a", Operator: "Exists", TolerationSeconds: ptr.To[int64](1)}),
			want: `spec.fleetAgentDeploymentCustomization.appendTolerations[0].tolerationSeconds`},
		{name: "unknown effect", change: tolerate(corev1.Toleration{Key: "a", Effect: "No"}),
			want: `spec.fleetAgentDeploymentCustomization.appendTolerations[0].effect is "No"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cluster := testCluster()
			tt.change(&cluster.Spec)
			got := partialProblems(cluster.Spec)
			if tt.want == "" && len(got) == 0 {
				return
			}
			if len(got) != 1 || tt.want == "" || !strings.HasPrefix(got[0].Message, tt.want) {
				t.Errorf("got %+v, want %q", got, tt.want)
			}
		})
	}
}
