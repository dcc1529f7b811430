package cluster

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/util/objects"
)

// rancherManager is the manager of what Rancher has written.
const rancherManager = "rancher"

// takeSpec takes the fields of an RKEControlPlane from Rancher, which has written them, and applies it again: server-side apply removes no
// field that somebody else owns as well, so that what a user removes from the Cluster, or sets to false, would stay as it was. applied is
// the result of a request, and then that of the second one; what comes from the cache has no managed fields, and was looked at before.
func (r *Reconciler) takeSpec(ctx context.Context, cluster *provisioningv1.Cluster, applied *rkev1.RKEControlPlane) error {
	entries, err := withoutRancher(applied.ManagedFields)
	if err != nil || entries == nil {
		return err
	}
	if err := r.writeManagers(ctx, cluster, applied, entries); err != nil {
		return err
	}
	desired, err := ControlPlane(cluster)
	if err != nil {
		return err
	}
	if err := r.ssa.Apply(ctx, client.ObjectKeyFromObject(cluster), desired); err != nil {
		return err
	}
	desired.DeepCopyInto(applied)
	return nil
}

// withoutRancher returns managed fields in which this controller owns what Rancher owns of the specification; nil if Rancher owns nothing
// of it. Rancher's metadata stays its own, and so does spec.unmanagedConfig, which a Cluster does not have.
func withoutRancher(entries []metav1.ManagedFieldsEntry) ([]metav1.ManagedFieldsEntry, error) {
	of := func(manager string, operation metav1.ManagedFieldsOperationType) int {
		return slices.IndexFunc(entries, func(e metav1.ManagedFieldsEntry) bool {
			return e.Manager == manager && e.Operation == operation && e.Subresource == "" && e.APIVersion == rkev1.GroupVersion.String()
		})
	}
	own, rancher := of(string(fieldOwner), metav1.ManagedFieldsOperationApply), of(rancherManager, metav1.ManagedFieldsOperationUpdate)
	if own < 0 || rancher < 0 {
		return nil, nil
	}
	ofOwn, err := decodeFields(entries[own])
	if err != nil {
		return nil, err
	}
	ofRancher, err := decodeFields(entries[rancher])
	if err != nil {
		return nil, err
	}
	spec := fieldpath.NewSet()
	for path := range ofRancher.All() {
		if len(path) > 1 && isField(path[0], "spec") && !isField(path[1], "unmanagedConfig") {
			spec.Insert(path.Copy())
		}
	}
	if spec.Empty() {
		return nil, nil
	}
	out := slices.Clone(entries)
	if out[own].FieldsV1, err = encodeFields(ofOwn.Union(spec)); err != nil {
		return nil, err
	}
	left := ofRancher.Difference(spec)
	if left.Empty() {
		return slices.Delete(out, rancher, rancher+1), nil
	}
	out[rancher].FieldsV1, err = encodeFields(left)
	return out, err
}

// takePool takes the fields of the MachineDeployment of a pool from Rancher, as takeSpec does, and reports whether it has to be applied
// again.
func (r *Reconciler) takePool(ctx context.Context, cluster *provisioningv1.Cluster, applied *clusterv1.MachineDeployment) (bool, error) {
	entries, err := poolWithoutRancher(applied.ManagedFields)
	if err != nil || entries == nil {
		return false, err
	}
	return true, r.writeManagers(ctx, cluster, applied, entries)
}

// writeManagers writes who owns the fields of an object of a Cluster, and has all objects applied again: also where it fails, since the
// next reconcile has to see who owns them.
func (r *Reconciler) writeManagers(
	ctx context.Context, cluster *provisioningv1.Cluster, applied client.Object, entries []metav1.ManagedFieldsEntry,
) error {
	r.ssa.Forget(client.ObjectKeyFromObject(cluster))
	taken := applied.DeepCopyObject().(client.Object)
	taken.SetManagedFields(entries)
	locked := client.MergeFromWithOptions(applied, client.MergeFromWithOptimisticLock{})
	if err := r.Client.Patch(ctx, taken, locked, fieldOwner); err != nil {
		return fmt.Errorf("taking over the fields of %s %s: %w", objects.KindOf(applied), client.ObjectKeyFromObject(applied), err)
	}
	return nil
}

// poolWithoutRancher returns managed fields in which Rancher owns nothing of the specification, and nothing that this controller owns too;
// nil if that is so already. Rancher has written the specification in an earlier version of Cluster API, in which most fields have other
// names: they become nobody's, but for the annotations of the template, which this controller owns then.
func poolWithoutRancher(entries []metav1.ManagedFieldsEntry) ([]metav1.ManagedFieldsEntry, error) {
	own := slices.IndexFunc(entries, func(e metav1.ManagedFieldsEntry) bool {
		return e.Manager == string(fieldOwner) && e.Operation == metav1.ManagedFieldsOperationApply && e.Subresource == ""
	})
	if own < 0 {
		return nil, nil
	}
	ofOwn, err := decodeFields(entries[own])
	if err != nil {
		return nil, err
	}
	out, taken, changed := slices.Clone(entries), fieldpath.NewSet(), false
	for i, e := range out {
		if e.Manager != rancherManager || e.Operation != metav1.ManagedFieldsOperationUpdate || e.Subresource != "" {
			continue
		}
		ofRancher, err := decodeFields(e)
		if err != nil {
			return nil, err
		}
		spec := fieldpath.NewSet()
		for path := range ofRancher.All() {
			if !isField(path[0], "spec") {
				continue
			}
			spec.Insert(path.Copy())
			if len(path) > 4 && isField(path[1], "template") && isField(path[2], "metadata") && isField(path[3], "annotations") {
				taken.Insert(path.Copy())
			}
		}
		left := ofRancher.Difference(spec).Difference(ofOwn)
		if left.Equals(ofRancher) {
			continue
		}
		changed = true
		out[i].FieldsV1 = nil
		if left.Empty() {
			continue
		}
		if out[i].FieldsV1, err = encodeFields(left); err != nil {
			return nil, err
		}
	}
	if !changed {
		return nil, nil
	}
	if out[own].FieldsV1, err = encodeFields(ofOwn.Union(taken)); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(out, func(e metav1.ManagedFieldsEntry) bool { return e.FieldsV1 == nil }), nil
}

func isField(element fieldpath.PathElement, name string) bool {
	return element.FieldName != nil && *element.FieldName == name
}

func decodeFields(e metav1.ManagedFieldsEntry) (*fieldpath.Set, error) {
	set := fieldpath.NewSet()
	if err := set.FromJSON(bytes.NewReader(e.FieldsV1.GetRawBytes())); err != nil {
		return nil, fmt.Errorf("decoding the managed fields of %s: %w", e.Manager, err)
	}
	return set, nil
}

func encodeFields(set *fieldpath.Set) (*metav1.FieldsV1, error) {
	raw, err := set.ToJSON()
	if err != nil {
		return nil, fmt.Errorf("encoding managed fields: %w", err)
	}
	return metav1.NewFieldsV1(string(raw)), nil
}
