package render

import (
	"fmt"
	"strings"

	"github.com/drover-dev/drover/hub/plan/release"
)

// checkDatastore refuses a datastore other than the embedded etcd. Decisions about servers rest on their membership in etcd: a second one
// would never become a member, for which all others wait. k3s does not even start with it where it runs only one of etcd and control plane,
// and on RKE2 the probe of etcd never passes. A single server of k3s works; its data is not in any snapshot.
func (b *builder) checkDatastore() {
	field := b.datastoreField()
	runtime, m := b.Cluster.Release.Runtime, b.Machine
	switch {
	case field == "" || !m.server():
	case runtime == release.K3s && m.Init && m.Etcd && m.ControlPlane:
		b.problems.doubt(field, "has k3s keep the data of the cluster elsewhere, and run no etcd: no snapshot can be saved, and no other server "+
			"can join")
	default:
		b.problems.fail(field, "has %s keep the data of the cluster elsewhere, and run no etcd: the hub supports that for a single server of "+
			"k3s only; remove it, and create another cluster if this one was started with it", runtime)
	}
}

// datastoreField is the field that asks for a datastore other than the embedded etcd; empty if none does.
func (b *builder) datastoreField() string {
	const arg = "datastore-endpoint"
	external := func(endpoint string) bool {
		scheme, _, _ := strings.Cut(endpoint, ":")
		return scheme != "" && scheme != "etcd" // which is the embedded one
	}
	if external(b.args.text(arg)) {
		return b.fieldOf(arg)
	}
	for i, v := range b.Cluster.Spec.AgentEnvVars {
		if v.Name == b.Cluster.names().EnvPrefix+"_DATASTORE_ENDPOINT" && external(v.Value) && b.args.text(arg) == "" {
			return fmt.Sprintf("spec.agentEnvVars[%d].name", i)
		}
	}
	return ""
}
