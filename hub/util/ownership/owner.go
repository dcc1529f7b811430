package ownership

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/util/cause"
	"github.com/drover-dev/drover/hub/util/objects"
)

// OfCluster returns why an RKEControlPlane or RKECluster does not belong to a Cluster; nil if it does.
func OfCluster(object client.Object, cluster *clusterv1.Cluster) *cause.Cause {
	switch object.(type) {
	case *rkev1.RKEControlPlane:
		return compare(object, cluster, link{"Cluster", "spec.controlPlaneRef", "RKEControlPlane", cluster.Spec.ControlPlaneRef})
	case *rkev1.RKECluster:
		return compare(object, cluster, link{"Cluster", "spec.infrastructureRef", "RKECluster", cluster.Spec.InfrastructureRef})
	}
	return unknown(object)
}

// OfMachine returns why an RKEBootstrap or CustomMachine does not belong to a Machine; nil if it does.
func OfMachine(object client.Object, machine *clusterv1.Machine) *cause.Cause {
	switch object.(type) {
	case *rkev1.RKEBootstrap:
		return compare(object, machine, link{"Machine", "spec.bootstrap.configRef", "RKEBootstrap", machine.Spec.Bootstrap.ConfigRef})
	case *rkev1.CustomMachine:
		return compare(object, machine, link{"Machine", "spec.infrastructureRef", "CustomMachine", machine.Spec.InfrastructureRef})
	}
	return unknown(object)
}

// Cluster returns the Cluster that an RKEControlPlane or RKECluster belongs to. It is nil without a Cause while the object names none, or
// one that does not exist.
func Cluster(ctx context.Context, from client.Reader, object client.Object) (*clusterv1.Cluster, *cause.Cause, error) {
	return owner(ctx, from, object, "Cluster", OfCluster)
}

// Machine returns the Machine that an RKEBootstrap or CustomMachine belongs to. It is nil without a Cause while the object names none, or
// one that does not exist.
func Machine(ctx context.Context, from client.Reader, object client.Object) (*clusterv1.Machine, *cause.Cause, error) {
	return owner(ctx, from, object, "Machine", OfMachine)
}

// pointer is *O where that is an object.
type pointer[O any] interface {
	*O
	client.Object
}

// owner tries all owner references: another one that a user added must not hide the right one.
func owner[O any, P pointer[O]](ctx context.Context, from client.Reader, object client.Object, kind string, of func(client.Object,
	P) *cause.Cause) (P, *cause.Cause, error) {
	var refusal *cause.Cause
	for _, ref := range object.GetOwnerReferences() {
		if !names(ref, kind) {
			continue
		}
		found := P(new(O))
		exists, err := objects.Get(ctx, from, client.ObjectKey{Namespace: object.GetNamespace(), Name: ref.Name}, found)
		if err != nil {
			return nil, nil, err
		}
		if !exists {
			continue
		}
		if refusal = of(object, found); refusal == nil {
			return found, nil, nil
		}
	}
	return nil, refusal, nil
}

// names reports whether an owner reference is to a kind of Cluster API, of whichever version.
func names(ref metav1.OwnerReference, kind string) bool {
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	return err == nil && gv.Group == clusterv1.GroupVersion.Group && ref.Kind == kind
}

// link is how an owner names what it owns.
type link struct {
	ownerKind, field, kind string
	ref                    clusterv1.ContractVersionedObjectReference
}

func compare(object, owner client.Object, l link) *cause.Cause {
	this := fmt.Sprintf("%s %s", l.kind, object.GetName())
	that := fmt.Sprintf("%s %s", l.ownerKind, owner.GetName())
	if object.GetNamespace() != owner.GetNamespace() || !rkev1.Refers(l.ref, l.kind) || l.ref.Name != object.GetName() {
		named := "nothing"
		if l.ref.Name != "" {
			named = l.ref.Kind + " " + l.ref.Name
		}
		return cause.New(ReasonOwnerMismatch, "metadata.ownerReferences of %s names %s, whose %s names %s; "+
			"remove the owner reference, or name %s in %s", this, that, l.field, named, this, l.field)
	}
	var stale *metav1.OwnerReference
	for _, ref := range object.GetOwnerReferences() {
		if !names(ref, l.ownerKind) || ref.Name != owner.GetName() {
			continue
		}
		if ref.UID == owner.GetUID() {
			return nil
		}
		stale = &ref
	}
	if stale == nil {
		return cause.New(ReasonOwnerMismatch, "%s of %s names %s, which has no owner reference to it yet", l.field, that, this)
	}
	return cause.New(ReasonOwnerMismatch, "metadata.ownerReferences of %s names %s with UID %s, but its UID is %s; "+
		"waiting for Cluster API to correct the owner reference", this, that, stale.UID, owner.GetUID())
}

func unknown(object client.Object) *cause.Cause {
	return cause.New(ReasonOwnerMismatch, "%T is not owned by objects of Cluster API", object)
}
