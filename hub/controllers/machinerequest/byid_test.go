package machinerequest

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/testenv/fakeclient"
)

// cacheAt is a cache that has come to a version.
type cacheAt struct {
	cache.Informers
	version string
}

func (c cacheAt) GetInformer(context.Context, client.Object, ...cache.InformerGetOption) (cache.Informer, error) {
	return fakeclient.InformerAt{Version: c.version}, nil
}

// TestMachineByID: a Machine that another system has created is found by its ID, and decided on as it is now. That the cache has none
// counts only if the cache is not behind the Cluster.
func TestMachineByID(t *testing.T) {
	machine := func(name, cluster string) *clusterv1.Machine {
		m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name,
			Labels: map[string]string{rkev1.MachineIDLabel: rkev1.MachineIDLabelValue("id")}}}
		m.Spec.ClusterName = cluster
		return m
	}
	changed := machine("theirs", "prod")
	changed.Annotations = map[string]string{"now": "true"}
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "prod", ResourceVersion: "7"}}
	for name, tc := range map[string]struct {
		cached, live []client.Object
		version      string
		want         string
	}{
		"known":                     {[]client.Object{machine("theirs", "prod")}, []client.Object{changed}, "9", "theirs"},
		"its own before another's":  {[]client.Object{machine("a", "other"), machine("theirs", "prod")}, []client.Object{changed}, "9", "theirs"},
		"deleted":                   {[]client.Object{machine("theirs", "prod")}, nil, "9", ""},
		"new to a cache":            {nil, []client.Object{changed}, "6", "theirs"},
		"new to one that says none": {nil, []client.Object{changed}, "", "theirs"},
		"none":                      {nil, nil, "6", ""},
		"made after the Cluster":    {nil, []client.Object{changed}, "7", ""},
		"made again by its system":  {[]client.Object{machine("earlier", "prod")}, []client.Object{changed}, "7", "theirs"},
	} {
		t.Run(name, func(t *testing.T) {
			with := func(objects []client.Object) client.Client {
				return fake.NewClientBuilder().WithScheme(fakeclient.Scheme(t, clusterv1.AddToScheme)).WithObjects(objects...).Build()
			}
			r := &Reconciler{Client: with(tc.cached), Live: with(tc.live), Informers: cacheAt{version: tc.version}}
			got, err := r.machineByID(t.Context(), cluster, "id")
			if err != nil {
				t.Fatal(err)
			}
			if tc.want == "" {
				if got != nil {
					t.Errorf("got %s", got.Name)
				}
				return
			}
			if got == nil || got.Name != tc.want || got.Annotations["now"] != "true" {
				t.Errorf("got %v, want %s as it is now", got, tc.want)
			}
		})
	}
}

// TestBusyHubListsRarely: where a list takes long and the cache is behind, machines that register wait for the cache instead of listing
// each.
func TestBusyHubListsRarely(t *testing.T) {
	api := fake.NewClientBuilder().WithScheme(fakeclient.Scheme(t, clusterv1.AddToScheme)).Build()
	lists := 0
	slow := interceptor.NewClient(api, interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			lists++
			time.Sleep(time.Second)
			return c.List(ctx, list, opts...)
		},
	})
	synctest.Test(t, func(t *testing.T) {
		r := &Reconciler{Client: api, Live: slow, Informers: cacheAt{version: "6"}}
		cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "prod", ResourceVersion: "7"}}
		look := func(what string, want error, wantLists int) {
			t.Helper()
			lists = 0
			if _, err := r.machineByID(t.Context(), cluster, "id"); !errors.Is(err, want) || lists != wantLists {
				t.Errorf("%s: %v, %d lists, want %v, %d", what, err, lists, want, wantLists)
			}
		}
		look("the first", nil, 2)
		look("the second", errAgain, 0)
		time.Sleep(18 * time.Second)
		look("the second, later", nil, 2)
		r.Informers = cacheAt{version: "7"}
		look("when the cache has caught up", nil, 0)
	})
}

// TestForgetsCluster: nothing is kept of a Cluster that is deleted.
func TestForgetsCluster(t *testing.T) {
	r := &Reconciler{Informers: cacheAt{version: "9"}}
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "prod", ResourceVersion: "7"}}
	kept := func() (n int) {
		r.seen.Range(func(any, any) bool { n++; return true })
		return n
	}
	if r.reached(t.Context(), cluster); kept() != 1 {
		t.Error("the Cluster is not remembered")
	}
	if r.forget(t.Context(), event.DeleteEvent{Object: cluster}, nil); kept() != 0 {
		t.Error("a Cluster that is deleted is kept")
	}
}
