package rkecontrolplane

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/plan/reasons"
	"github.com/drover-dev/drover/hub/plan/rollout"
	"github.com/drover-dev/drover/hub/testenv/fakeclient"
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

// trimmed has of Secrets what the manager's cache has: the data of those of the hub's types only.
type trimmed struct{ client.Reader }

func (c trimmed) Get(ctx context.Context, key client.ObjectKey, into client.Object, opts ...client.GetOption) error {
	err := c.Reader.Get(ctx, key, into, opts...)
	if secret, ok := into.(*corev1.Secret); ok && !strings.HasPrefix(string(secret.Type), "rke.cattle.io/") {
		secret.Data = nil
	}
	return err
}

// TestRestoredTokens: the tokens of a Secret count, whoever has written it and of whatever type it is, and its cluster is reconciled.
func TestRestoredTokens(t *testing.T) {
	for _, secretType := range []corev1.SecretType{corev1.SecretTypeOpaque, rkev1.ClusterStateSecretType} {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "c-rke-state"}, Type: secretType,
			Data: map[string][]byte{serverTokenKey: []byte("server"), agentTokenKey: []byte("agent")}}
		api := fake.NewClientBuilder().WithScheme(fakeclient.Scheme(t, corev1.AddToScheme, rkev1.AddToScheme)).WithObjects(secret).
			WithIndex(&rkev1.RKEControlPlane{}, indexReferences, func(client.Object) []string { return nil }).Build()
		r := &Reconciler{Client: api, Cache: trimmed{api}, Live: api, Now: time.Now}
		s := &scope{controlPlane: &rkev1.RKEControlPlane{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "c"}}}
		m := server("a", rollout.ProgressApplied, rollout.ChangeNone, "")
		m.report.Checksum, s.machines = "sum", []*machine{m}
		if err := r.ensureTokens(t.Context(), s); err != nil || s.wait != (rollout.Wait{}) {
			t.Errorf("%s: waits for %+v (%v)", secretType, s.wait, err)
		}
		if s.tokens.Server != "server" || s.tokens.Agent != "agent" {
			t.Errorf("%s: the tokens are %q and %q", secretType, s.tokens.Server, s.tokens.Agent)
		}
		want := []ctrl.Request{{NamespacedName: client.ObjectKeyFromObject(s.controlPlane)}}
		if got := r.secretToControlPlanes(t.Context(), secret); !slices.Equal(got, want) {
			t.Errorf("%s: a change reconciles %v, want %v", secretType, got, want)
		}
	}
}
