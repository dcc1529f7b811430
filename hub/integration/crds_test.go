package integration

import (
	"errors"
	"maps"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apitypes "k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/drover-dev/drover/hub/api/crds"
	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
	"github.com/drover-dev/drover/hub/util/operations"
)

// TestInstallDefinitionsTwice: the second installation, as after a restart, writes nothing.
func TestInstallDefinitionsTwice(t *testing.T) {
	definitions := func() []apiextensionsv1.CustomResourceDefinition {
		list := &apiextensionsv1.CustomResourceDefinitionList{}
		if err := env.Client.List(t.Context(), list); err != nil {
			t.Fatal(err)
		}
		return list.Items
	}
	versions := func() map[string]string {
		out := map[string]string{}
		for _, crd := range definitions() {
			out[crd.Name] = crd.ResourceVersion
		}
		return out
	}
	// Cluster API's migrator marks each definition once, some time after the start. Its writes do not count.
	written := func() map[string]metav1.Time {
		out := map[string]metav1.Time{}
		for _, crd := range definitions() {
			for _, by := range crd.ManagedFields {
				if by.Manager == "drover-crds" && by.Subresource == "" {
					out[crd.Name] = *by.Time
				}
			}
		}
		return out
	}
	existing := &apiextensionsv1.CustomResourceDefinition{}
	if err := env.Client.Get(t.Context(), client.ObjectKey{Name: "machines.cluster.x-k8s.io"}, existing); err != nil {
		t.Fatal(err)
	}
	conversion := existing.Spec.Conversion.Webhook.ClientConfig.DeepCopy()
	*conversion.URL = "https://" + env.Webhooks

	// The hub itself is at rest by then, and a second over to which the times are rounded.
	var before map[string]metav1.Time
	last := versions()
	eventually(t, "the definitions to be left alone", func() error {
		time.Sleep(time.Second)
		now := versions()
		if before = written(); !maps.Equal(last, now) {
			last = now
			return errors.New("they change")
		}
		return nil
	})
	var applied atomic.Int64
	config := rest.CopyConfig(env.Config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(request *http.Request) (*http.Response, error) {
			if request.Method != http.MethodGet {
				applied.Add(1)
			}
			return next.RoundTrip(request)
		})
	})
	install := func() int64 {
		applied.Store(0)
		if err := crds.Install(t.Context(), config, crds.Options{Conversion: conversion}); err != nil {
			t.Fatal(err)
		}
		return applied.Load()
	}
	if n := install(); n > 0 {
		t.Errorf("%d definitions were applied again", n)
	}
	after := written()
	if len(before) == 0 || len(after) != len(before) {
		t.Errorf("%d definitions were installed, then %d", len(before), len(after))
	}
	for name, at := range after {
		if last := before[name]; !at.Equal(&last) {
			t.Errorf("%s was written again", name)
		}
	}

	// What somebody has taken away comes back.
	definition := &apiextensionsv1.CustomResourceDefinition{}
	definition.Name = "custommachinetemplates.rke.cattle.io"
	without := client.RawPatch(apitypes.JSONPatchType, []byte(`[{"op":"remove","path":"/spec/names/categories"}]`))
	if err := env.Client.Patch(t.Context(), definition, without); err != nil {
		t.Fatal(err)
	}
	if n := install(); n != 1 {
		t.Errorf("%d definitions were applied", n)
	}
	err := env.Client.Get(t.Context(), client.ObjectKeyFromObject(definition), definition)
	if err != nil || len(definition.Spec.Names.Categories) == 0 {
		t.Errorf("the definition has the categories %q (%v)", definition.Spec.Names.Categories, err)
	}
}

// TestClusterAPIPermissions: Cluster API's manager, if it runs outside of the hub, has the rights that it needs for the hub's kinds.
func TestClusterAPIPermissions(t *testing.T) {
	t.Parallel()
	roles := &rbacv1.ClusterRoleList{}
	if err := env.Client.List(t.Context(), roles, client.MatchingLabels{"cluster.x-k8s.io/aggregate-to-manager": "true"}); err != nil {
		t.Fatal(err)
	}
	granted := map[string]bool{}
	for _, role := range roles.Items {
		for _, rule := range role.Rules {
			for _, resource := range rule.Resources {
				granted[rule.APIGroups[0]+" "+resource] = true
			}
		}
	}
	for _, kind := range []string{"rkeclusters", "rkecontrolplanes", "rkebootstraps", "rkebootstraptemplates", "custommachines",
		"custommachinetemplates"} {
		for _, resource := range []string{kind, kind + "/finalizers"} {
			if !granted["rke.cattle.io "+resource] {
				t.Errorf("no role lets Cluster API's manager handle %s", resource)
			}
		}
	}
}

// TestOperationsOfOneCluster: the API server selects the operations of each kind by their Cluster.
func TestOperationsOfOneCluster(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	for _, cluster := range []string{"a", "b"} {
		op := &operationv1.ETCDSnapshotSave{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "of-" + cluster}}
		op.Spec.TTL = -1
		op.Spec.ClusterRef = operationv1.ClusterReference{APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster", Name: cluster}
		if err := env.Client.Create(t.Context(), op); err != nil {
			t.Fatal(err)
		}
	}
	var names []string
	for _, list := range operationv1.Lists() {
		err := env.Client.List(t.Context(), list, client.InNamespace(namespace), operations.Indexed(client.ObjectKey{Name: "a"}))
		if err != nil {
			t.Errorf("%T: %v", list, err)
		}
		for _, op := range operations.Items(list) {
			names = append(names, op.GetName())
		}
	}
	if !slices.Equal(names, []string{"of-a"}) {
		t.Errorf("got %q", names)
	}
}
