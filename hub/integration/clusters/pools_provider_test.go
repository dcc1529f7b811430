package clusters

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
)

// providerKinds are the providers that the test implements, each with a version of its definitions.
var providerKinds = map[string]string{"VSphere": "v1beta1", "AWS": "v1beta2", "Azure": "v1beta1", "Test": "v1beta2"}

// finalizer is set by providers until the machine's host is deleted.
const finalizer = infraGroup + "/test"

// installProviders installs the definitions of all providers, except those that a test installs itself, and starts the providers.
func installProviders(ctx context.Context) error {
	files, err := filepath.Glob("testdata/*-crds.yaml")
	if err != nil {
		return err
	}
	var names []string
	for _, file := range files {
		objects, err := readObjects(file)
		if err != nil {
			return err
		}
		for _, object := range objects {
			if err := env.Client.Create(ctx, object); err != nil {
				return fmt.Errorf("%s: %w", file, err)
			}
			names = append(names, object.GetName())
		}
	}
	for _, name := range names {
		if err := established(ctx, name); err != nil {
			return err
		}
	}
	return provide(ctx)
}

// readObjects reads a file of YAML documents.
func readObjects(file string) ([]*unstructured.Unstructured, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(raw), 4096)
	var objects []*unstructured.Unstructured
	for {
		object := &unstructured.Unstructured{}
		if err := decoder.Decode(&object.Object); errors.Is(err, io.EOF) {
			return objects, nil
		} else if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		objects = append(objects, object)
	}
}

// provide implements all providers until ctx ends: it provisions infrastructure clusters at once, and machines once they have bootstrap
// data.
func provide(ctx context.Context) error {
	c, err := client.NewWithWatch(env.Config, client.Options{})
	if err != nil {
		return err
	}
	for prefix, version := range providerKinds {
		for kind, react := range map[string]func(context.Context, *unstructured.Unstructured) error{
			"Cluster": provideCluster, "Machine": provideMachine,
		} {
			newProvider(ctx, schema.GroupVersionKind{Group: infraGroup, Version: version, Kind: prefix + kind}, react).start(c)
		}
	}
	return nil
}

// provider calls react for every object of a kind after each of its changes, as it is then: of changes that have piled up only the last
// one counts, since an update of what an object was before is a conflict, and another one follows it. Errors are retried.
type provider struct {
	ctx   context.Context
	kind  schema.GroupVersionKind
	react func(context.Context, *unstructured.Unstructured) error
	queue workqueue.TypedRateLimitingInterface[client.ObjectKey]
}

func newProvider(ctx context.Context, kind schema.GroupVersionKind,
	react func(context.Context, *unstructured.Unstructured) error) *provider {
	limit := workqueue.NewTypedItemExponentialFailureRateLimiter[client.ObjectKey](20*time.Millisecond, time.Second)
	return &provider{ctx: ctx, kind: kind, react: react, queue: workqueue.NewTypedRateLimitingQueue(limit)}
}

func (p *provider) start(c client.WithWatch) {
	context.AfterFunc(p.ctx, p.queue.ShutDown)
	for range 4 {
		go func() {
			for key, shutdown := p.queue.Get(); !shutdown; key, shutdown = p.queue.Get() {
				p.handle(key)
			}
		}()
	}
	go func() {
		for p.ctx.Err() == nil {
			if err := p.follow(c); err != nil && p.ctx.Err() == nil {
				fmt.Fprintln(os.Stderr, "a provider:", err)
				time.Sleep(100 * time.Millisecond)
			}
		}
	}()
}

// follow adds the objects of a watch to the queue until it ends; the next one begins with all that there are.
func (p *provider) follow(c client.WithWatch) error {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(p.kind.GroupVersion().WithKind(p.kind.Kind + "List"))
	events, err := c.Watch(p.ctx, list)
	if err != nil {
		return err
	}
	defer events.Stop()
	for event := range events.ResultChan() {
		if object, ok := event.Object.(*unstructured.Unstructured); ok && event.Type != watch.Deleted {
			p.queue.Add(client.ObjectKeyFromObject(object))
		}
	}
	return nil
}

func (p *provider) handle(key client.ObjectKey) {
	defer p.queue.Done(key)
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(p.kind)
	err := env.Client.Get(p.ctx, key, object)
	if err == nil {
		err = p.react(p.ctx, object)
	}
	if client.IgnoreNotFound(err) == nil {
		p.queue.Forget(key)
		return
	}
	if !apierrors.IsConflict(err) && p.ctx.Err() == nil {
		fmt.Fprintln(os.Stderr, "a provider:", err)
	}
	p.queue.AddRateLimited(key)
}

// provided is the status that the contracts v1beta1 and v1beta2 require.
func provided() map[string]any {
	return map[string]any{"ready": true, "initialization": map[string]any{"provisioned": true},
		"addresses": []any{map[string]any{"type": "InternalIP", "address": "192.0.2.1"}}}
}

func provideCluster(ctx context.Context, o *unstructured.Unstructured) error {
	if o.GetDeletionTimestamp() != nil || len(o.GetOwnerReferences()) == 0 || o.Object["status"] != nil {
		return nil
	}
	o.Object["status"] = provided()
	return env.Client.Status().Update(ctx, o)
}

func provideMachine(ctx context.Context, o *unstructured.Unstructured) error {
	if o.GetDeletionTimestamp() != nil {
		if controllerutil.RemoveFinalizer(o, finalizer) {
			return env.Client.Update(ctx, o)
		}
		return nil
	}
	if o.Object["status"] != nil || len(o.GetOwnerReferences()) == 0 {
		return nil
	}
	controllerutil.AddFinalizer(o, finalizer)
	if err := unstructured.SetNestedField(o.Object, "test://"+o.GetName(), "spec", "providerID"); err != nil {
		return err
	}
	if err := env.Client.Update(ctx, o); err != nil {
		return err
	}
	o.Object["status"] = provided()
	return env.Client.Status().Update(ctx, o)
}

// installLate installs a kind of machine template while Clusters that use it exist.
func installLate(t *testing.T) {
	t.Helper()
	objects, err := readObjects("testdata/test-crds.yaml")
	if err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(objects[2])
	if err != nil {
		t.Fatal(err)
	}
	for old, late := range map[string]string{"TestMachine": "LateMachine", "testmachine": "latemachine"} {
		raw = bytes.ReplaceAll(raw, []byte(old), []byte(late))
	}
	crd := &unstructured.Unstructured{}
	if err := json.Unmarshal(raw, &crd.Object); err != nil {
		t.Fatal(err)
	}
	env.Create(t, crd)
	if err := established(t.Context(), crd.GetName()); err != nil {
		t.Fatal(err)
	}
}
