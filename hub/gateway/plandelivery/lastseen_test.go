package plandelivery

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/gateway/secretcache"
	"github.com/drover-dev/drover/plans"
)

// That an agent is there is recorded for servers, and not with each of its requests.
func TestRecordSeen(t *testing.T) {
	now := time.Now()
	at := func(d time.Duration) string { return now.Add(d).UTC().Format(time.RFC3339) }
	for name, tc := range map[string]struct {
		etcd, controlPlane, last, probes string
		written                          bool
	}{
		"a worker": {},
		"a worker with a certificate that lasts": {probes: `{"certificate:/a.crt":{"healthy":true,"certificateNotAfter":"` +
			now.AddDate(0, 0, 62).UTC().Format(time.RFC3339) + `"}}`},
		"a worker with a certificate that ends soon": {probes: `{"certificate:/a.crt":{"healthy":true,"certificateNotAfter":"` +
			now.AddDate(0, 0, 60).UTC().Format(time.RFC3339) + `"}}`, written: true},
		"a worker with a damaged report": {probes: `{"certificate:/a.crt":`},
		"a member for the first time":    {etcd: "true", written: true},
		"a control plane":                {controlPlane: "true", written: true},
		"a moment later":                 {etcd: "true", last: at(-time.Minute)},
		"some minutes later":             {etcd: "true", last: at(-3 * time.Minute), written: true},
		"a clock that was set back":      {etcd: "true", last: at(time.Hour), written: true},
		"a record that is damaged":       {etcd: "true", last: "yesterday", written: true},
	} {
		t.Run(name, func(t *testing.T) {
			secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "plan", ResourceVersion: "7", UID: "u",
				Labels: map[string]string{}, Annotations: map[string]string{}}}
			if tc.etcd != "" {
				secret.Labels[rkev1.EtcdRoleLabel] = tc.etcd
			}
			if tc.controlPlane != "" {
				secret.Labels[rkev1.ControlPlaneRoleLabel] = tc.controlPlane
			}
			if tc.probes != "" {
				secret.Data = map[string][]byte{plans.KeyProbeStatuses: []byte(tc.probes)}
			}
			if tc.last != "" {
				secret.Annotations[rkev1.AgentLastSeenAnnotation] = tc.last
			}
			api := fake.NewClientBuilder().WithObjects(secret).Build()
			h := &Handler{Options{Client: api, Secrets: &secretcache.Cache{Plans: secretcache.NewPlanStore()}}}
			if err := h.Secrets.Plans.Observe(secret); err != nil {
				t.Fatal(err)
			}
			h.recordSeen(t.Context(), &Machine{Account: types.NamespacedName{Namespace: "fleet", Name: "plan"}})
			got := &corev1.Secret{}
			if err := api.Get(t.Context(), client.ObjectKeyFromObject(secret), got); err != nil {
				t.Fatal(err)
			}
			if written := got.Annotations[rkev1.AgentLastSeenAnnotation] != tc.last; written != tc.written {
				t.Errorf("the annotation is %q", got.Annotations[rkev1.AgentLastSeenAnnotation])
			}
			stored, _ := h.Secrets.Plans.Get(types.NamespacedName{Namespace: "fleet", Name: "plan"})
			if stored.ResourceVersion != got.ResourceVersion {
				t.Errorf("the store has version %s of %s", stored.ResourceVersion, got.ResourceVersion)
			}
		})
	}
}

// TestRecordSeenConflict: that an agent was seen is recorded, too, where its Secret was written since the gateway read it.
func TestRecordSeenConflict(t *testing.T) {
	bootstrap := &rkev1.RKEBootstrap{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "machine", UID: "u"}}
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "plan", UID: "s", Labels: map[string]string{rkev1.EtcdRoleLabel: "true"},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(bootstrap, rkev1.GroupVersion.WithKind("RKEBootstrap"))}},
		Type: rkev1.MachinePlanSecretType,
	}
	api := fake.NewClientBuilder().WithObjects(secret).Build()
	h := &Handler{Options{Client: api, Live: api, Secrets: &secretcache.Cache{Plans: secretcache.NewPlanStore()}}}
	if err := api.Get(t.Context(), client.ObjectKeyFromObject(secret), secret); err != nil {
		t.Fatal(err)
	}
	if err := h.Secrets.Plans.Observe(secret.DeepCopy()); err != nil {
		t.Fatal(err)
	}
	secret.Data = map[string][]byte{plans.KeyPlan: []byte("{}")}
	if err := api.Update(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	h.recordSeen(t.Context(), &Machine{Account: types.NamespacedName{Namespace: "fleet", Name: "plan"}, Bootstrap: bootstrap})
	got := &corev1.Secret{}
	if err := api.Get(t.Context(), client.ObjectKeyFromObject(secret), got); err != nil {
		t.Fatal(err)
	}
	if got.Annotations[rkev1.AgentLastSeenAnnotation] == "" || len(got.Data) != 1 {
		t.Errorf("the Secret is %v", got)
	}
}
