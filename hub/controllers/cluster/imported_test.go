package cluster

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/version"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	"github.com/drover-dev/drover/hub/util/cause"
)

// TestImportedStatus follows an imported cluster: type=status/reason of its conditions, and the message of Ready.
func TestImportedStatus(t *testing.T) {
	management := func(gitVersion string) *managementv3.Cluster {
		m := &managementv3.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "c-m-abcdefgh"}}
		if gitVersion != "" {
			m.Status.Version = &version.Info{GitVersion: gitVersion}
		}
		return m
	}
	connected := metav1.Condition{Type: "Connected", Status: metav1.ConditionTrue, Reason: "Connected"}
	lost := metav1.Condition{Type: "Connected", Status: metav1.ConditionFalse, Reason: "Disconnected", Message: "gone since noon"}
	ready := metav1.Condition{Type: "Provisioned", Status: metav1.ConditionTrue, Reason: "Provisioned"}
	silent := management("v1.36.3")
	silent.Status.Conditions = []metav1.Condition{{Type: managementv3.APIReachableCondition, Status: metav1.ConditionFalse,
		Reason: "WaitingForAPI", Message: "no answer since noon"}}
	for _, tt := range []struct {
		name       string
		has        []metav1.Condition
		management *managementv3.Cluster
		created    *cause.Cause
		want       map[string]string
		message    string
	}{
		{name: "not made yet", created: cause.New("NameTaken", "taken"), message: "taken",
			want: map[string]string{"Created": "False/NameTaken", "RKECluster": "True/Accepted", "Ready": "False/NameTaken",
				"Provisioned": "False/NameTaken"}},
		{name: "nobody has connected", management: management(""), message: "Waiting for the cluster agent to connect",
			want: map[string]string{"Created": "True/Created", "RKECluster": "True/Accepted", "Ready": "False/WaitingForAgent",
				"Provisioned": "False/WaitingForAgent"}},
		{name: "connected", management: management(""), has: []metav1.Condition{connected},
			message: "Waiting for the API of the cluster to respond through the cluster agent",
			want: map[string]string{"Connected": "True/Connected", "Created": "True/Created", "RKECluster": "True/Accepted",
				"Ready": "False/WaitingForAPI", "Provisioned": "False/WaitingForAPI"}},
		{name: "the API has answered", management: management("v1.36.3"), has: []metav1.Condition{connected},
			want: map[string]string{"Connected": "True/Connected", "Created": "True/Created", "RKECluster": "True/Accepted", "Ready": "True/Ready",
				"Provisioned": "True/Provisioned"}},
		{name: "the API answers no more", management: silent, has: []metav1.Condition{connected, ready}, message: "no answer since noon",
			want: map[string]string{"Connected": "True/Connected", "Created": "True/Created", "RKECluster": "True/Accepted",
				"Ready": "False/WaitingForAPI", "Provisioned": "True/Provisioned"}},
		{name: "lost", management: management("v1.36.3"), has: []metav1.Condition{lost, ready}, message: "gone since noon",
			want: map[string]string{"Connected": "False/Disconnected", "Created": "True/Created", "RKECluster": "True/Accepted",
				"Ready": "False/Disconnected", "Provisioned": "True/Provisioned"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cluster := &provisioningv1.Cluster{Status: provisioningv1.ClusterStatus{Conditions: tt.has}}
			setStatus(&scope{cluster: cluster, management: tt.management, created: tt.created})
			got, message := map[string]string{}, ""
			for _, condition := range cluster.Status.Conditions {
				got[condition.Type] = string(condition.Status) + "/" + condition.Reason
				if condition.Type == "Ready" {
					message = condition.Message
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("conditions (-want +got):\n%s", diff)
			}
			if message != tt.message || cluster.Status.Ready != (got["Ready"] == "True/Ready") {
				t.Errorf("Ready says %q, status.ready is %t", message, cluster.Status.Ready)
			}
		})
	}
	for gitVersion, want := range map[string]string{"": "", "v1.36.3": "", "v1.36.3+vendor.1": "", "v1.36.3+k3s1": "k3s",
		"v1.36.3+rke2r1": "rke2"} {
		if got := importedRuntime(management(gitVersion)); got != want {
			t.Errorf("the runtime of %q is %q, want %q", gitVersion, got, want)
		}
	}
}

func TestImportedFaults(t *testing.T) {
	s := &scope{cluster: &provisioningv1.Cluster{}}
	s.cluster.Spec.KubernetesVersion = "v1.36.3"
	s.cluster.Spec.LocalClusterAuthEndpoint.Enabled = true
	if err := (&Reconciler{}).checkImported(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	message := specCondition(s).Message
	for _, field := range []string{"spec.localClusterAuthEndpoint.enabled", "spec.kubernetesVersion", "spec.rkeConfig"} {
		if !strings.Contains(message, field) {
			t.Errorf("%q does not name %s", message, field)
		}
	}
}
