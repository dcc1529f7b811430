package clusters

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	addonsv1 "sigs.k8s.io/cluster-api/api/addons/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"

	"github.com/drover-dev/drover/hub/testenv"
)

// TestClusterResourceSet: Cluster API in the hub records what a ClusterResourceSet is to apply to a cluster, before it can reach the
// cluster, and removes the record with the ClusterResourceSet.
func TestClusterResourceSet(t *testing.T) {
	t.Parallel()
	c := newCAPICluster(t)
	selected := map[string]string{"network": "example"}
	testenv.Change(t, env, c.capi(), func(cluster *clusterv1.Cluster) {
		metav1.SetMetaDataLabel(&cluster.ObjectMeta, "network", selected["network"])
	})
	meta := metav1.ObjectMeta{Namespace: c.namespace, Name: "network"}
	manifest := &corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"a.yaml": ""}}
	set := &addonsv1.ClusterResourceSet{ObjectMeta: meta}
	set.Spec.ClusterSelector.MatchLabels = selected
	set.Spec.Resources = []addonsv1.ResourceRef{
		{Name: manifest.Name, Kind: string(addonsv1.ConfigMapClusterResourceSetResourceKind)},
	}
	env.Create(t, manifest, set)
	testenv.Condition(t, env, set, addonsv1.ClusterResourceSetResourcesAppliedCondition, metav1.ConditionFalse, "")
	binding := &addonsv1.ClusterResourceSetBinding{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: c.name}}
	testenv.Until(t, "the ClusterResourceSetBinding", func() error {
		err := env.Client.Get(t.Context(), client.ObjectKeyFromObject(binding), binding)
		if err == nil && len(binding.Spec.Bindings) != 1 {
			err = fmt.Errorf("it has %+v", binding.Spec)
		}
		return err
	})
	if err := owned(t, manifest, "ClusterResourceSet"); err != nil {
		t.Error(err)
	}
	env.Delete(t, set)
	env.Gone(t, set)
	env.Gone(t, binding)
}

// TestIPAddress: Cluster API's webhook in the hub compares an IPAddress with its claim.
func TestIPAddress(t *testing.T) {
	t.Parallel()
	claim, address := newIPAddress(env.Namespace(t))
	env.Create(t, claim)
	address.Spec.PoolRef.Name = "another"
	if err := env.Client.Create(t.Context(), address.DeepCopy()); err == nil || !strings.Contains(err.Error(), "different from the pool") {
		t.Errorf("an address of another pool: %v", err)
	}
	address.Spec.PoolRef = claim.Spec.PoolRef
	env.Create(t, address)
}

func newIPAddress(namespace string) (*ipamv1.IPAddressClaim, *ipamv1.IPAddress) {
	meta := metav1.ObjectMeta{Namespace: namespace, Name: "one"}
	pool := ipamv1.IPPoolReference{APIGroup: "ipam.example.com", Kind: "Pool", Name: "pool"}
	return &ipamv1.IPAddressClaim{ObjectMeta: meta, Spec: ipamv1.IPAddressClaimSpec{PoolRef: pool}},
		&ipamv1.IPAddress{ObjectMeta: meta, Spec: ipamv1.IPAddressSpec{
			ClaimRef: ipamv1.IPAddressClaimReference{Name: meta.Name}, PoolRef: pool, Address: "192.0.2.10", Prefix: ptr.To[int32](24),
		}}
}

// TestStoredVersions: what was stored in an earlier version of a definition of Cluster API is rewritten. The hub has the rights for it on
// the kinds that nothing else in it changes, too.
func TestStoredVersions(t *testing.T) {
	t.Parallel()
	claim, address := newIPAddress(env.Namespace(t))
	rule := &clusterv1.MachineDrainRule{ObjectMeta: claim.ObjectMeta}
	rule.Spec.Drain.Behavior = clusterv1.MachineDrainRuleDrainBehaviorSkip
	env.Create(t, claim, address, rule)
	for _, name := range []string{
		"ipaddressclaims.ipam.cluster.x-k8s.io", "ipaddresses.ipam.cluster.x-k8s.io", "machinedrainrules.cluster.x-k8s.io",
	} {
		definition := &apiextensionsv1.CustomResourceDefinition{}
		testenv.OnConflict(t, "adding a stored version to "+name, func() error {
			env.Get(t, "", name, definition)
			definition.Status.StoredVersions = []string{"v1beta1", "v1beta2"}
			return env.Client.Status().Update(t.Context(), definition)
		})
		testenv.Until(t, "the objects of "+name+" to be rewritten", func() error {
			env.Get(t, "", name, definition)
			got := definition.Status.StoredVersions
			if slices.Equal(got, []string{"v1beta2"}) {
				return nil
			}
			if _, seen := definition.Annotations[clusterv1.CRDMigrationObservedGenerationAnnotation]; seen {
				testenv.Change(t, env, definition, func(d *apiextensionsv1.CustomResourceDefinition) {
					delete(d.Annotations, clusterv1.CRDMigrationObservedGenerationAnnotation)
				})
			}
			return fmt.Errorf("the stored versions are %v", got)
		})
	}
}
