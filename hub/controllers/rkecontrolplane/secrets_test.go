package rkecontrolplane

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/plan/reasons"
	"github.com/drover-dev/drover/hub/plan/rollout"
)

// TestAuthoritiesLost: authorities are created before the cluster is started, kept afterwards, and missed when they are gone, although no
// plan has them any more. A cluster that never had any of the hub's is left alone.
func TestAuthoritiesLost(t *testing.T) {
	api := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).Build()
	r := &Reconciler{Client: api, Cache: api, Live: api, Now: time.Now}
	controlPlane := &rkev1.RKEControlPlane{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "c", UID: "u"}}
	ensure := func(started bool) *scope {
		t.Helper()
		s := &scope{controlPlane: controlPlane, cluster: &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "c"}}}
		if started {
			m := server("a", rollout.ProgressApplied, rollout.ChangeNone, "")
			m.report.Checksum = "sum"
			s.machines = append(s.machines, m)
		}
		if err := r.ensureCA(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		return s
	}
	if s := ensure(true); s.wait != (rollout.Wait{}) || s.serverCA != nil || len(controlPlane.Annotations) > 0 {
		t.Errorf("a cluster with authorities of its own: %+v", s.wait)
	}
	first := ensure(false)
	if first.wait != (rollout.Wait{}) || first.serverCA == nil || first.clientCA == nil {
		t.Fatalf("a new cluster: %+v", first.wait)
	}
	if s := ensure(true); s.wait != (rollout.Wait{}) || string(s.serverCA.files.Cert) != string(first.serverCA.files.Cert) {
		t.Errorf("they are not kept: %+v", s.wait)
	}
	if err := api.DeleteAllOf(t.Context(), &corev1.Secret{}); err != nil {
		t.Fatal(err)
	}
	if s := ensure(true); s.wait.Reason != reasons.CertificateAuthorityLost {
		t.Errorf("they are lost: %+v", s.wait)
	}
}
