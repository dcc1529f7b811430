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

// HubRules returns the rules of the ClusterRole drover-hub.
func HubRules() ([]rbacv1.PolicyRule, error) {
	role := &rbacv1.ClusterRole{}
	if err := yaml.UnmarshalStrict(hub, role); err != nil {
		return nil, fmt.Errorf("decoding hub.yaml: %w", err)
	}
	return role.Rules, nil
}
