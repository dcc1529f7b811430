package rkecontrolplane

import (
	"context"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/testenv/fakeclient"
	"github.com/drover-dev/drover/hub/util/operations"
	"github.com/drover-dev/drover/plans"
)

// manager is the manager's cache: unlike a shelf it is read by name, too, and says how far it is.
type manager struct {
	cache.Cache
	*shelf
	version string
}

func (m manager) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	return m.shelf.List(ctx, list, opts...)
}

func (m manager) GetInformer(context.Context, client.Object, ...cache.InformerGetOption) (cache.Informer, error) {
	return fakeclient.InformerAt{Version: m.version}, nil
}

func (m manager) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	switch into := into.(type) {
	case *clusterv1.Machine:
		if i := slices.IndexFunc(m.machines.Items, func(o clusterv1.Machine) bool { return o.Name == key.Name }); i >= 0 {
			*into = m.machines.Items[i]
			return nil
		}
	case *rkev1.RKEBootstrap:
		if i := slices.IndexFunc(m.bootstraps.Items, func(o rkev1.RKEBootstrap) bool { return o.Name == key.Name }); i >= 0 {
			*into = m.bootstraps.Items[i]
			return nil
		}
	}
	return apierrors.NewNotFound(corev1.Resource("objects"), key.Name)
}

// requests are what was asked of the API server.
type requests struct{ gets, lists []string }

// selectable adds indexes to a fake client, which selects by them as an API server does by selectable fields.
type selectable struct{ builder *fake.ClientBuilder }

func (s selectable) IndexField(_ context.Context, object client.Object, field string, values client.IndexerFunc) error {
	s.builder.WithIndex(object, field, values)
	return nil
}

// withOperationFields adds the selectable fields of operations.
func withOperationFields(t *testing.T, builder *fake.ClientBuilder) *fake.ClientBuilder {
	t.Helper()
	if err := operations.SetupIndexes(t.Context(), selectable{builder}); err != nil {
		t.Fatal(err)
	}
	return builder
}

// apiBuilder builds an API server with what a shelf has, and the labels by which it is listed.
func apiBuilder(t *testing.T, in *shelf) *fake.ClientBuilder {
	t.Helper()
	builder := withOperationFields(t, fake.NewClientBuilder().WithScheme(fakeclient.Scheme(t, clusterv1.AddToScheme, rkev1.AddToScheme,
		corev1.AddToScheme, operationv1.AddToScheme)))
	add := func(o client.Object) {
		labels := map[string]string{clusterv1.ClusterNameLabel: "c", rkev1.ClusterNameLabel: "c"}
		for key, value := range o.GetLabels() {
			labels[key] = value
		}
		o.SetLabels(labels)
		builder.WithObjects(o)
	}
	for i := range in.machines.Items {
		add(in.machines.Items[i].DeepCopy())
	}
	for i := range in.bootstraps.Items {
		add(in.bootstraps.Items[i].DeepCopy())
	}
	for i := range in.secrets.Items {
		add(in.secrets.Items[i].DeepCopy())
	}
	return builder
}

// apiOf is an API server with what a shelf has, and what it is asked.
func apiOf(t *testing.T, in *shelf) (client.WithWatch, *requests) {
	t.Helper()
	asked := &requests{}
	return apiBuilder(t, in).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			asked.gets = append(asked.gets, key.Name)
			return c.Get(ctx, key, o, opts...)
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			asked.lists = append(asked.lists, fmt.Sprintf("%T", list))
			return c.List(ctx, list, opts...)
		},
	}).Build(), asked
}

// TestLiveServers: a decision that harms servers is made on what the API server has of them, and nothing is read past the cache of workers.
func TestLiveServers(t *testing.T) {
	r, cached, next := bigCluster(t, 50)
	change := func(s *scope) { s.controlPlane.Spec.ProvisionGeneration = 7 }
	s := next()
	change(s)
	if err := r.reconcileInMemory(s); err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(s.machines, func(m *machine) bool { return m.decision.Deliver })
	if i < 0 {
		t.Fatal("nothing changes")
	}
	first := s.machines[i]
	api, asked := apiOf(t, cached)
	secret := &corev1.Secret{}
	if err := api.Get(t.Context(), client.ObjectKeyFromObject(first.secret), secret); err != nil {
		t.Fatal(err)
	}
	plans.Deliver(secret.Data, first.encoded, plans.Unlimited, first.inputs.FailureThreshold())
	if err := api.Update(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	*asked = requests{}
	r.manager, r.Live = manager{shelf: cached}, api
	r.Cache = r.manager
	for range 2 {
		s = next()
		change(s)
		if err := r.reconcileInMemory(s); err != nil {
			t.Fatal(err)
		}
		if !s.live {
			t.Error("it was decided on the old view")
		}
		if len(s.machines) != 50 {
			t.Errorf("%d machines", len(s.machines))
		}
		for _, m := range s.machines {
			if m.decision.Deliver {
				t.Errorf("%s changes while %s does: %+v", m.machine.Name, first.machine.Name, m.decision)
			}
		}
	}
	if want := 2 * 3 * 3; len(asked.gets) != want {
		t.Errorf("%d objects were read, want %d, those of the servers: %v", len(asked.gets), want, asked.gets)
	}
	var ofOperations []string
	for _, list := range operationv1.Lists() {
		ofOperations = append(ofOperations, fmt.Sprintf("%T", list))
	}
	known := []string{"*v1.PartialObjectMetadataList", "*v1.PartialObjectMetadataList"}
	if want := slices.Concat(ofOperations, known, ofOperations); !slices.Equal(asked.lists, want) {
		t.Errorf("lists %v, want %v", asked.lists, want)
	}
}

// loadBelieved loads a cluster from a cache that is known to have all of its machines.
func loadBelieved(t *testing.T, r *Reconciler, cached *shelf, api client.Reader, s *scope) *scope {
	t.Helper()
	r.manager, r.Live = manager{shelf: cached}, api
	r.Cache = r.manager
	r.known.all.Store(true)
	r.known.seen(controlPlaneKey, &clusterv1.Cluster{}).confirmed.Store(true)
	if err := r.loadMachines(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	return s
}

// TestLiveObjects: a server that was deleted is none, and the RKEBootstrap and the plan Secret that the cache does not have yet are found.
func TestLiveObjects(t *testing.T) {
	r, cached, next := bigCluster(t, 4)
	api, _ := apiOf(t, cached)
	if err := api.Delete(t.Context(), cached.machines.Items[1].DeepCopy()); err != nil {
		t.Fatal(err)
	}
	cached.bootstraps.Items = slices.Delete(cached.bootstraps.Items, 2, 3)
	cached.secrets.Items = slices.Delete(cached.secrets.Items, 0, 1)
	s := loadBelieved(t, r, cached, api, next())
	if len(s.others) != 1 || s.machines[0].secret != nil {
		t.Fatalf("the cache has them: %v", s.others)
	}
	if err := r.planLive(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range s.machines {
		if m.secret == nil {
			t.Errorf("%s has no plan Secret", m.machine.Name)
		}
		got = append(got, m.machine.Name)
	}
	if want := []string{"m0000", "m0002", "m0003"}; !slices.Equal(got, want) || len(s.others) != 0 {
		t.Errorf("machines %v and %v, want %v", got, s.others, want)
	}
}

// TestLiveOfAnother: nothing is decided of a Machine that was created again under its name, until the cache has it.
func TestLiveOfAnother(t *testing.T) {
	r, cached, next := bigCluster(t, 3)
	api, _ := apiOf(t, cached)
	cached.machines.Items[2].UID = "earlier"
	cached.bootstraps.Items[2].OwnerReferences[0].UID = "earlier"
	s := loadBelieved(t, r, cached, api, next())
	if err := r.planLive(t.Context(), s); !apierrors.IsConflict(err) {
		t.Errorf("got %v, want a conflict", err)
	}
}

// TestManyLive: more objects than a list is worth are listed.
func TestManyLive(t *testing.T) {
	r, cached, next := bigCluster(t, maxLive+2)
	for i := range cached.bootstraps.Items {
		cached.bootstraps.Items[i].Labels, cached.machines.Items[i].Labels = nil, nil // no role yet
	}
	api, asked := apiOf(t, cached)
	s := loadBelieved(t, r, cached, api, next())
	if err := r.planLive(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if len(asked.gets) != 0 || len(asked.lists) != 4 || len(s.machines) != maxLive+2 {
		t.Errorf("requests %+v, %d machines", *asked, len(s.machines))
	}
}
