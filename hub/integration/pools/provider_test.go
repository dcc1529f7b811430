package pools

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
)

const infraGroup = "infrastructure.cluster.x-k8s.io"

// providerKinds are what the providers of the test look after, each in a version that its definition serves.
var providerKinds = map[string]string{"VSphere": "v1beta1", "AWS": "v1beta2", "Azure": "v1beta1", "Test": "v1beta2"}

// finalizer is by which a provider holds its machines until their hosts are gone.
const finalizer = infraGroup + "/test"

// installProviders installs the definitions of all providers but those that a test installs itself, and starts the providers.
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
	go provide(ctx)
	return nil
}

func established(ctx context.Context, name string) error {
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := env.Client.Get(ctx, client.ObjectKey{Name: name}, crd); err != nil {
			return err
		}
		if slices.ContainsFunc(crd.Status.Conditions, func(c apiextensionsv1.CustomResourceDefinitionCondition) bool {
			return c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue
		}) {
			return nil
		}
	}
	return fmt.Errorf("the definition %s is not served", name)
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

// provide plays all providers until ctx ends: infrastructure clusters are provisioned at once, and so are machines that have bootstrap
// data.
func provide(ctx context.Context) {
	for ctx.Err() == nil {
		for prefix, version := range providerKinds {
			for kind, provide := range map[string]func(context.Context, *unstructured.Unstructured) error{
				"Cluster": provideCluster, "Machine": provideMachine,
			} {
				list := &unstructured.UnstructuredList{}
				list.SetGroupVersionKind(schema.GroupVersionKind{Group: infraGroup, Version: version, Kind: prefix + kind + "List"})
				if err := env.Client.List(ctx, list); err != nil {
					continue
				}
				for i := range list.Items {
					if err := provide(ctx, &list.Items[i]); err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) && ctx.Err() == nil {
						fmt.Fprintln(os.Stderr, "a provider:", err)
					}
				}
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// provided is what the contracts v1beta1 and v1beta2 want to read.
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

// installLate installs a kind of machine template that no Cluster could use before.
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
