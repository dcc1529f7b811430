package integration

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sigs.k8s.io/cluster-api/util/conditions"

	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	"github.com/drover-dev/drover/hub/testenv"
)

// hubEnv adds to the hub what tests of its controllers do with objects.
type hubEnv struct {
	*testenv.Env
}

// theHub returns the hub and a new namespace.
func theHub(t *testing.T) (*hubEnv, string) {
	t.Helper()
	return &hubEnv{env}, newNamespace(t)
}

// until waits until check returns nil, and ends the test with its last error otherwise.
func until(t *testing.T, what string, check func() error) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("waiting for %s: %v", what, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func (e *hubEnv) create(t *testing.T, objects ...client.Object) {
	t.Helper()
	for _, object := range objects {
		if err := e.Client.Create(t.Context(), object); err != nil {
			t.Fatalf("creating %T %s: %v", object, object.GetName(), err)
		}
	}
}

func (e *hubEnv) get(t *testing.T, namespace, name string, into client.Object) {
	t.Helper()
	if err := e.Client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, into); err != nil {
		t.Fatalf("reading %T %s: %v", into, name, err)
	}
}

// change changes an object as a user does.
func change[T client.Object](t *testing.T, e *hubEnv, object T, set func(T)) {
	t.Helper()
	before := object.DeepCopyObject().(client.Object)
	set(object)
	if err := e.Client.Patch(t.Context(), object, client.MergeFrom(before)); err != nil {
		t.Fatalf("changing %T %s: %v", object, object.GetName(), err)
	}
}

// condition waits until a condition has a status and a reason, and returns its message.
func condition[T interface {
	client.Object
	conditions.Getter
}](t *testing.T, e *hubEnv, object T, conditionType string, status metav1.ConditionStatus, reason string) string {
	t.Helper()
	var message string
	until(t, fmt.Sprintf("%T %s to have %s=%s/%s", object, object.GetName(), conditionType, status, reason), func() error {
		if err := e.Client.Get(t.Context(), client.ObjectKeyFromObject(object), object); err != nil {
			return err
		}
		got := meta.FindStatusCondition(object.GetConditions(), conditionType)
		if got == nil || got.Status != status || reason != "" && got.Reason != reason {
			return fmt.Errorf("it has %+v", object.GetConditions())
		}
		message = got.Message
		return nil
	})
	return message
}

// everything lists all objects of a namespace, but what every namespace has and Events.
func (e *hubEnv) everything(t *testing.T, namespace string) []string {
	t.Helper()
	_, lists, err := discovery.NewDiscoveryClientForConfigOrDie(e.Config).ServerGroupsAndResources()
	if err != nil {
		t.Fatal(err)
	}
	reader := metadata.NewForConfigOrDie(e.Config)
	var found []string
	for _, list := range lists {
		for _, resource := range list.APIResources {
			if !resource.Namespaced || strings.Contains(resource.Name, "/") || !strings.Contains(strings.Join(resource.Verbs, ","), "list") || resource.Kind == "Event" {
				continue
			}
			gv, err := schema.ParseGroupVersion(list.GroupVersion)
			if err != nil {
				t.Fatal(err)
			}
			gvr := gv.WithResource(resource.Name)
			objects, err := reader.Resource(gvr).Namespace(namespace).List(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatalf("listing %v: %v", gvr, err)
			}
			for _, object := range objects.Items {
				if object.Name != "kube-root-ca.crt" && (resource.Kind != "ServiceAccount" || object.Name != "default") {
					found = append(found, resource.Kind+" "+object.Name)
				}
			}
		}
	}
	return found
}

func newCluster(namespace, name string) *provisioningv1.Cluster {
	return &provisioningv1.Cluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       provisioningv1.ClusterSpec{KubernetesVersion: "v1.36.3+k3s1", RKEConfig: &provisioningv1.RKEConfig{}},
	}
}
