package registration

import (
	"context"
	"errors"
	"net/http"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/util/response"
)

// known reads a few objects.
type known struct {
	client.Client
	objects []client.Object
}

func (k known) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	for _, object := range k.objects {
		if reflect.TypeOf(object) == reflect.TypeOf(into) && client.ObjectKeyFromObject(object) == key {
			reflect.ValueOf(into).Elem().Set(reflect.ValueOf(object).Elem())
			return nil
		}
	}
	return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
}

// A machine that comes right after its Cluster is not turned away for a cache that has not seen the Cluster: its installation would end.
func TestClusterOfAToken(t *testing.T) {
	token := &managementv3.ClusterRegistrationToken{Spec: managementv3.ClusterRegistrationTokenSpec{ClusterName: "c-m-1"}}
	cluster := &provisioningv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "prod",
		Annotations: map[string]string{rkev1.ManagementClusterNameAnnotation: "c-m-1"}}}
	management := &managementv3.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "c-m-1",
		Labels: map[string]string{rkev1.OwnerClusterNamespaceLabel: "fleet", rkev1.OwnerClusterNameLabel: "prod"}}}
	provisioned := cluster.DeepCopy()
	provisioned.Spec.RKEConfig = &provisioningv1.RKEConfig{}
	native := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "prod"}}
	made := native.DeepCopy()
	made.OwnerReferences = []metav1.OwnerReference{
		{APIVersion: provisioningv1.GroupVersion.String(), Kind: "Cluster", Name: "prod", UID: "before-a-move"}}
	for name, c := range map[string]struct {
		cached, live []client.Object
		found        bool
	}{
		"cached":                          {cached: []client.Object{management, cluster}, found: true},
		"not cached":                      {live: []client.Object{management, cluster}, found: true},
		"cached in part":                  {cached: []client.Object{management}, live: []client.Object{management, cluster}, found: true},
		"without a Cluster":               {live: []client.Object{management}},
		"nowhere":                         {},
		"whose name is taken":             {cached: []client.Object{management, provisioned, native}, live: []client.Object{native}},
		"whose name was taken until now":  {cached: []client.Object{management, provisioned, native}, live: []client.Object{made}, found: true},
		"with its Cluster of Cluster API": {cached: []client.Object{management, provisioned, made}, found: true},
		"imported, with one of that name": {cached: []client.Object{management, cluster, native}, found: true},
		"of another namespace": {live: []client.Object{management,
			&provisioningv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "b", Name: "prod"}}}},
	} {
		g := &Registrar{Options: Options{Client: known{objects: c.cached}, Live: known{objects: c.live}}}
		got, err := g.clusterOf(t.Context(), token)
		if (err == nil) != c.found || c.found && got.Name != "prod" {
			t.Errorf("%s: %v, %v", name, got, err)
		}
		var refused *response.Error
		if !c.found && (!errors.As(err, &refused) || refused.Code != http.StatusConflict) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestWaitingForMachine: a machine whose objects the API server does not take reads why, and comes again.
func TestWaitingForMachine(t *testing.T) {
	request := &corev1.Secret{}
	for _, why := range []string{"", "machines is forbidden: exceeded quota: small"} {
		want := "waiting for the hub to create a Machine for this machine in the cluster fleet/prod"
		if why != "" {
			request.Annotations = map[string]string{rkev1.MachineRequestWaitingAnnotation: why}
			want += ": " + why
		}
		err := waitingForMachine(client.ObjectKey{Namespace: "fleet", Name: "prod"}, request)
		var retry *response.Error
		if !errors.As(err, &retry) || retry.Code != http.StatusServiceUnavailable || retry.Message != want || retry.RetryAfter == 0 {
			t.Errorf("got %+v", err)
		}
	}
}

// TestMachineThatIsBeingDeleted: a machine that registers while its Machine is being deleted waits for the end of that, and gets a new one.
// The connection of the old one would end with it.
func TestMachineThatIsBeingDeleted(t *testing.T) {
	cluster := &provisioningv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "prod"}}
	now := metav1.Now()
	for name, c := range map[string]struct {
		machine, bootstrap *metav1.Time
		waits              bool
	}{
		"registered":                  {},
		"the Machine is drained":      {machine: &now, waits: true},
		"its objects are deleted":     {machine: &now, bootstrap: &now, waits: true},
		"the RKEBootstrap goes alone": {bootstrap: &now, waits: true},
	} {
		meta := metav1.ObjectMeta{Namespace: "fleet", Name: rkev1.MachineRequestName("a"), UID: "1",
			Annotations: map[string]string{rkev1.MachineSecretHashAnnotation: "hash"}}
		machine := &clusterv1.Machine{ObjectMeta: *meta.DeepCopy()}
		machine.DeletionTimestamp = c.machine
		bootstrap := &rkev1.RKEBootstrap{ObjectMeta: *meta.DeepCopy(), Spec: rkev1.RKEBootstrapSpec{ClusterName: "prod"}}
		bootstrap.DeletionTimestamp = c.bootstrap
		g := &Registrar{Options: Options{Live: known{objects: []client.Object{machine, bootstrap}}}}
		got, err := g.knownMachine(t.Context(), cluster, &registration{ID: "a", SecretHash: "hash"})
		if !c.waits {
			if err != nil || got == nil {
				t.Errorf("%s: %v, %v", name, got, err)
			}
			continue
		}
		var retry *response.Error
		if got != nil || !errors.As(err, &retry) || retry.Code != http.StatusServiceUnavailable || retry.RetryAfter == 0 ||
			!strings.Contains(retry.Message, "Machine fleet/"+meta.Name+" is being deleted") {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}
