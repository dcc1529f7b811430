package objects

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// rancherFinalizers are the finalizers of Rancher's controllers on the hub's kinds. Rancher does not run beside a hub: nobody else would
// remove them. They are named one by one, since other programs that are made with the library wrangler have finalizers like these.
var rancherFinalizers = []string{
	"wrangler.cattle.io/cloud-config-secret-remover",
	"wrangler.cattle.io/cluster-registration-token-cleanup",
	"wrangler.cattle.io/machine-provision-remove",
	"wrangler.cattle.io/mgmt-cluster-remove",
	"wrangler.cattle.io/provisioning-cluster-remove",
	"wrangler.cattle.io/rke-bootstrap-etcd-removal",
	"wrangler.cattle.io/rke-cluster-remove",
	"wrangler.cattle.io/rke-control-plane-remove",
	"wrangler.cattle.io/unmanaged-machine",
}

// rancherPrefixes begin the finalizers of all of Rancher's older controllers, and of no other program.
var rancherPrefixes = []string{"controller.cattle.io/", "clusterscoped.controller.cattle.io/"}

// DropRancherFinalizers removes the finalizers of Rancher from an object in memory, and reports whether there were any. Those of an object
// that is not being deleted are left alone: Rancher may be started again instead of the hub.
func DropRancherFinalizers(object client.Object) bool {
	if object.GetDeletionTimestamp().IsZero() {
		return false
	}
	before := object.GetFinalizers()
	kept := slices.DeleteFunc(slices.Clone(before), ofRancher)
	object.SetFinalizers(kept)
	return len(kept) < len(before)
}

func ofRancher(finalizer string) bool {
	return slices.Contains(rancherFinalizers, finalizer) ||
		slices.ContainsFunc(rancherPrefixes, func(prefix string) bool { return strings.HasPrefix(finalizer, prefix) })
}

// HeldByRancher reports whether an object has finalizers of Rancher. One that was deleted before the hub could set its own has no other,
// and is as much for the hub to remove.
func HeldByRancher(object client.Object) bool {
	return slices.ContainsFunc(object.GetFinalizers(), ofRancher)
}

// ReleaseFromRancher removes the finalizers of Rancher from an object of the hub that is being deleted. Without it, a Machine that Rancher
// has made would never be gone. The object, which may be the cache's own, stays as it is.
func ReleaseFromRancher(ctx context.Context, c client.Writer, object client.Object, owner client.FieldOwner) error {
	released := object.DeepCopyObject().(client.Object)
	if !DropRancherFinalizers(released) {
		return nil
	}
	patch := client.MergeFromWithOptions(object, client.MergeFromWithOptimisticLock{})
	if err := c.Patch(ctx, released, patch, owner); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("removing the finalizers of Rancher from %s %s: %w", KindOf(object), name(client.ObjectKeyFromObject(object)), err)
	}
	return nil
}
