package rkecontrolplane

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/identity/pki"
	"github.com/drover-dev/drover/hub/plan/certificates"
	"github.com/drover-dev/drover/hub/plan/operation"
	"github.com/drover-dev/drover/hub/plan/release"
	"github.com/drover-dev/drover/hub/plan/rollout"
	"github.com/drover-dev/drover/hub/testenv/fakeclient"
	"github.com/drover-dev/drover/hub/util/operations"
	"github.com/drover-dev/drover/plans"
)

// certified is a cluster of one server whose agent reports a certificate, and a Reconciler for it.
func certified(t *testing.T, now, end time.Time) (*Reconciler, *scope) {
	t.Helper()
	m := server("a", rollout.ProgressApplied, rollout.ChangeNone, "")
	m.bootstrap = &rkev1.RKEBootstrap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a",
		Labels: map[string]string{clusterv1.ClusterNameLabel: "one"}}}
	m.state.LastSeen = now.Add(-time.Minute)
	m.report.Delivered.Probes = map[string]plans.Probe{"kube-scheduler": {HTTPGet: plans.HTTPGetAction{URL: "https://127.0.0.1:10259"}}}
	m.report.Status.ProbeStatuses = map[string]plans.ProbeStatus{"kube-scheduler": {ServerCertificateNotAfter: end}}
	scheme := fakeclient.Scheme(t, rkev1.AddToScheme, operationv1.AddToScheme)
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(m.bootstrap).Build()
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(m.bootstrap), m.bootstrap); err != nil {
		t.Fatal(err)
	}
	s := &scope{controlPlane: &rkev1.RKEControlPlane{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "one"}}, machines: []*machine{m},
		cluster: &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "one", UID: "uid"}}}
	return &Reconciler{Client: c, Cache: c, Live: c, Now: func() time.Time { return now }}, s
}

func rotationsOf(t *testing.T, r *Reconciler) []operationv1.CertificateRotation {
	t.Helper()
	var list operationv1.CertificateRotationList
	if err := r.Client.List(t.Context(), &list); err != nil {
		t.Fatal(err)
	}
	return list.Items
}

func TestCertificatesAreRenewed(t *testing.T) {
	now := time.Date(2026, 11, 1, 23, 0, 0, 0, time.UTC)
	end := now.AddDate(0, 0, 30)
	r, s := certified(t, now, end)
	if err := r.watchCertificates(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if c := s.certificates; c == nil || c.Reason != certificates.ReasonExpireSoon ||
		!strings.Contains(c.Message, "kube-scheduler on Machine a") {
		t.Errorf("got %+v", s.certificates)
	}
	all := rotationsOf(t, r)
	if len(all) != 1 {
		t.Fatalf("%d CertificateRotations", len(all))
	}
	op := all[0]
	if op.Name != "one-renewal-20261101" || op.Annotations[operationv1.CertificatesExpiryAnnotation] != "2026-12-01T23:00:00Z" ||
		op.Spec.ClusterRef.Name != "one" || len(op.OwnerReferences) != 1 || op.Spec.TTL <= 0 || len(op.Spec.Services) != 0 {
		t.Errorf("got %+v", op)
	}
	// The cache has not seen it yet; then it is in progress, and has failed.
	for _, phase := range []operationv1.Phase{"", operationv1.PhaseInProgress, operationv1.PhaseFailed} {
		if phase != "" {
			op.Status.Phase, op.CreationTimestamp = phase, metav1.NewTime(now)
			s.rotations = []*operationv1.CertificateRotation{&op}
		}
		if err := r.watchCertificates(t.Context(), s); err != nil || len(rotationsOf(t, r)) != 1 {
			t.Errorf("%q: %v, %+v", phase, err, rotationsOf(t, r))
		}
	}
	if s.requeueAfter != 24*time.Hour {
		t.Errorf("the next attempt is after %s", s.requeueAfter)
	}
	r.Now = func() time.Time { return now.Add(24 * time.Hour) }
	s.machines[0].state.LastSeen = r.Now()
	if err := r.watchCertificates(t.Context(), s); err != nil || len(rotationsOf(t, r)) != 2 {
		t.Errorf("%v, %+v", err, rotationsOf(t, r))
	}
}

// TestCertificatesAreRenewedBesidePausedOperation: an operation that was paused before it began may wait for ever, and other operations go
// first. One that was paused in its middle is waited for.
func TestCertificatesAreRenewedBesidePausedOperation(t *testing.T) {
	now := time.Date(2026, 11, 1, 23, 0, 0, 0, time.UTC)
	for phase, want := range map[operationv1.Phase]int{operationv1.PhasePending: 1, operationv1.PhaseInProgress: 0} {
		r, s := certified(t, now, now.AddDate(0, 0, 30))
		paused := &operationv1.ETCDSnapshotSave{}
		paused.Spec.Paused, paused.Status.Phase = true, phase
		s.operation = paused
		if err := r.watchCertificates(t.Context(), s); err != nil || len(rotationsOf(t, r)) != want {
			t.Fatalf("%s: %v, %+v", phase, err, rotationsOf(t, r))
		}
		for _, created := range rotationsOf(t, r) {
			if next := operation.Next([]operationv1.Operation{paused, &created}); next != operationv1.Operation(&created) {
				t.Errorf("next is %s %s", operationv1.Kind(next), next.GetName())
			}
		}
	}
}

// TestEndingAuthority: an authority that ends soon, as one of a user's may, is in the condition. Nothing replaces it.
func TestEndingAuthority(t *testing.T) {
	now := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	ca := func(left time.Duration) *authority {
		pair, err := pki.Issue(pki.Request{CommonName: "ca", IsCA: true, Lifetime: left}, nil, now)
		if err != nil {
			t.Fatal(err)
		}
		return &authority{pair: pair}
	}
	for name, tc := range map[string]struct {
		server, client *authority
		text           string
	}{
		"none":   {text: "The first certificate to end is on Machine a, at 2027-11-01"},
		"later":  {ca(200 * 24 * time.Hour), ca(pki.CALifetime), "The first certificate to end is on Machine a, at 2027-11-01"},
		"server": {ca(59 * 24 * time.Hour), ca(pki.CALifetime), "The certificate authority in Secret one-ca ends at 2026-12-30"},
		"client": {ca(pki.CALifetime), ca(24 * time.Hour), "The certificate authority in Secret one-cca ends at 2026-11-02"},
	} {
		t.Run(name, func(t *testing.T) {
			r, s := certified(t, now, now.AddDate(1, 0, 0))
			s.serverCA, s.clientCA = tc.server, tc.client
			if err := r.watchCertificates(t.Context(), s); err != nil {
				t.Fatal(err)
			}
			if s.certificates == nil || !strings.HasPrefix(s.certificates.Message, tc.text) {
				t.Errorf("the condition is %+v", s.certificates)
			}
			if got := rotationsOf(t, r); len(got) != 0 {
				t.Errorf("got %+v", got)
			}
		})
	}
}

// The certificates of a worker count like those of servers, while its agent was seen lately.
func TestCertificatesOfWorkers(t *testing.T) {
	now := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	for name, tc := range map[string]struct {
		seen    time.Duration
		file    string
		legacy  bool
		renewed bool
		text    string
	}{
		"seen": {seen: time.Minute, file: "agent/client-kubelet.crt", renewed: true,
			text: "kubelet (client-kubelet.crt) on Machine w ends at"},
		"silent":      {seen: time.Hour, file: "agent/client-kubelet.crt", text: "kubelet (client-kubelet.crt) on Machine w ends at"},
		"never seen":  {file: "agent/client-kubelet.crt", text: "kubelet (client-kubelet.crt) on Machine w ends at"},
		"of a server": {seen: time.Minute, file: "server/tls/client-admin.crt", text: "is on Machine a"},
		"legacy":      {seen: time.Minute, legacy: true, text: "is on Machine a"},
	} {
		t.Run(name, func(t *testing.T) {
			r, s := certified(t, now, now.AddDate(0, 0, 300))
			s.inputs.Release.Runtime = release.K3s
			w := server("w", rollout.ProgressApplied, rollout.ChangeNone, "")
			w.inputs.Etcd, w.inputs.ControlPlane, w.inputs.Worker = false, false, true
			w.state.Etcd, w.state.ControlPlane, w.state.Worker = false, false, true
			w.report.Delivered.Probes = map[string]plans.Probe{"kubelet": {HTTPGet: plans.HTTPGetAction{URL: "http://127.0.0.1:10248/healthz"}}}
			w.report.Status.ProbeStatuses = map[string]plans.ProbeStatus{"kubelet": {Healthy: true}}
			if !tc.legacy {
				w.report.Status.ProbeStatuses[plans.CertificateName("/var/lib/rancher/k3s/"+tc.file)] = plans.CertificateStatus(now.AddDate(0, 0, 30))
			}
			if tc.seen > 0 {
				w.secret.Annotations = map[string]string{rkev1.AgentLastSeenAnnotation: now.Add(-tc.seen).Format(time.RFC3339)}
			}
			w.bootstrap = &rkev1.RKEBootstrap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "w",
				Labels: map[string]string{clusterv1.ClusterNameLabel: "one"}}}
			if err := r.Client.Create(t.Context(), w.bootstrap); err != nil {
				t.Fatal(err)
			}
			s.machines = append(s.machines, w)
			if err := r.watchCertificates(t.Context(), s); err != nil {
				t.Fatal(err)
			}
			if s.certificates == nil || !strings.Contains(s.certificates.Message, tc.text) {
				t.Errorf("the condition is %+v", s.certificates)
			}
			if got := rotationsOf(t, r); len(got) == 1 != tc.renewed {
				t.Errorf("got %+v", got)
			}
			want := ""
			if strings.Contains(tc.text, "Machine w") {
				want = "2026-12-01T12:00:00Z"
			}
			if got := w.bootstrap.Annotations[clusterv1.MachineCertificatesExpiryDateAnnotation]; got != want {
				t.Errorf("the annotation is %q", got)
			}
		})
	}
}

func TestCertificatesAreNotRenewed(t *testing.T) {
	now := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	for name, change := range map[string]func(*scope){
		"switched off": func(s *scope) {
			s.controlPlane.Annotations = map[string]string{rkev1.RenewCertificatesAnnotation: "false"}
		},
		"switched off in words": func(s *scope) {
			s.controlPlane.Annotations = map[string]string{rkev1.RenewCertificatesAnnotation: "no"}
		},
		"another operation":        func(s *scope) { s.operation = &operationv1.ETCDSnapshotSave{} },
		"not started":              func(s *scope) { s.machines[0].state.JoinURL = "" },
		"the agent is silent":      func(s *scope) { s.machines[0].state.LastSeen = now.Add(-time.Hour) },
		"the agent was never seen": func(s *scope) { s.machines[0].state.LastSeen = time.Time{} },
		"the machine is deleted":   func(s *scope) { s.machines[0].state.Deleting = true },
		"no report": func(s *scope) {
			s.machines[0].report.Status.ProbeStatuses = nil
			s.machines[0].bootstrap.Annotations = map[string]string{clusterv1.MachineCertificatesExpiryDateAnnotation: "2026-11-02T00:00:00Z"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, s := certified(t, now, now.AddDate(0, 0, 30))
			change(s)
			if err := r.watchCertificates(t.Context(), s); err != nil || len(rotationsOf(t, r)) != 0 {
				t.Errorf("%v, %+v", err, rotationsOf(t, r))
			}
			if known := s.certificates != nil; known == (name == "the machine is deleted") {
				t.Errorf("the condition is %+v", s.certificates)
			}
		})
	}
}

// The end reaches Cluster API and the metrics, and stays while a new plan has not been reported about.
func TestCertificatesExpiry(t *testing.T) {
	now := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	end := now.AddDate(1, 0, 0)
	r, s := certified(t, now, end)
	for range 2 {
		if err := r.watchCertificates(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		got := &rkev1.RKEBootstrap{}
		if err := r.Client.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "a"}, got); err != nil {
			t.Fatal(err)
		}
		if v := got.Annotations[clusterv1.MachineCertificatesExpiryDateAnnotation]; v != "2027-11-01T12:00:00Z" {
			t.Errorf("the annotation is %q", v)
		}
		if s.certificates == nil || s.certificates.Status != metav1.ConditionTrue {
			t.Errorf("the condition is %+v", s.certificates)
		}
		s.machines[0].bootstrap, s.machines[0].report.Status.ProbeStatuses, s.certificates = got, nil, nil
	}
	elected := make(chan struct{})
	registry := prometheus.NewRegistry()
	registry.MustRegister(newCollector(r.Client, elected))
	if families, err := registry.Gather(); err != nil || len(families) != 0 {
		t.Errorf("before the election: %v, %v", families, err)
	}
	close(elected)
	families, err := registry.Gather()
	if err != nil || len(families) != 1 || len(families[0].GetMetric()) != 1 {
		t.Fatalf("%v, %v", families, err)
	}
	if m := families[0].GetMetric()[0]; m.GetGauge().GetValue() != float64(end.Unix()) || len(m.GetLabel()) != 2 {
		t.Errorf("got %v", m)
	}
}

// TestLastRequested: a generation that is asked for again after another one is carried out again.
func TestLastRequested(t *testing.T) {
	op := func(generation string) operationv1.Operation {
		return &operationv1.CertificateRotation{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"l": generation}}}
	}
	other := &operationv1.CertificateRotation{}
	if !lastRequested([]operationv1.Operation{op("2"), other}, "l") || lastRequested([]operationv1.Operation{op("1"), other, op("2")}, "l") {
		t.Error("the last is not the last")
	}
}

// TestRenewalOfWhatEndsSoon: what agents have reported of certificates decides which machines take part in a rotation of the hub.
func TestRenewalOfWhatEndsSoon(t *testing.T) {
	r, cached, next := bigCluster(t, 4)
	end := time.Now().AddDate(0, 0, 30)
	cached.bootstraps.Items[1].Annotations = map[string]string{
		clusterv1.MachineCertificatesExpiryDateAnnotation: certificates.FormatTime(end.AddDate(0, 11, 0))}
	began := of(&operationv1.CertificateRotation{}, "c", operationv1.PhasePending)
	began.Annotations = map[string]string{operationv1.CertificatesExpiryAnnotation: certificates.FormatTime(end)}
	s := next()
	s.operation, s.observedOperation = began, operations.Copy(began)
	if err := r.reconcileInMemory(s); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range s.operation.CommonStatus().Machines {
		got = append(got, m.Name)
	}
	if want := []string{"m0000", "m0002", "m0003"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
