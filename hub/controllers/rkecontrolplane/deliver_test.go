package rkecontrolplane

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/identity/signing"
	"github.com/drover-dev/drover/hub/plan/operation"
	"github.com/drover-dev/drover/hub/plan/release"
	"github.com/drover-dev/drover/hub/plan/render"
	"github.com/drover-dev/drover/hub/plan/rollout"
	"github.com/drover-dev/drover/plans"
)

// TestSign: only what was rendered is signed, every delivery, and nothing twice.
func TestSign(t *testing.T) {
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	now := time.UnixMilli(1000)
	r := &Reconciler{Signer: signing.New(key, func() time.Time { return now })}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "m1"}, Data: map[string][]byte{}}
	reconcile := func(rendered string, deliver bool) (sequence int64) {
		t.Helper()
		m := &machine{secret: secret, encoded: []byte(rendered), decision: rollout.Decision{Deliver: deliver}}
		wanted := secret.DeepCopy()
		if deliver {
			plans.Deliver(wanted.Data, m.encoded, 0, 0)
		}
		if err := r.sign(m, wanted); err != nil {
			t.Fatal(err)
		}
		secret = wanted
		signature, err := plans.Verify(r.Signer.Public(), secret.Data[plans.KeyPlanSignature], plans.Checksum(secret.Data[plans.KeyPlan]),
			"fleet/m1")
		if err != nil {
			return 0
		}
		return signature.Sequence
	}
	for _, step := range []struct {
		name     string
		do       func()
		rendered string
		deliver  bool
		want     int64
	}{
		{name: "nothing is rendered"},
		{name: "it waits for its turn", rendered: "{}"},
		{name: "delivered", rendered: "{}", deliver: true, want: 1000},
		{name: "nothing changes", do: func() { now = time.UnixMilli(2000) }, rendered: "{}", want: 1000},
		{name: "delivered again", rendered: "{}", deliver: true, want: 2000},
		{name: "another is rendered and waits", rendered: `{"files":[]}`, want: 2000},
		{name: "somebody writes a plan", do: func() { secret.Data[plans.KeyPlan] = []byte(`{"x":1}`) }, rendered: "{}", want: 0},
		{name: "the hub puts its own back", rendered: "{}", deliver: true, want: 2000},
		{name: "somebody takes the signature away", do: func() { delete(secret.Data, plans.KeyPlanSignature); now = time.UnixMilli(3000) },
			rendered: "{}", want: 3000},
		{name: "the hub starts again, and the plan still waits", do: func() {
			now = time.UnixMilli(4000)
			r.Signer = signing.New(key, func() time.Time { return now })
		}, rendered: "{}", want: 4000},
	} {
		if step.do != nil {
			step.do()
		}
		if got := reconcile(step.rendered, step.deliver); got != step.want {
			t.Errorf("%s: sequence %d, want %d", step.name, got, step.want)
		}
	}
	// A hub from before has signed nothing, and one that is given another key signs with that.
	r.Signer = nil
	if reconcile("{}", true); len(secret.Data[plans.KeyPlanSignature]) == 0 {
		t.Error("a signature is lost")
	}
	_, other, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Signer = signing.New(other, func() time.Time { return now })
	if got := reconcile("{}", false); got != 4000 {
		t.Errorf("with another key: %d", got)
	}
}

// TestUpToDate: a plan Secret is left alone only if a reconcile would change nothing of it.
func TestUpToDate(t *testing.T) {
	r, _, next := bigCluster(t, 1)
	savedSnapshot := map[string][]byte{
		string(operation.TaskSaveSnapshot): fmt.Appendf(nil, "sha256 %s /snapshots/one\n", strings.Repeat("a", 64)),
	}
	for name, tc := range map[string]struct {
		change func(*machine)
		want   bool
	}{
		"nothing changes":           {change: func(*machine) {}, want: true},
		"a plan is delivered":       {change: func(m *machine) { m.decision.Deliver = true }},
		"the Node is drained":       {change: func(m *machine) { m.decision.Drain = "{}" }},
		"the drain ends":            {change: func(m *machine) { m.decision.Uncordon = true }},
		"it is not the init node":   {change: func(m *machine) { m.state.Init = !m.state.Init }},
		"its join URL changes":      {change: func(m *machine) { m.state.JoinURL += "/other" }},
		"it has saved a snapshot":   {change: func(m *machine) { m.report.Status.AppliedOutput = savedSnapshot }},
		"its plan is not signed":    {change: func(m *machine) { m.secret.Data[plans.KeyPlanSignature], m.known.signed = nil, false }},
		"somebody writes its plan":  {change: func(m *machine) { m.secret.Data[plans.KeyPlan] = []byte("{}") }, want: true},
		"it is known to be signed":  {change: func(m *machine) { m.known.signed = true }, want: true},
		"nothing could be rendered": {change: func(m *machine) { m.encoded = nil }, want: true},
	} {
		s := next()
		if err := r.reconcileInMemory(s); err != nil {
			t.Fatal(err)
		}
		m := s.machines[0]
		m.secret = m.secret.DeepCopy()
		if m.state.Init != (m.secret.Labels[rkev1.InitNodeLabel] == "true") { // the first reconcile has not written it
			m.secret.Labels = map[string]string{rkev1.InitNodeLabel: m.initLabel()}
		}
		m.secret.Annotations[rkev1.JoinURLAnnotation] = m.state.JoinURL
		tc.change(m)
		if got := r.upToDate(m); got != tc.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// TestDeliversOnce: a cache that has not seen a delivery yet causes no second one, and a newer Secret gets what it lacks.
func TestDeliversOnce(t *testing.T) {
	stored := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "a-machine-plan", UID: "uid"}}
	writes := 0
	api := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(stored).WithInterceptorFuncs(interceptor.Funcs{
		Update: func(ctx context.Context, c client.WithWatch, object client.Object, opts ...client.UpdateOption) error {
			writes++
			return c.Update(ctx, object, opts...)
		},
	}).Build()
	found, err := release.Lookup("v1.36.3+k3s1")
	if err != nil {
		t.Fatal(err)
	}
	s := &scope{controlPlane: &rkev1.RKEControlPlane{}, inputs: render.Cluster{Release: found}, plans: &clusterPlans{}}
	r := &Reconciler{Client: api, Now: time.Now}
	reconcile := func(cached *corev1.Secret, plan string) {
		t.Helper()
		s.plans.load()
		m := &machine{machine: &clusterv1.Machine{}, secret: cached, known: s.plans.of(cached), encoded: []byte(plan),
			decision: rollout.Decision{Deliver: true}}
		s.plans.loaded()
		if err := r.updatePlanSecret(t.Context(), s, m); err != nil {
			t.Fatal(err)
		}
	}
	read := func() *corev1.Secret {
		secret := &corev1.Secret{}
		if err := api.Get(t.Context(), client.ObjectKeyFromObject(stored), secret); err != nil {
			t.Fatal(err)
		}
		return secret
	}
	before := read()
	reconcile(before, "{}")
	reconcile(before, "{}")
	if writes != 1 {
		t.Errorf("delivered %d times", writes)
	}
	reconcile(read(), `{"files":[]}`)
	if got := read().Data[plans.KeyPlan]; writes != 2 || string(got) != `{"files":[]}` {
		t.Errorf("after another change: %d writes, plan %s", writes, got)
	}
}

// TestDeliverOrder: a write of the init node that fails ends the reconcile before others are given its join URL, without which the next
// election would take one that has joined it for the one that has the cluster's data. Who was the init node loses its label before.
func TestDeliverOrder(t *testing.T) {
	found, err := release.Lookup("v1.36.3+k3s1")
	if err != nil {
		t.Fatal(err)
	}
	for failing, want := range map[string]string{"": "a c b", "a": "a", "c": "a c"} {
		var written []string
		r := &Reconciler{Now: time.Now, Client: fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithInterceptorFuncs(interceptor.Funcs{
			Update: func(_ context.Context, _ client.WithWatch, object client.Object, _ ...client.UpdateOption) error {
				if written = append(written, object.GetName()); object.GetName() == failing {
					return apierrors.NewConflict(corev1.Resource("secrets"), failing, errors.New("another one wrote it"))
				}
				return nil
			},
		}).Build()}
		s := &scope{controlPlane: &rkev1.RKEControlPlane{}, inputs: render.Cluster{Release: found}}
		add := func(name, label string, m *machine) {
			m.machine, m.secret = &clusterv1.Machine{}, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}}
			setOrDelete(&m.secret.Labels, rkev1.InitNodeLabel, label)
			s.machines = append(s.machines, m)
		}
		add("a", "true", &machine{state: rollout.Machine{JoinURL: "https://a"}})
		add("b", "", &machine{encoded: []byte("{}"), joinURL: "https://c", decision: rollout.Decision{Deliver: true}})
		add("c", "", &machine{state: rollout.Machine{Init: true, JoinURL: "https://c"}})
		if err := r.deliver(t.Context(), s); (err != nil) != (failing != "") {
			t.Errorf("where %q fails: %v", failing, err)
		}
		if got := strings.Join(written, " "); got != want {
			t.Errorf("where %q fails, the order is %q, want %q", failing, got, want)
		}
	}
}
