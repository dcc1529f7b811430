package bootstrap

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

// nameTakenError says that an object of the machine's identity exists and is somebody else's. It is not taken over: whoever made it could have
// put a plan of his own into it, or hold tokens of it.
type nameTakenError struct {
	kind string
	key  client.ObjectKey
}

func (e *nameTakenError) Error() string {
	return fmt.Sprintf("%s %s exists and was not made for this RKEBootstrap: none of its owner references names it; delete the %s, and the hub makes its own", e.kind, e.key, e.kind)
}

// applyOwned makes an object of an RKEBootstrap, or brings the one that is there up to date if it is this RKEBootstrap's.
func (r *Reconciler) applyOwned(ctx context.Context, bootstrap *rkev1.RKEBootstrap, object client.Object) error {
	kind, err := apiutil.GVKForObject(object, r.Client.Scheme())
	if err != nil {
		return fmt.Errorf("finding the kind of %T: %w", object, err)
	}
	found, err := r.metadata(ctx, kind, client.ObjectKeyFromObject(object))
	if err != nil {
		return err
	}
	if found == nil {
		// Server-side apply takes over what is there, so that the object is created first, with what cannot be added later.
		found, err = r.createBare(ctx, kind, object)
		if err != nil {
			return err
		}
	}
	if !bootstrap.Owns(found) {
		return &nameTakenError{kind.Kind, client.ObjectKeyFromObject(object)}
	}
	object.SetUID(found.GetUID())
	return r.keeper.Object(ctx, object)
}

// forget drops what is remembered of the objects of an RKEBootstrap that is gone.
func (r *Reconciler) forget(bootstrap client.ObjectKey) error {
	meta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: bootstrap.Namespace, Name: name}
	}
	plan, join := rkev1.PlanSecretName(bootstrap.Name), rkev1.BootstrapServiceAccountName(bootstrap.Name)
	return r.keeper.Forget(
		&corev1.Secret{ObjectMeta: meta(plan)}, &corev1.Secret{ObjectMeta: meta(rkev1.PlanTokenSecretName(bootstrap.Name))}, &corev1.ServiceAccount{ObjectMeta: meta(plan)},
		&corev1.Secret{ObjectMeta: meta(rkev1.BootstrapSecretName(bootstrap.Name))}, &corev1.Secret{ObjectMeta: meta(rkev1.BootstrapTokenSecretName(bootstrap.Name))},
		&corev1.ServiceAccount{ObjectMeta: meta(join)},
	)
}

// createBare creates an object without its labels and annotations, which are applied afterwards: what a request sets that creates, no apply
// takes away again. Where somebody else was faster, that object is returned.
func (r *Reconciler) createBare(ctx context.Context, kind schema.GroupVersionKind, object client.Object) (client.Object, error) {
	bare, ok := object.DeepCopyObject().(client.Object)
	if !ok {
		return nil, fmt.Errorf("copying %T: it is no object", object)
	}
	bare.SetLabels(nil)
	bare.SetAnnotations(nil)
	err := r.Client.Create(ctx, bare, fieldOwner)
	if apierrors.IsAlreadyExists(err) {
		found := &metav1.PartialObjectMetadata{}
		found.SetGroupVersionKind(kind)
		if err := r.Live.Get(ctx, client.ObjectKeyFromObject(object), found); err != nil {
			return nil, fmt.Errorf("reading %s %s: %w", kind.Kind, object.GetName(), err)
		}
		return found, nil
	}
	if err != nil {
		return nil, fmt.Errorf("creating %s %s: %w", kind.Kind, object.GetName(), err)
	}
	return bare, nil
}

// metadata reads the metadata of an object from the cache; nil where there is none.
func (r *Reconciler) metadata(ctx context.Context, kind schema.GroupVersionKind, key client.ObjectKey) (client.Object, error) {
	found := &metav1.PartialObjectMetadata{}
	found.SetGroupVersionKind(kind)
	err := r.Cache.Get(ctx, key, found)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading %s %s: %w", kind.Kind, key, err)
	}
	return found, nil
}

// removeRole takes away the right to the plan Secret that earlier versions, and other hubs, gave to the machine's ServiceAccount in the
// Kubernetes API: past the gateway, a machine could write its own plan, and marks that other machines follow. A Role that somebody else made
// stays.
func (r *Reconciler) removeRole(ctx context.Context, bootstrap *rkev1.RKEBootstrap) error {
	key := client.ObjectKey{Namespace: bootstrap.Namespace, Name: rkev1.PlanSecretName(bootstrap.Name)}
	for _, kind := range []string{"RoleBinding", "Role"} {
		found, err := r.metadata(ctx, rbacv1.SchemeGroupVersion.WithKind(kind), key)
		if err != nil {
			return err
		}
		if found == nil || !bootstrap.Owns(found) {
			continue
		}
		uid := found.GetUID()
		if err := r.Client.Delete(ctx, found, client.Preconditions{UID: &uid}); client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
			return fmt.Errorf("deleting %s %s: %w", kind, key, err)
		}
	}
	return nil
}
