package render

import (
	"maps"
	"slices"
	"strings"

	kubelet "k8s.io/kubelet/pkg/apis"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/plan/release"
)

// addNodeArgs adds the Node's labels and taints. The label with the Machine's UID is how the hub finds the Node again.
func (b *builder) addNodeArgs() {
	m := b.Machine
	b.dropForbiddenLabels()
	var labels []string
	for _, key := range slices.Sorted(maps.Keys(m.NodeLabels)) {
		if key != rkev1.MachineUIDLabel && mayLabelItself(key) {
			labels = append(labels, key+"="+m.NodeLabels[key])
		}
	}
	labels = append(labels, rkev1.MachineUIDLabel+"="+m.UID)
	b.args.extend("node-label", labels...)

	var taints []string
	for _, t := range m.NodeTaints {
		taints = append(taints, t.ToString())
	}
	if !m.Worker {
		if m.Etcd && !(b.Cluster.Release.Runtime == release.K3s && m.ControlPlane) {
			taints = append(taints, "node-role.kubernetes.io/etcd:NoExecute")
		}
		if m.ControlPlane {
			taints = append(taints, "node-role.kubernetes.io/control-plane:NoSchedule")
		}
	}
	// A kubelet does not start with two taints of one key and effect. What the cluster's configuration says counts, then the machine's own.
	taken := map[string]bool{}
	for _, taint := range b.args.words("node-taint") {
		taken[taintID(taint)] = true
	}
	taints = slices.DeleteFunc(taints, func(taint string) bool {
		id := taintID(taint)
		known := taken[id]
		taken[id] = true
		return known
	})
	slices.Sort(taints)
	b.args.extend("node-taint", taints...)
}

// taintID is the key and the effect of a taint.
func taintID(taint string) string {
	spec, effect, _ := strings.Cut(taint, ":")
	key, _, _ := strings.Cut(spec, "=")
	return key + ":" + effect
}

// dropForbiddenLabels takes out of the cluster's configuration the labels with which a kubelet would not start.
func (b *builder) dropForbiddenLabels() {
	for _, key := range []string{"node-label", "node-label+"} {
		var kept []string
		dropped := false
		for _, text := range b.args.list(key) {
			// A text with several is handed on to the kubelet, which takes it apart.
			allowed := slices.DeleteFunc(rkev1.SplitList(text), func(label string) bool {
				name, _, _ := strings.Cut(label, "=")
				if mayLabelItself(name) {
					return false
				}
				dropped = true
				b.problems.warn(b.fieldOf(key),
					"has the label %s, with which a kubelet does not start; it was left out, give it to the machine pool or the machine instead", name)
				return true
			})
			if len(allowed) > 0 {
				kept = append(kept, strings.Join(allowed, ","))
			}
		}
		if dropped {
			b.args[key] = kept
		}
	}
}

// mayLabelItself reports whether a kubelet may give its Node a label. It does not even start with another one of Kubernetes' own.
func mayLabelItself(key string) bool {
	namespace, _, found := strings.Cut(key, "/")
	if !found {
		return true
	}
	for _, domain := range []string{"kubernetes.io", "k8s.io"} {
		if namespace == domain || strings.HasSuffix(namespace, "."+domain) {
			return kubelet.IsKubeletLabel(key)
		}
	}
	return true
}

// addProviderID makes the Node carry the ID by which its infrastructure knows the machine, so that the Node is tied to its Machine
// without a cloud controller. A cloud controller of the cluster sets it.
func (b *builder) addProviderID() {
	id := b.Machine.ProviderID
	if id == "" || b.args.text("cloud-provider-name") != "" {
		return
	}
	for _, own := range []string{"provider-id", "cloud-provider"} {
		if _, set := b.args.option("kubelet-arg", own); set {
			return
		}
	}
	b.args.extend("kubelet-arg", "provider-id="+id)
}
