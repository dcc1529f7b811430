package nodesync

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

// reserved are labels that identify a Node or its role. The kubelet and the distribution write them; users may not.
var reserved = []string{
	corev1.LabelHostname, corev1.LabelOSStable, corev1.LabelArchStable, rkev1.MachineUIDLabel,
	"node-role.kubernetes.io/etcd", "node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master",
}

// wanted is what a machine's Node must have.
type wanted struct {
	labels map[string]string
	taints []corev1.Taint
	// problems says what cannot be synced, each with what to write instead.
	problems []string
	// refused is why the cluster does not take the change of the Node; empty if it does.
	refused string
	// cordoned is true while a drain has the Node cordoned.
	cordoned bool
	// unreadable is true if an annotation cannot be decoded: the Node is not changed then.
	unreadable bool
}

// readWanted returns the labels and taints of a Node: from the roles of the machine, from its delivered plan, and from annotations of its
// RKEBootstrap, the later ones overriding the earlier. Invalid ones are left out and do not delay the others. plan is empty for a machine
// without a plan Secret.
func readWanted(machine *clusterv1.Machine, bootstrap *rkev1.RKEBootstrap, plan *corev1.Secret) wanted {
	w := wanted{labels: map[string]string{}, cordoned: plan.Annotations[rkev1.DrainCordonedAnnotation] != ""}
	annotations := bootstrap.Annotations
	if bootstrap.Labels[rkev1.WorkerRoleLabel] == "true" || machine.Labels[rkev1.WorkerRoleLabel] == "true" {
		w.labels[rkev1.NodeWorkerRoleLabel] = "true"
	}
	var configured map[string]string
	w.decode(plan.Annotations, rkev1.NodeLabelsAnnotation, &configured)
	for key, value := range configured {
		// The distribution does not start with an invalid label, and reports it.
		if checkLabel(key, value) == "" {
			w.labels[key] = value
		}
	}
	var labels map[string]string
	w.decode(annotations, rkev1.LabelsAnnotation, &labels)
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		if problem := checkLabel(key, labels[key]); problem != "" {
			w.problems = append(w.problems, problem)
			continue
		}
		w.labels[key] = labels[key]
	}
	var taints []corev1.Taint
	w.decode(annotations, rkev1.TaintsAnnotation, &taints)
	for _, taint := range taints {
		switch problem := checkTaint(taint); {
		case problem != "":
			w.problems = append(w.problems, problem)
		case find(w.taints, taint) < 0:
			w.taints = append(w.taints, taint)
		}
	}
	return w
}

func (w *wanted) decode(annotations map[string]string, key string, into any) {
	if annotations[key] == "" {
		return
	}
	if err := json.Unmarshal([]byte(annotations[key]), into); err != nil {
		w.unreadable = true
		w.problems = append(w.problems, fmt.Sprintf("annotation %s: %v", key, err))
	}
}

func checkLabel(key, value string) string {
	if slices.Contains(reserved, key) {
		return fmt.Sprintf("label %s is reserved for the hub and the distribution; choose another key", key)
	}
	if errs := validation.IsQualifiedName(key); len(errs) > 0 {
		return fmt.Sprintf("label %q: %s", key, strings.Join(errs, "; "))
	}
	if errs := validation.IsValidLabelValue(value); len(errs) > 0 {
		return fmt.Sprintf("label %s: value %q: %s", key, value, strings.Join(errs, "; "))
	}
	return ""
}

func checkTaint(t corev1.Taint) string {
	if errs := validation.IsQualifiedName(t.Key); len(errs) > 0 {
		return fmt.Sprintf("taint %q: %s", t.Key, strings.Join(errs, "; "))
	}
	if errs := validation.IsValidLabelValue(t.Value); len(errs) > 0 {
		return fmt.Sprintf("taint %s: value %q: %s", t.Key, t.Value, strings.Join(errs, "; "))
	}
	switch t.Effect {
	case corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute:
		return ""
	}
	return fmt.Sprintf("taint %s: invalid effect %q: must be NoSchedule, PreferNoSchedule or NoExecute", t.Key, t.Effect)
}

// find returns the index of the taint with the same key and effect, which identify a taint; -1 if there is none.
func find(taints []corev1.Taint, taint corev1.Taint) int {
	return slices.IndexFunc(taints, func(t corev1.Taint) bool { return t.MatchTaint(&taint) })
}
