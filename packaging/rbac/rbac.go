// Package rbac holds, as data, what a hub may do in the Kubernetes that it uses, where that is not its own embedded one. The integration
// tests compare it with what hubs ask for: nothing that they need is missing, and nothing is granted that none has used.
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
		return nil, fmt.Errorf("reading hub.yaml: %w", err)
	}
	return role.Rules, nil
}
