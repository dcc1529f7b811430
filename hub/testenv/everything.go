package testenv

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
)

// thing is an object of any kind.
type thing struct {
	resource   schema.GroupVersionResource
	kind, name string
}

func (o thing) String() string { return o.kind + " " + o.name }

// Left waits until only these objects are left in a namespace, each "Kind name". It lists the namespace again only when all that it has
// found is gone: a look at everything costs a request for each kind that there is.
func (e *Env) Left(t *testing.T, namespace string, want ...string) {
	t.Helper()
	reader := metadata.NewForConfigOrDie(e.Config)
	for {
		found := e.everything(t, namespace)
		for _, name := range want {
			if !slices.ContainsFunc(found, func(o thing) bool { return o.String() == name }) {
				t.Errorf("%s is gone; there are %v", name, found)
			}
		}
		found = slices.DeleteFunc(found, func(o thing) bool { return slices.Contains(want, o.String()) })
		if len(found) == 0 {
			return
		}
		for _, object := range found {
			Until(t, object.String()+" to be gone", func() error {
				got, err := reader.Resource(object.resource).Namespace(namespace).Get(t.Context(), object.name, metav1.GetOptions{})
				if apierrors.IsNotFound(err) {
					return nil
				}
				if err != nil {
					return err
				}
				return fmt.Errorf("it is still there: deleted at %v, finalizers %v, owners %+v",
					got.DeletionTimestamp, got.Finalizers, got.OwnerReferences)
			})
		}
	}
}

// everything lists all objects of a namespace, but what every namespace has and Events. It looks again while kinds
// are installed or removed: one of them may be announced and not served.
func (e *Env) everything(t *testing.T, namespace string) (found []thing) {
	t.Helper()
	Until(t, "a list of everything in "+namespace, func() (err error) {
		found, err = e.list(t, namespace)
		return err
	})
	return found
}

func (e *Env) list(t *testing.T, namespace string) (found []thing, err error) {
	t.Helper()
	lists, err := discovery.NewDiscoveryClientForConfigOrDie(e.Config).ServerPreferredNamespacedResources()
	if err != nil {
		return nil, err
	}
	reader := metadata.NewForConfigOrDie(e.Config)
	for _, list := range lists {
		for _, resource := range list.APIResources {
			if !slices.Contains(resource.Verbs, "list") || strings.Contains(resource.Name, "/") || resource.Kind == "Event" {
				continue
			}
			gv, err := schema.ParseGroupVersion(list.GroupVersion)
			if err != nil {
				return nil, err
			}
			gvr := gv.WithResource(resource.Name)
			objects, err := reader.Resource(gvr).Namespace(namespace).List(t.Context(), metav1.ListOptions{})
			if err != nil {
				return nil, fmt.Errorf("listing %v: %w", gvr, err)
			}
			for _, object := range objects.Items {
				if object.Name != "kube-root-ca.crt" && (resource.Kind != "ServiceAccount" || object.Name != "default") {
					found = append(found, thing{gvr, resource.Kind, object.Name})
				}
			}
		}
	}
	return found, nil
}
