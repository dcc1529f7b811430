package nodesync

import (
	"encoding/json"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

// synced is what was synced to a Node, and is removed from it when it is no longer wanted. It is stored in an annotation of the Node, which
// outlives the machine's objects in the hub.
type synced struct {
	// Labels are keys, Taints have the form key:effect. Both are sorted.
	Labels []string `json:"labels,omitempty"`
	Taints []string `json:"taints,omitempty"`
}

// readSynced reads the annotation. One that cannot be decoded counts as empty: nothing is removed from the Node then.
func readSynced(node *corev1.Node) synced {
	var s synced
	if json.Unmarshal([]byte(node.Annotations[rkev1.SyncedFromMachineAnnotation]), &s) != nil {
		return synced{}
	}
	return s
}

// merge sets what is wanted on a Node, and removes what was synced before and is no longer wanted.
func merge(node *corev1.Node, w wanted) {
	before := readSynced(node)
	for _, key := range before.Labels {
		if _, still := w.labels[key]; !still {
			delete(node.Labels, key)
		}
	}
	if node.Labels == nil {
		node.Labels = map[string]string{}
	}
	maps.Copy(node.Labels, w.labels)
	node.Spec.Taints = mergeTaints(node.Spec.Taints, before.Taints, w.taints)
	annotate(node, syncedOf(w))
}

// mergeTaints keeps the order of existing taints, so that nothing is written where nothing changes.
func mergeTaints(existing []corev1.Taint, before []string, want []corev1.Taint) []corev1.Taint {
	var out []corev1.Taint
	for _, taint := range existing {
		i := find(want, taint)
		switch {
		case i >= 0:
			// TimeAdded is kept: eviction depends on it.
			taint.Value = want[i].Value
		case slices.Contains(before, taintKey(taint)):
			continue
		}
		out = append(out, taint)
	}
	for _, taint := range want {
		if find(out, taint) < 0 {
			out = append(out, corev1.Taint{Key: taint.Key, Value: taint.Value, Effect: taint.Effect})
		}
	}
	return out
}

// uncordon ends the cordon of a drain that the hub knows nothing of: that of a snapshot that was restored. Others stay.
func uncordon(node *corev1.Node) {
	if node.Annotations[rkev1.DrainCordonedAnnotation] != "" {
		node.Spec.Unschedulable = false
		delete(node.Annotations, rkev1.DrainCordonedAnnotation)
	}
}

func syncedOf(w wanted) synced {
	s := synced{Labels: slices.Sorted(maps.Keys(w.labels))}
	for _, taint := range w.taints {
		s.Taints = append(s.Taints, taintKey(taint))
	}
	slices.Sort(s.Taints)
	return s
}

func taintKey(t corev1.Taint) string { return t.Key + ":" + string(t.Effect) }

// annotate writes the annotation, or removes it if nothing is synced.
func annotate(node *corev1.Node, s synced) {
	if len(s.Labels)+len(s.Taints) == 0 {
		delete(node.Annotations, rkev1.SyncedFromMachineAnnotation)
		return
	}
	// Encoding a struct of strings does not fail.
	raw, _ := json.Marshal(s)
	metav1.SetMetaDataAnnotation(&node.ObjectMeta, rkev1.SyncedFromMachineAnnotation, string(raw))
}
