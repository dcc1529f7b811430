package cluster

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/external"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/controllers/cluster/pool"
	"github.com/drover-dev/drover/hub/nodedriver/schema"
	"github.com/drover-dev/drover/hub/testenv/fakeclient"
	"github.com/drover-dev/drover/hub/util/capicontract"
	"github.com/drover-dev/drover/hub/util/ownership"
	"github.com/drover-dev/drover/hub/util/patch"
)

// ofRancher are the annotations that Rancher gives to what it makes for a Cluster.
func ofRancher(namespace, name string) map[string]string {
	return map[string]string{schema.RancherOwnerKindAnnotation: "provisioning.cattle.io/v1, Kind=Cluster", rancherOwnerNamespace: namespace,
		rancherOwnerName: name}
}

// TestAdoptManagement: a Cluster of Rancher keeps its management Cluster, and nobody gets that of another Cluster by its name.
func TestAdoptManagement(t *testing.T) {
	for what, tt := range map[string]struct {
		name                                 string
		annotations, labels, namespaceLabels map[string]string
		adopted                              bool
	}{
		"with a name that the hub refuses": {name: "c-abcde", annotations: ofRancher("fleet-default", "one")},
		"Rancher's":                        {annotations: ofRancher("fleet-default", "one"), adopted: true},
		"taken over in part": {annotations: ofRancher("fleet-default", "one"), labels: ownerOf(testCluster()).Labels(),
			adopted: true},
		"of another Cluster of Rancher": {annotations: ofRancher("fleet-default", "two")},
		"of another namespace":          {annotations: ofRancher("other", "one")},
		"nobody's":                      {},
		"another Cluster's of this hub": {annotations: ofRancher("fleet-default", "one"),
			labels: ownership.Labels(client.ObjectKey{Namespace: "other", Name: "one"})},
		"with a namespace of another Cluster": {annotations: ofRancher("fleet-default", "one"),
			namespaceLabels: ownership.Labels(client.ObjectKey{Namespace: "other", Name: "one"})},
	} {
		t.Run(what, func(t *testing.T) {
			cluster, name := testCluster(), cmp.Or(tt.name, "c-m-rancher2")
			cluster.Annotations, cluster.Status.ClusterName = nil, name
			management := &managementv3.Cluster{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: tt.annotations, Labels: tt.labels}}
			namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: tt.namespaceLabels}}
			scheme := fakeclient.Scheme(t, provisioningv1.AddToScheme, managementv3.AddToScheme, corev1.AddToScheme)
			c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(cluster, management, namespace).Build()
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(cluster), cluster); err != nil {
				t.Fatal(err)
			}
			r := &Reconciler{Client: c, Live: c}
			if err := r.reconcileName(t.Context(), &scope{cluster: cluster, patch: patch.NewHelper(c, cluster, fieldOwner)}); err != nil {
				t.Fatal(err)
			}
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(cluster), cluster); err != nil {
				t.Fatal(err)
			}
			if got := cluster.Annotations[rkev1.ManagementClusterNameAnnotation]; got == "" || (got == name) != tt.adopted {
				t.Errorf("the Cluster has the management Cluster %q", got)
			}
			for _, object := range []client.Object{management, namespace} {
				want := object.GetLabels()
				if tt.adopted {
					want = ownerOf(cluster).Labels()
				}
				if err := c.Get(t.Context(), client.ObjectKeyFromObject(object), object); err != nil {
					t.Fatal(err)
				}
				if got := object.GetLabels(); !maps.Equal(got, want) {
					t.Errorf("%T has the labels %v, want %v", object, got, want)
				}
			}
		})
	}
}

// rancherDeployment is the MachineDeployment of pool a of a Cluster, as Rancher makes it.
func rancherDeployment(replicas int32) *clusterv1.MachineDeployment {
	md := &clusterv1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet-default", Name: "one-a",
		Annotations: ofRancher("fleet-default", "one"), OwnerReferences: []metav1.OwnerReference{
			{APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster", Name: "one", UID: "capi"}}}}
	md.Spec.ClusterName, md.Spec.Replicas = "one", &replicas
	md.Spec.Template.Labels = map[string]string{rkev1.MachinePoolNameLabel: "a", rkev1.WorkerRoleLabel: "true"}
	md.Spec.Template.Spec.Bootstrap.ConfigRef = pool.Ref(bootstrapTemplateKind, "one-bootstrap-template")
	md.Spec.Template.Spec.InfrastructureRef = pool.Ref(schema.TemplateKind("lab").GroupKind(), "one-a-0123abcd")
	return md
}

// TestAdoptPool: a pool has the MachineDeployment that Rancher has made for it, and no other one.
func TestAdoptPool(t *testing.T) {
	for what, tt := range map[string]struct {
		change  func(*clusterv1.MachineDeployment)
		adopted bool
	}{
		"Rancher's":      {func(*clusterv1.MachineDeployment) {}, true},
		"a user's":       {func(md *clusterv1.MachineDeployment) { md.Annotations = nil }, false},
		"of another one": {func(md *clusterv1.MachineDeployment) { md.Annotations = ofRancher("fleet-default", "one-a") }, false},
		"of another pool": {func(md *clusterv1.MachineDeployment) {
			md.Spec.Template.Labels[rkev1.MachinePoolNameLabel] = "b"
		}, false},
		"of another Cluster of Cluster API": {func(md *clusterv1.MachineDeployment) {
			md.OwnerReferences[0].Name = "two"
		}, false},
		"taken over before": {func(md *clusterv1.MachineDeployment) {
			md.Annotations[rkev1.AppliedQuantityAnnotation] = "2"
		}, false},
	} {
		t.Run(what, func(t *testing.T) {
			md := rancherDeployment(2)
			tt.change(md)
			c := fake.NewClientBuilder().WithScheme(fakeclient.Scheme(t, clusterv1.AddToScheme)).WithObjects(md).Build()
			p := &poolScope{cluster: testCluster(), spec: poolSpec("a")}
			err := (&Reconciler{Client: c}).checkPoolName(t.Context(), p)
			if err != nil && !errors.Is(err, errPoolWaits) {
				t.Fatal(err)
			}
			if p.adopted != tt.adopted || (p.deployment != nil) != tt.adopted || (p.problem == nil) != tt.adopted {
				t.Errorf("adopted %v, problem %+v", p.adopted, p.problem)
			}
		})
	}
}

// TestAdoptReplicas: no machine goes because Rancher, or an autoscaler, has scaled the MachineDeployment and not the pool.
func TestAdoptReplicas(t *testing.T) {
	for _, replicas := range []int32{2, 5} {
		cluster, md := testCluster(), rancherDeployment(replicas)
		cluster.Spec.RKEConfig.MachinePools = []provisioningv1.RKEMachinePool{*poolSpec("a")}
		scheme := fakeclient.Scheme(t, provisioningv1.AddToScheme, clusterv1.AddToScheme)
		c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(cluster, md).Build()
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(cluster), cluster); err != nil {
			t.Fatal(err)
		}
		p := &poolScope{cluster: cluster, spec: &cluster.Spec.RKEConfig.MachinePools[0], deployment: md, adopted: true}
		err := (&Reconciler{Client: c, Live: c}).writeBackScale(t.Context(), p)
		if waits := errors.Is(err, errPoolWaits); err != nil && !waits || waits != (replicas != 2) {
			t.Errorf("%d replicas: %v", replicas, err)
		}
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(cluster), cluster); err != nil {
			t.Fatal(err)
		}
		if got := *cluster.Spec.RKEConfig.MachinePools[0].Quantity; got != replicas {
			t.Errorf("the pool has the quantity %d, want %d", got, replicas)
		}
	}
}

// TestNoteUpToDate: where an earlier hub has noted only the revision on a template that has other fields than its configuration, the
// content is noted too, once: a configuration that is created again, as by "clusterctl move", replaces no machines then.
func TestNoteUpToDate(t *testing.T) {
	object := func(uid string, fields map[string]any) *unstructured.Unstructured {
		o := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"template": map[string]any{"spec": fields}}}}
		o.SetGroupVersionKind(schema.TemplateKind("lab"))
		o.SetNamespace("fleet-default")
		o.SetName("one-a-0123abcd")
		o.SetUID(types.UID(uid))
		return o
	}
	template := object("t", map[string]any{"size": "s"})
	template.SetAnnotations(map[string]string{rkev1.ClonedFromRevisionAnnotation: "c/0"})
	writes := 0
	c := fake.NewClientBuilder().WithScheme(fakeclient.Scheme(t, func(s *runtime.Scheme) error {
		s.AddKnownTypeWithName(template.GroupVersionKind(), &unstructured.Unstructured{})
		return nil
	})).WithObjects(template).WithInterceptorFuncs(interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			writes++
			return c.Patch(ctx, o, p, opts...)
		},
	}).Build()
	fields := map[string]any{"size": "s", "newer": "default of the driver"}
	moved := object("moved", fields)
	for range 2 {
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(template), template); err != nil {
			t.Fatal(err)
		}
		if err := (&Reconciler{Client: c}).noteUpToDate(t.Context(), template, object("c", fields)); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(template), template); err != nil {
		t.Fatal(err)
	}
	if !pool.UpToDate(template, moved) || writes != 1 {
		t.Errorf("%d writes, annotations %v", writes, template.GetAnnotations())
	}
}

// TestAdoptTemplates: the templates that Rancher has made stay those of the machines, which would be replaced otherwise.
func TestAdoptTemplates(t *testing.T) {
	kind := schema.TemplateKind("lab")
	object := func(name, uid string, fields map[string]any) *unstructured.Unstructured {
		o := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"template": map[string]any{"spec": fields}}}}
		o.SetGroupVersionKind(kind)
		o.SetNamespace("fleet-default")
		o.SetName(name)
		o.SetUID(types.UID(uid))
		return o
	}
	made := object("one-a-0123abcd", "t", map[string]any{"size": "s"})
	made.SetAnnotations(map[string]string{rkev1.ClonedFromNameAnnotation: "nc-1"})
	bootstrap := &rkev1.RKEBootstrapTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet-default", Name: "one-bootstrap-template"}}
	bootstrap.Spec.Template.Spec.ClusterName = "one"
	definition := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{
		Name: capicontract.DefinitionName(kind.GroupKind()), Labels: map[string]string{"cluster.x-k8s.io/v1beta2": "v1"}}}
	scheme := fakeclient.Scheme(t, clusterv1.AddToScheme, rkev1.AddToScheme, apiextensionsv1.AddToScheme, func(s *runtime.Scheme) error {
		s.AddKnownTypeWithName(kind, &unstructured.Unstructured{})
		return nil
	})
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(made, bootstrap, definition).Build()
	r := &Reconciler{Client: c, tracker: &external.ObjectTracker{Controller: watching{}, Cache: struct{ cache.Cache }{}, Scheme: scheme,
		PredicateLogger: new(logr.Discard())}}
	md := rancherDeployment(2)
	p := &poolScope{cluster: testCluster(), spec: poolSpec("a"), deployment: md, adopted: true}
	current := md.Spec.Template.Spec.InfrastructureRef
	source := object("nc-1", "c", map[string]any{"size": "s", "newer": "default of the driver"})
	if upToDate, err := r.upToDate(t.Context(), p, current, source); upToDate || err != nil {
		t.Fatalf("up to date before: %v (%v)", upToDate, err)
	}
	if adopted, err := r.adoptTemplate(t.Context(), p, current, source); !adopted || err != nil {
		t.Fatalf("adopted: %v (%v)", adopted, err)
	}
	if upToDate, err := r.upToDate(t.Context(), p, current, source); !upToDate || err != nil {
		t.Errorf("up to date after: %v (%v)", upToDate, err)
	}
	again := object("nc-1", "moved", map[string]any{"size": "s", "newer": "default of the driver"})
	if upToDate, err := r.upToDate(t.Context(), p, current, again); !upToDate || err != nil {
		t.Errorf("up to date with a configuration that was created again: %v (%v)", upToDate, err)
	}
	other := object("nc-1", "moved", map[string]any{"size": "l", "newer": "default of the driver"})
	if upToDate, err := r.upToDate(t.Context(), p, current, other); upToDate || err != nil {
		t.Errorf("up to date with another size: %v (%v)", upToDate, err)
	}
	if adopted, err := r.adoptTemplate(t.Context(), p, current, object("nc-2", "d", nil)); adopted || err != nil {
		t.Errorf("the template of another configuration is adopted: %v (%v)", adopted, err)
	}
	missing := pool.Ref(kind.GroupKind(), "one-a-gone")
	if adopted, err := r.adoptTemplate(t.Context(), p, missing, source); adopted || !errors.Is(err, errPoolWaits) || p.problem == nil {
		t.Errorf("a template that does not exist is adopted: %v (%v)", adopted, err)
	}
	if ref, err := r.reconcileBootstrapTemplate(t.Context(), p); ref.Name != bootstrap.Name || err != nil {
		t.Errorf("the bootstrap template is %s (%v)", ref.Name, err)
	}
}
