package nodesync

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

// carried is what was carried to a Node, and so is to be taken away from it when it is no longer wanted. The Node holds it in an annotation,
// since that has to outlive the machine's objects in the hub.
type carried struct {
	// Labels are keys, Taints are of the form key:effect. Both are sorted.
	Labels []string `json:"labels,omitempty"`
	Taints []string `json:"taints,omitempty"`
}

// readCarried reads the annotation. One that cannot be read counts for none: then too much stays on the Node rather than too little.
func readCarried(node *corev1.Node) carried {
	var c carried
	if json.Unmarshal([]byte(node.Annotations[rkev1.CarriedAnnotation]), &c) != nil {
		return carried{}
	}
	return c
}

// merge gives a Node what its machine wants, and takes from it what was carried before and is no longer wanted.
func merge(node *corev1.Node, w wanted) {
	before := readCarried(node)
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
	mark(node, carriedOf(w))
}

// mergeTaints keeps the order of those that are there, so that nothing is written where nothing changes.
func mergeTaints(there []corev1.Taint, before []string, want []corev1.Taint) []corev1.Taint {
	var out []corev1.Taint
	for _, taint := range there {
		i := find(want, taint)
		switch {
		case i >= 0:
			// TimeAdded belongs to whoever evicts.
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

func carriedOf(w wanted) carried {
	c := carried{Labels: slices.Sorted(maps.Keys(w.labels))}
	for _, taint := range w.taints {
		c.Taints = append(c.Taints, taintKey(taint))
	}
	slices.SortFunc(c.Taints, strings.Compare)
	return c
}

func taintKey(t corev1.Taint) string { return t.Key + ":" + string(t.Effect) }

// mark writes the annotation, or takes it away where nothing is carried.
func mark(node *corev1.Node, c carried) {
	if len(c.Labels)+len(c.Taints) == 0 {
		delete(node.Annotations, rkev1.CarriedAnnotation)
		return
	}
	if node.Annotations == nil {
		node.Annotations = map[string]string{}
	}
	// A struct of strings always encodes.
	raw, _ := json.Marshal(c)
	node.Annotations[rkev1.CarriedAnnotation] = string(raw)
}
