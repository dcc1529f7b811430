package rkebootstrap

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/lru"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/identity/tokens"
	"github.com/drover-dev/drover/hub/testenv/fakeclient"
	"github.com/drover-dev/drover/hub/util/ssa"
)

// provisioned is the scope of a machine that an infrastructure provider creates.
func provisioned() *scope {
	s := &scope{cluster: &clusterv1.Cluster{}}
	s.cluster.Namespace, s.cluster.Name = "ns", "one"
	s.cluster.Status.Initialization.InfrastructureProvisioned = ptr.To(true)
	s.bootstrap, s.machine = testObjects()
	s.bootstrap.Annotations = nil
	s.machine.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{APIGroup: "lab.example.com", Kind: "LabMachine"}
	return s
}

// TestToken: bootstrap data keep their token, whatever the hub knows of them, and the plan Secret has its hash.
func TestToken(t *testing.T) {
	scheme := fakeclient.Scheme(t, corev1.AddToScheme, rkev1.AddToScheme, clusterv1.AddToScheme)
	c := fake.NewClientBuilder().WithScheme(scheme).Build()
	behind := interceptor.NewClient(c, interceptor.Funcs{
		Get: func(_ context.Context, _ client.WithWatch, key client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
			return apierrors.NewNotFound(corev1.Resource("secrets"), key.Name)
		},
	})
	started := func(cache client.Reader) *Reconciler { // a hub that has just started
		return &Reconciler{Client: c, Cache: cache, Live: c, ssa: &ssa.Cache{Client: c, FieldOwner: fieldOwner, Metadata: cache},
			tokens: lru.New(4), packed: lru.New(4)}
	}
	read := func(name string) *corev1.Secret {
		t.Helper()
		found := &corev1.Secret{}
		if err := c.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: name}, found); err != nil {
			t.Fatal(err)
		}
		return found
	}
	data, plan := rkev1.BootstrapSecretName("custom-0123456789ab"), rkev1.PlanSecretName("custom-0123456789ab")
	reconcile := func(r *Reconciler, s *scope, wantErr error) {
		t.Helper()
		if err := r.reconcileNormal(t.Context(), s); !errors.Is(err, wantErr) {
			t.Fatalf("got %v, want %v", err, wantErr)
		}
	}
	check := func(what, want string) {
		t.Helper()
		got := string(read(data).Data[tokenKey])
		if !tokens.IsBootstrapTokenOf(client.ObjectKey{Namespace: "ns", Name: "custom-0123456789ab"}, got) || want != "" && got != want {
			t.Errorf("%s: the token is %q, want %q", what, got, want)
		}
		if hash := read(plan).Annotations[rkev1.BootstrapTokenHashAnnotation]; hash != tokens.BootstrapTokenHash(got) {
			t.Errorf("%s: the plan Secret has not the hash of the token: %q", what, hash)
		}
	}

	first := started(c)
	reconcile(first, provisioned(), nil)
	check("made", "")
	token := string(read(data).Data[tokenKey])
	reconcile(first, provisioned(), nil)
	check("again", token)
	reconcile(started(c), provisioned(), nil)
	check("after a restart", token)

	reconcile(started(behind), provisioned(), nil)
	check("where the cache is behind", token)

	another := started(c) // a hub that has read, before the first has created them, that there are no bootstrap data
	another.Live = behind
	reconcile(another, provisioned(), errDataExist)
	if got := string(read(data).Data[tokenKey]); got != token {
		t.Errorf("bootstrap data that a provider may have read have the token %q, want %q", got, token)
	}
	another.Live = c
	reconcile(another, provisioned(), nil)
	check("of two hubs", token)

	// Bootstrap data of an earlier hub.
	old := read(data)
	delete(old.Data, tokenKey)
	if err := c.Update(t.Context(), old); err != nil {
		t.Fatal(err)
	}
	reconcile(started(c), provisioned(), nil)
	check("of an earlier hub", "")

	foreign := read(data)
	foreign.Data[tokenKey] = []byte(tokens.NewBootstrapToken(client.ObjectKey{Namespace: "ns", Name: "another"}))
	if err := c.Update(t.Context(), foreign); err != nil {
		t.Fatal(err)
	}
	reconcile(started(c), provisioned(), nil)
	check("with the token of another machine", "")

	// A machine that has a Node keeps what it has.
	before, done := read(plan), provisioned()
	done.machine.Status.NodeRef = clusterv1.MachineNodeReference{Name: "one"}
	reconcile(started(c), done, nil)
	if after := read(plan); after.Annotations[rkev1.BootstrapTokenHashAnnotation] != before.Annotations[rkev1.BootstrapTokenHashAnnotation] {
		t.Errorf("the hash was changed to %q", after.Annotations[rkev1.BootstrapTokenHashAnnotation])
	}
	if done.token.token != "" {
		t.Error("a machine with a Node was given a token")
	}
}
