package rkebootstrap

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
	"github.com/drover-dev/drover/hub/util/objects"
)

// nameTakenError says that an object of the name of one of the machine's exists and belongs to something else. It is not taken over: its
// creator could have written a plan to it, or have a token of it.
type nameTakenError struct {
	kind string
	key  client.ObjectKey
}

func (e *nameTakenError) Error() string {
	return fmt.Sprintf("%s %s exists and does not belong to this RKEBootstrap: none of its owner references names it; delete the %s, and "+
		"the hub creates its own", e.kind, e.key, e.kind)
}

// applyOwned creates an object of an RKEBootstrap, or updates the existing one if the RKEBootstrap owns it; else it returns a
// *nameTakenError.
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
		if pending, err := r.ssa.Pending(ctx, client.ObjectKeyFromObject(bootstrap), object); pending || err != nil {
			return err
		}
		// Server-side apply takes over what is there, so that the object is created first.
		if found, err = r.create(ctx, bootstrap, kind, object); err != nil || found == object {
			return err
		}
	}
	if !bootstrap.Owns(found) {
		return &nameTakenError{kind.Kind, client.ObjectKeyFromObject(object)}
	}
	object.SetUID(found.GetUID())
	return r.ssa.Apply(ctx, client.ObjectKeyFromObject(bootstrap), object)
}

// create creates an object, and returns it if nothing is left to apply. If the object was created meanwhile, that one is returned.
//
// Fields that were set by a create request are not removed by a later apply. Of a plan Secret with labels or annotations that its
// RKEBootstrap may lose, only what cannot be added later is created.
func (r *Reconciler) create(ctx context.Context, bootstrap *rkev1.RKEBootstrap, kind schema.GroupVersionKind,
	object client.Object) (client.Object, error) {
	created := object
	var err error
	if secret, ok := object.(*corev1.Secret); ok && secret.Type == rkev1.MachinePlanSecretType && !keepsMetadata(secret) {
		bare := secret.DeepCopy()
		bare.Labels, bare.Annotations, bare.Data = nil, nil, nil
		created, err = bare, r.Client.Create(ctx, bare, fieldOwner)
	} else {
		err = r.ssa.Create(ctx, client.ObjectKeyFromObject(bootstrap), object)
	}
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
	return created, nil
}

// metadata reads the metadata of an object from the cache; nil if it does not exist.
func (r *Reconciler) metadata(ctx context.Context, kind schema.GroupVersionKind, key client.ObjectKey) (client.Object, error) {
	found := &metav1.PartialObjectMetadata{}
	found.SetGroupVersionKind(kind)
	if exists, err := objects.Get(ctx, r.Cache, key, found); err != nil || !exists {
		return nil, err
	}
	return found, nil
}

// removeRole deletes the Role for the plan Secret that earlier hubs, and Rancher, gave to the machine's ServiceAccount in the Kubernetes
// API: with it a machine could bypass the gateway and write its own plan, or annotations that affect other machines. A Role of another
// owner stays.
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
		err = objects.Delete(ctx, r.Client, found, client.Preconditions{UID: new(found.GetUID())})
		if err != nil && !apierrors.IsConflict(err) {
			return err
		}
	}
	return nil
}
