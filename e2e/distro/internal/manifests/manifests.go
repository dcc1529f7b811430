// Package manifests applies files of Kubernetes objects to a cluster, and deletes what a file held before and no longer
// does. An Addon object per file, as k3s has them, remembers what was applied.
package manifests

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	yamlutil "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"
)

var addons = schema.GroupVersionResource{Group: "k3s.cattle.io", Version: "v1", Resource: "addons"}

// Applier applies files.
type Applier struct {
	client dynamic.Interface
	mapper *restmapper.DeferredDiscoveryRESTMapper
	owner  string
}

// NewApplier returns an Applier that owns fields under the given name.
func NewApplier(client dynamic.Interface, disco discovery.DiscoveryInterface, owner string) *Applier {
	return &Applier{client: client, mapper: restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(disco)), owner: owner}
}

// ref names an object.
type ref struct {
	Group, Version, Kind, Namespace, Name string
}

// Apply applies a file. It goes on after a fault, so that one bad object keeps no other from being applied.
func (a *Applier) Apply(ctx context.Context, file string, raw []byte) error {
	objects, err := Split(raw)
	if err != nil {
		return err
	}
	slices.SortStableFunc(objects, func(x, y *unstructured.Unstructured) int { return order(x) - order(y) })
	var faults []error
	var now []ref
	for _, o := range objects {
		r, err := a.applyOne(ctx, o)
		if err != nil {
			faults = append(faults, fmt.Errorf("%s %s: %w", o.GetKind(), o.GetName(), err))
			continue
		}
		now = append(now, r)
	}
	if err := errors.Join(faults...); err != nil {
		return err
	}
	return a.remember(ctx, file, now)
}

func (a *Applier) applyOne(ctx context.Context, o *unstructured.Unstructured) (ref, error) {
	gvk := o.GroupVersionKind()
	resource, err := a.resource(gvk, o.GetNamespace(), o)
	if err != nil {
		return ref{}, err
	}
	raw, err := json.Marshal(o)
	if err != nil {
		return ref{}, err
	}
	force := true
	_, err = resource.Patch(ctx, o.GetName(), types.ApplyPatchType, raw, metav1.PatchOptions{FieldManager: a.owner, Force: &force})
	return ref{gvk.Group, gvk.Version, gvk.Kind, o.GetNamespace(), o.GetName()}, err
}

// resource finds the client of a kind. o, if given, gets the namespace "default" if its kind needs one and it has none.
func (a *Applier) resource(gvk schema.GroupVersionKind, namespace string, o *unstructured.Unstructured) (dynamic.ResourceInterface, error) {
	m, err := a.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	if meta.IsNoMatchError(err) {
		a.mapper.Reset()
		m, err = a.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	}
	if err != nil {
		return nil, err
	}
	if m.Scope.Name() != meta.RESTScopeNameNamespace {
		return a.client.Resource(m.Resource), nil
	}
	if namespace == "" {
		namespace = "default"
	}
	if o != nil {
		o.SetNamespace(namespace)
	}
	return a.client.Resource(m.Resource).Namespace(namespace), nil
}

// remember deletes what an earlier version of the file held and this one does not, and keeps what it holds now.
func (a *Applier) remember(ctx context.Context, file string, now []ref) error {
	name := addonName(file)
	const annotation = "objects.k3s.cattle.io/applied"
	client := a.client.Resource(addons).Namespace("kube-system")
	old, err := client.Get(ctx, name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	if old != nil {
		var before []ref
		_ = json.Unmarshal([]byte(old.GetAnnotations()[annotation]), &before)
		for _, r := range before {
			if slices.Contains(now, r) {
				continue
			}
			resource, err := a.resource(schema.GroupVersionKind{Group: r.Group, Version: r.Version, Kind: r.Kind}, r.Namespace, nil)
			if meta.IsNoMatchError(err) {
				continue
			}
			if err == nil {
				err = resource.Delete(ctx, r.Name, metav1.DeleteOptions{})
			}
			if err != nil && !apierrors.IsNotFound(err) {
				return fmt.Errorf("deleting %s %s, which %s no longer holds: %w", r.Kind, r.Name, file, err)
			}
		}
	}
	raw, err := json.Marshal(now)
	if err != nil {
		return err
	}
	o := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"source": file}}}
	o.SetAPIVersion(addons.GroupVersion().String())
	o.SetKind("Addon")
	o.SetName(name)
	o.SetNamespace("kube-system")
	o.SetAnnotations(map[string]string{annotation: string(raw)})
	_, err = a.applyOne(ctx, o)
	return err
}

// Split reads the objects of a file; lists are taken apart.
func Split(raw []byte) ([]*unstructured.Unstructured, error) {
	var out []*unstructured.Unstructured
	d := yamlutil.NewYAMLOrJSONDecoder(bytes.NewReader(raw), 4096)
	for {
		o := &unstructured.Unstructured{}
		err := d.Decode(&o.Object)
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, err
		}
		if len(o.Object) == 0 {
			continue
		}
		if !o.IsList() {
			out = append(out, o)
			continue
		}
		if err := o.EachListItem(func(item runtime.Object) error {
			out = append(out, item.(*unstructured.Unstructured))
			return nil
		}); err != nil {
			return nil, err
		}
	}
}

// order puts what others need first.
func order(o *unstructured.Unstructured) int {
	switch o.GetKind() {
	case "Namespace", "CustomResourceDefinition":
		return 0
	case "ServiceAccount", "ClusterRole", "Role":
		return 1
	}
	return 2
}

func addonName(file string) string {
	base := filepath.Base(file)
	name := strings.ToLower(strings.TrimSuffix(base, filepath.Ext(base)))
	return strings.Trim(strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-' {
			return r
		}
		return '-'
	}, name), "-")
}
