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

// reserved are labels that tell what a Node is. They are written by the kubelet and the distribution, and no user may tell otherwise.
var reserved = []string{
	corev1.LabelHostname, corev1.LabelOSStable, corev1.LabelArchStable, rkev1.MachineUIDLabel,
	"node-role.kubernetes.io/etcd", "node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master",
}

// wanted is what a machine's Node is to have.
type wanted struct {
	labels map[string]string
	taints []corev1.Taint
	// problems are what cannot be carried to a Node, each with what to write instead.
	problems []string
	// unreadable is set where nobody can tell what is wanted: then the Node stays as it is.
	unreadable bool
}

// workerRole is the label by which kubectl shows a Node's role as worker. The distributions label only servers, and a kubelet may not set it.
const workerRole = "node-role.kubernetes.io/worker"

// readWanted reads what the machine's roles, its delivered plan and its owner want of the Node, the last of which counts where they differ.
// What is not as it should be is left out: the rest does not have to wait for it. plan is nil for a machine without a plan Secret.
func readWanted(machine *clusterv1.Machine, bootstrap *rkev1.RKEBootstrap, plan *corev1.Secret) wanted {
	w := wanted{labels: map[string]string{}}
	annotations := bootstrap.Annotations
	if bootstrap.Labels[rkev1.WorkerRoleLabel] == "true" || machine.Labels[rkev1.WorkerRoleLabel] == "true" {
		w.labels[workerRole] = "true"
	}
	if plan != nil {
		var configured map[string]string
		w.decode(plan.Annotations, rkev1.NodeLabelsAnnotation, &configured)
		for key, value := range configured {
			// The distribution would not start with a label that is malformed, and says so.
			if checkLabel(key, value) == "" {
				w.labels[key] = value
			}
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
		return fmt.Sprintf("label %s: it tells what the Node is and cannot be set; choose another key", key)
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
	return fmt.Sprintf("taint %s: effect %q: write NoSchedule, PreferNoSchedule or NoExecute", t.Key, t.Effect)
}

// find returns where a list has a taint of the same key and effect, which is what tells taints apart; -1 if nowhere.
func find(taints []corev1.Taint, taint corev1.Taint) int {
	return slices.IndexFunc(taints, func(t corev1.Taint) bool { return t.MatchTaint(&taint) })
}
