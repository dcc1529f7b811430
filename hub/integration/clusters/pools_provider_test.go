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
			list := &unstructured.UnstructuredList{}
			list.SetGroupVersionKind(schema.GroupVersionKind{Group: infraGroup, Version: version, Kind: prefix + kind + "List"})
			go func() {
				for ctx.Err() == nil {
					follow(ctx, c, list, react)
				}
			}()
		}
	}
	return nil
}

// follow calls react for every object of a kind and each of its changes, until the watch ends or react returns an error; the next watch
// retries. A conflict is ignored, since another change follows.
func follow(ctx context.Context, c client.WithWatch, list *unstructured.UnstructuredList,
	react func(context.Context, *unstructured.Unstructured) error) {
	events, err := c.Watch(ctx, list)
	if err == nil {
		defer events.Stop()
		for event := range events.ResultChan() {
			object, ok := event.Object.(*unstructured.Unstructured)
			if !ok || event.Type == watch.Deleted {
				continue
			}
			if err = react(ctx, object); apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
				err = nil
			} else if err != nil {
				break
			}
		}
	}
	if err != nil && ctx.Err() == nil {
		fmt.Fprintln(os.Stderr, "a provider:", err)
		time.Sleep(100 * time.Millisecond)
	}
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
