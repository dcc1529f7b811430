package ssa_test

import (
	"context"
	"errors"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/testenv/fakeclient"
	"github.com/drover-dev/drover/hub/util/ssa"
)

var errLost = errors.New("the answer is lost")

// clientTest applies objects of a kind with a Client. The API server is controller-runtime's.
type clientTest struct {
	*testing.T
	apiVersion, kind string
	server           client.Client
	requests         *int
	// lost loses the answers of applies.
	lost bool
	ssa.Client
}

func newClientTest(t *testing.T, apiVersion, kind string) *clientTest {
	c := &clientTest{T: t, apiVersion: apiVersion, kind: kind}
	server := fake.NewClientBuilder().WithScheme(fakeclient.Scheme(t, rkev1.AddToScheme)).WithInterceptorFuncs(interceptor.Funcs{
		Apply: func(ctx context.Context, server client.WithWatch, o runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
			if err := server.Apply(ctx, o, opts...); err != nil || !c.lost {
				return err
			}
			return errLost
		},
	}).Build()
	c.server, c.requests = fakeclient.CountApplies(server)
	c.Client = ssa.NewClient(c.server, nil)
	return c
}

func (c *clientTest) object(labels map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{"apiVersion": c.apiVersion, "kind": c.kind,
		"metadata": map[string]any{"namespace": applied.Namespace, "name": applied.Name, "labels": labels, "finalizers": []any{"keep"}}}}
}

func (c *clientTest) patch(by client.Client, body string) {
	c.Helper()
	if err := by.Patch(c.Context(), c.object(nil), client.RawPatch(types.MergePatchType, []byte(body))); err != nil {
		c.Fatal(err)
	}
}

// apply applies the object with labels, and fails the test unless that takes so many requests and gives what is stored.
func (c *clientTest) apply(what string, labels map[string]any, requests int, opts ...client.ApplyOption) {
	c.Helper()
	*c.requests = 0
	object := c.object(labels)
	opts = append([]client.ApplyOption{client.FieldOwner("one"), client.ForceOwnership}, opts...)
	err := c.Apply(c.Context(), client.ApplyConfigurationFromUnstructured(object), opts...)
	if *c.requests != requests {
		c.Errorf("%s: %d requests, want %d", what, *c.requests, requests)
	}
	if c.lost {
		if !errors.Is(err, errLost) {
			c.Errorf("%s: %v", what, err)
		}
		return
	}
	if err != nil {
		c.Fatal(err)
	}
	stored := c.object(nil)
	if err := c.server.Get(c.Context(), applied, stored); err != nil {
		c.Fatal(err)
	}
	if object.GetResourceVersion() != stored.GetResourceVersion() || object.GetKind() != c.kind || object.GetUID() != stored.GetUID() {
		c.Errorf("%s: the result is %v, stored is %v", what, object, stored)
	}
	for _, label := range []string{"a", "b"} {
		wanted, _ := labels[label].(string)
		if stored.GetLabels()[label] != wanted || object.GetLabels()[label] != wanted {
			c.Errorf("%s: label %s is %q in the result, and %q stored; want %q", what, label, object.GetLabels()[label],
				stored.GetLabels()[label], wanted)
		}
	}
}

// TestClient: what another controller applies is sent once, also by another field owner, and again when something of it has changed.
func TestClient(t *testing.T) {
	for name, kind := range map[string]struct{ apiVersion, kind string }{
		"kind of the scheme": {rkev1.GroupVersion.String(), "RKEBootstrap"},
		"other kind":         {"infrastructure.example.com/v1", "ExampleMachine"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newClientTest(t, kind.apiVersion, kind.kind)
			a, b, both := map[string]any{"a": "1"}, map[string]any{"b": "1"}, map[string]any{"a": "1", "b": "1"}
			c.apply("new", a, 1)
			c.apply("same", a, 0)
			c.apply("dry run", a, 1, client.DryRunAll)
			c.apply("another owner", a, 1, client.FieldOwner("two"))
			c.apply("same of another owner", a, 0, client.FieldOwner("two"))
			c.patch(c.server, `{"status":{"ready":true},"metadata":{"finalizers":["keep","theirs"]}}`)
			c.apply("others have changed what is not applied", a, 0)
			c.patch(c.server, `{"metadata":{"labels":{"a":"theirs"}}}`)
			c.apply("others have changed what is applied", a, 1)
			c.patch(c.server, `{"metadata":{"finalizers":["theirs"]}}`)
			c.apply("others have removed the finalizer", a, 1)
			c.apply("one more label", both, 1)
			c.apply("one label less", a, 1)
			c.patch(c.Client, `{"metadata":{"annotations":{"a":"b"}}}`)
			c.apply("after a patch by the same client", a, 1)
			c.apply("same after a patch", a, 0)
			c.Forget(applied)
			c.apply("forgotten", a, 1)
			if err := c.server.Delete(t.Context(), c.object(nil)); err != nil {
				t.Fatal(err)
			}
			c.patch(c.server, `{"metadata":{"finalizers":null}}`)
			c.apply("deleted", b, 1)
		})
	}
}

// TestClientPatchOfAnotherKind: a patch of an object is none of another object of its name.
func TestClientPatchOfAnotherKind(t *testing.T) {
	c := newClientTest(t, rkev1.GroupVersion.String(), "RKEBootstrap")
	labels := map[string]any{"a": "1"}
	c.apply("new", labels, 1)
	c.apiVersion, c.kind = "infrastructure.example.com/v1", "ExampleMachine"
	c.apply("new, of another kind", labels, 1)
	c.patch(c.Client, `{"metadata":{"annotations":{"a":"b"}}}`)
	c.apply("after its patch", labels, 1)
	c.apiVersion, c.kind = rkev1.GroupVersion.String(), "RKEBootstrap"
	c.apply("after the patch of another kind", labels, 0)
}

// TestClientLostAnswer: a request that fails may have been served, so that what was applied before is not what there is.
func TestClientLostAnswer(t *testing.T) {
	c := newClientTest(t, "infrastructure.example.com/v1", "ExampleMachine")
	a, both := map[string]any{"a": "1"}, map[string]any{"a": "1", "b": "1"}
	c.apply("new", a, 1)
	c.lost = true
	c.apply("one more label", both, 1)
	c.lost = false
	c.apply("as before", a, 1)
}
