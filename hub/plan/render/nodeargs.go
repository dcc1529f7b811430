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
	slices.Sort(taints)
	b.args.extend("node-taint", slices.Compact(taints)...)
}

// dropForbiddenLabels takes out of the cluster's configuration the labels with which a kubelet would not start.
func (b *builder) dropForbiddenLabels() {
	for _, key := range []string{"node-label", "node-label+"} {
		var kept []string
		for _, label := range b.args.list(key) {
			name, _, _ := strings.Cut(label, "=")
			if mayLabelItself(name) {
				kept = append(kept, label)
				continue
			}
			b.problems.warn(b.fieldOf(key),
				"has the label %s, with which a kubelet does not start; it was left out, give it to the machine pool or the machine instead", name)
		}
		if len(kept) < len(b.args.list(key)) {
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
