// Package rbac holds the rules that a hub needs in an external Kubernetes cluster. The integration tests compare them with the requests of
// hubs: no rule is missing, and none is unused.
package rbac

import (
	_ "embed"
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"
)

//go:embed hub.yaml
var hub []byte

//go:embed hub-namespace.yaml
var hubNamespace []byte

// HubRules returns the rules of a hub: those of the ClusterRole drover-hub, and those of the Role drover-hub in the hub's namespace.
func HubRules() (cluster, namespace []rbacv1.PolicyRule, err error) {
	clusterRole, role := &rbacv1.ClusterRole{}, &rbacv1.Role{}
	if err := yaml.UnmarshalStrict(hub, clusterRole); err != nil {
		return nil, nil, fmt.Errorf("decoding hub.yaml: %w", err)
	}
	if err := yaml.UnmarshalStrict(hubNamespace, role); err != nil {
		return nil, nil, fmt.Errorf("decoding hub-namespace.yaml: %w", err)
	}
	return clusterRole.Rules, role.Rules, nil
}
