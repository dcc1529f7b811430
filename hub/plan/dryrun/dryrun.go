// Package dryrun finds out what a change of a cluster's specification would do to the cluster's machines. It works against the hub's API
// with the rights of whoever asks, and runs the code that the hub runs; it writes nothing. What it answers is in hub/plan/preview.
package dryrun

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/controllers/cluster"
	"github.com/drover-dev/drover/hub/controllers/rkecontrolplane"
	"github.com/drover-dev/drover/hub/plan/preview"
	"github.com/drover-dev/drover/hub/plan/release"
	"github.com/drover-dev/drover/hub/plan/rollout"
	"github.com/drover-dev/drover/hub/server/settings"
	"github.com/drover-dev/drover/hub/util/ownership"
)

// Options are what a dry run needs.
type Options struct {
	// Client reads from the API server itself.
	Client client.Client
	// Settings of the hub.
	Settings settings.Settings
	// Releases that the hub knows.
	Releases *release.Catalog
}

// target is a cluster as it is, or as it would be.
type target struct {
	// cluster is nil for a cluster that was written for Cluster API.
	cluster      *provisioningv1.Cluster
	controlPlane *rkev1.RKEControlPlane
}

// Pending tells what a cluster has been asked to be and its machines are not yet.
func (o Options) Pending(ctx context.Context, key client.ObjectKey) (*preview.Report, error) {
	now, err := o.read(ctx, key)
	if err != nil {
		return nil, err
	}
	if now == nil {
		return nil, fmt.Errorf("there is no Cluster %s", key)
	}
	return o.diff(ctx, key, now, now, nil)
}

// Edited tells what would happen if a manifest were applied. It is that of a Cluster, or of an RKEControlPlane where there is none.
func (o Options) Edited(ctx context.Context, manifest []byte) (*preview.Report, error) {
	object, warnings, err := readManifest(manifest)
	if err != nil {
		return nil, err
	}
	if object.GetKind() == "RKEControlPlane" {
		return o.editedControlPlane(ctx, object, warnings)
	}
	key := client.ObjectKeyFromObject(object)
	before, err := o.read(ctx, key)
	if err != nil {
		return nil, err
	}
	after := &target{cluster: &provisioningv1.Cluster{}}
	if err := o.apply(ctx, object, after.cluster); err != nil {
		return nil, err
	}
	if before != nil {
		after.controlPlane = before.controlPlane
	}
	if err := after.derive(); err != nil {
		return nil, err
	}
	return o.diff(ctx, key, before, after, warnings)
}

// read returns nil for a cluster that does not exist.
func (o Options) read(ctx context.Context, key client.ObjectKey) (*target, error) {
	t := &target{cluster: &provisioningv1.Cluster{}, controlPlane: &rkev1.RKEControlPlane{}}
	found, err := o.get(ctx, key, t.cluster)
	if err != nil {
		return nil, err
	}
	if !found || t.cluster.Spec.RKEConfig == nil {
		return o.readPlain(ctx, key)
	}
	if found, err = o.get(ctx, key, t.controlPlane); err != nil {
		return nil, err
	}
	if !found {
		t.controlPlane = nil
	}
	return t, t.derive()
}

// readPlain reads a cluster that was written for Cluster API.
func (o Options) readPlain(ctx context.Context, key client.ObjectKey) (*target, error) {
	capi, controlPlane := &clusterv1.Cluster{}, &rkev1.RKEControlPlane{}
	found, err := o.get(ctx, key, capi)
	ref := capi.Spec.ControlPlaneRef
	if err != nil || !found || ref.APIGroup != rkev1.GroupVersion.Group {
		return nil, err
	}
	if found, err = o.get(ctx, client.ObjectKey{Namespace: key.Namespace, Name: ref.Name}, controlPlane); err != nil || !found {
		return nil, err
	}
	return &target{controlPlane: controlPlane}, nil
}

func (o Options) get(ctx context.Context, key client.ObjectKey, into client.Object) (bool, error) {
	err := o.Client.Get(ctx, key, into)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading %T %s: %w", into, key, err)
	}
	return true, nil
}

// derive makes the RKEControlPlane what the hub would make of the Cluster. What others write into it stays.
func (t *target) derive() error {
	if t.cluster == nil {
		return nil
	}
	wanted, err := cluster.ControlPlane(t.cluster)
	if err != nil {
		return err
	}
	if t.controlPlane == nil {
		t.controlPlane = wanted
		return nil
	}
	made := t.controlPlane.DeepCopy()
	contract := made.Spec.RKEControlPlaneContractSpec
	made.Spec, made.Annotations = wanted.Spec, merge(made.Annotations, wanted.Annotations)
	made.Labels = merge(made.Labels, wanted.Labels)
	made.Spec.RKEControlPlaneContractSpec = contract
	if made.Spec.ManagementClusterName == "" { // that of Rancher is in no annotation before the hub has taken the Cluster over
		made.Spec.ManagementClusterName = t.controlPlane.Spec.ManagementClusterName
	}
	t.controlPlane = made
	return nil
}

func merge(into, from map[string]string) map[string]string {
	out := map[string]string{}
	for _, m := range []map[string]string{into, from} {
		maps.Copy(out, m)
	}
	return out
}

// diff compares. before is nil for a new cluster.
func (o Options) diff(ctx context.Context, key client.ObjectKey, before, after *target, warnings []string) (*preview.Report, error) {
	if after.cluster != nil {
		_, taken, err := ownership.ClusterAPI(ctx, o.Client, after.cluster)
		if err != nil {
			return nil, err
		}
		if taken != nil {
			return nil, fmt.Errorf("the Cluster %s has no machines: %s", key, taken.Message)
		}
	}
	edit, err := poolEdit(before, after)
	if err != nil {
		return nil, err
	}
	c := &dryRunClient{Client: o.Client, edit: edit.apply}
	reconciler := &rkecontrolplane.Reconciler{Client: c, Cache: c, Live: c, Settings: o.Settings, Releases: o.Releases, Now: time.Now}
	found, err := reconciler.Preview(ctx, after.controlPlane)
	if err != nil {
		return nil, err
	}
	report := &preview.Report{Cluster: key.String(), Waiting: found.Wait.Message, Warnings: warnings, Pools: pools(before, after),
		Machines: []preview.Machine{}}
	if held := heldBack(before); held != "" {
		report.Warnings = append(report.Warnings, held)
	}
	for _, p := range found.Problems {
		if p.Fatal {
			report.Problems = append(report.Problems, p.String())
		} else {
			report.Warnings = append(report.Warnings, p.String())
		}
	}
	if found.Wait.Message == "" {
		mask := preview.NewMask([]byte(rand.Text()), found.Secrets, secretPaths(before, after))
		report.Machines = preview.Machines(edit.subjects(found.Machines), report.Pools, mask)
		report.Order = preview.Order(found.Rollout)
		if held := restartsHeldBack(found.Rollout); held != "" {
			report.Warnings = append(report.Warnings, held)
		}
	}
	report.Finish()
	report.Changes = report.Changes || before == nil
	return report, nil
}

// restartsHeldBack says why changes that restart machines would wait, and so have no place in the order; empty if they would not.
func restartsHeldBack(in rollout.Inputs) string {
	if in.Hold == (rollout.Wait{}) {
		return ""
	}
	return fmt.Sprintf("changes that restart machines are held back (%s), and have no order: %s", in.Hold.Reason, in.Hold.Message)
}

// heldBack says why the hub delivers no change at present: the cluster is paused, or what only the hub knows, when it was restored from a
// backup and which Nodes the cluster has.
func heldBack(t *target) string {
	if t == nil || t.controlPlane == nil {
		return ""
	}
	if conditions.IsTrue(t.controlPlane, clusterv1.PausedCondition) {
		return fmt.Sprintf("changes are held back at present (%s): %s", clusterv1.PausedReason,
			conditions.GetMessage(t.controlPlane, clusterv1.PausedCondition))
	}
	ready := conditions.Get(t.controlPlane, rkev1.ReadyCondition)
	if ready == nil || ready.Reason != rollout.ReasonHubRestored && ready.Reason != rollout.ReasonWaitingForConnection {
		return ""
	}
	return fmt.Sprintf("changes are held back at present (%s): %s", ready.Reason, ready.Message)
}

// secretPaths are the paths of the files that come from Secrets.
func secretPaths(targets ...*target) []string {
	var out []string
	for _, t := range targets {
		if t == nil || t.controlPlane == nil {
			continue
		}
		for _, files := range t.controlPlane.Spec.MachineSelectorFiles {
			for _, source := range files.FileSources {
				if source.Secret == nil {
					continue
				}
				for _, item := range source.Secret.Items {
					out = append(out, item.Path)
				}
			}
		}
	}
	return out
}
