package render

import (
	"github.com/drover-dev/drover/hub/access/clusteragent"
	"github.com/drover-dev/drover/plans"
)

// addAuthEndpoint has the Kubernetes API accept credentials of the hub, which a service on the same machine looks at. While that service
// does not answer, all other credentials are accepted as ever.
func (b *builder) addAuthEndpoint() {
	const arg, flag = "kube-apiserver-arg", "authentication-token-webhook-config-file"
	if !b.Cluster.Spec.LocalClusterAuthEndpoint.Enabled || !b.Machine.ControlPlane {
		return
	}
	if _, own := b.args.option(arg, flag); own {
		b.problems.warn("spec.localClusterAuthEndpoint", "was left out, since %s has a %s already", b.fieldOf(arg), flag)
		return
	}
	// A file of JSON, as every kubeconfig may be.
	content, err := encode(map[string]any{
		"apiVersion": "v1", "kind": "Config", "current-context": "hub",
		"clusters": []any{map[string]any{"name": "hub",
			"cluster": map[string]any{"server": b.local("http", clusteragent.AuthEndpointPort, "/v1/authenticate")}}},
		"users":    []any{map[string]any{"name": "api-server"}},
		"contexts": []any{map[string]any{"name": "hub", "context": map[string]any{"cluster": "hub", "user": "api-server"}}},
	})
	if err != nil {
		b.problems.fail("spec.localClusterAuthEndpoint", "cannot be written as configuration: %s", err)
		return
	}
	path := b.dataDir + "/kube-api-authn-webhook.yaml"
	b.add(plans.File{Path: path}, content)
	b.args.extend(arg, flag+"="+path)
	b.authEndpoint = true
}
