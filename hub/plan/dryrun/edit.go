package dryrun

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/controllers/cluster/pool"
	"github.com/drover-dev/drover/hub/controllers/rkecontrolplane"
	"github.com/drover-dev/drover/hub/plan/preview"
)

// edits are what Cluster API would carry from the pools' templates to the Machines and RKEBootstraps that are there, by pool.
type edits map[string]poolChange

// poolChange is the metadata of a pool's machines, as it is and as it would be.
type poolChange struct {
	was, is clusterv1.ObjectMeta
}

func poolEdit(before, after *target) (edits, error) {
	out := edits{}
	was, is := poolsOf(before), poolsOf(after)
	for name := range was {
		if is[name] == nil {
			continue
		}
		a, err := pool.MachineDeployment(before.cluster, was[name], pool.Templates{})
		if err != nil {
			return nil, err
		}
		if pool.ValidateRoles(is[name], a) != "" {
			continue // the pool stays as it is
		}
		b, err := pool.MachineDeployment(after.cluster, is[name], pool.Templates{})
		if err != nil {
			return nil, err
		}
		out[name] = poolChange{a.Spec.Template.ObjectMeta, b.Spec.Template.ObjectMeta}
	}
	return out, nil
}

// apply changes labels and annotations of a pool's machine.
func (e edits) apply(object client.Object) {
	switch object.(type) {
	case *clusterv1.Machine, *rkev1.RKEBootstrap:
	default:
		return
	}
	change, ok := e[object.GetLabels()[rkev1.MachinePoolNameLabel]]
	if !ok {
		return
	}
	object.SetLabels(applyChange(object.GetLabels(), change.was.Labels, change.is.Labels))
	object.SetAnnotations(applyChange(object.GetAnnotations(), change.was.Annotations, change.is.Annotations))
}

// applyChange removes what was there and adds what is to be there.
func applyChange(values, was, is map[string]string) map[string]string {
	out := merge(values, nil)
	for key := range was {
		delete(out, key)
	}
	return merge(out, is)
}

// subjects are the machines with the labels and taints that their Nodes would lose and get.
func (e edits) subjects(machines []rkecontrolplane.PreviewedMachine) []preview.Subject {
	out := make([]preview.Subject, 0, len(machines))
	for _, m := range machines {
		s := preview.Subject{Name: m.Name, Pool: m.Pool, Before: m.Delivered, After: m.Wanted, State: m.State}
		if change, ok := e[m.Pool]; ok {
			s.Labels = preview.Pair{Before: labels(change.was), After: labels(change.is)}
			s.Taints = preview.Pair{Before: taints(change.was), After: taints(change.is)}
		}
		out = append(out, s)
	}
	return out
}

func labels(meta clusterv1.ObjectMeta) map[string]string {
	out := map[string]string{}
	// What is not there or cannot be read has no labels.
	_ = json.Unmarshal([]byte(meta.Annotations[rkev1.LabelsAnnotation]), &out)
	return out
}

func taints(meta clusterv1.ObjectMeta) map[string]string {
	var list []corev1.Taint
	_ = json.Unmarshal([]byte(meta.Annotations[rkev1.TaintsAnnotation]), &list)
	out := map[string]string{}
	for _, t := range list {
		out[t.Key] = fmt.Sprintf("%s:%s", t.Value, t.Effect)
	}
	return out
}
