package crds

import (
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// AggregateToManager is the label that makes a ClusterRole part of the one that Cluster API's manager has. Source: Cluster API's provider
// contract, RBAC.
const AggregateToManager = "cluster.x-k8s.io/aggregate-to-manager"

// contractLabel is on the definitions of the kinds that implement contract v1beta2.
const contractLabel = "cluster.x-k8s.io/v1beta2"

// NodeDriverGroup is the API group of the machines of node drivers, and of their templates.
const NodeDriverGroup = "rke-machine.cattle.io"

var managerVerbs = []string{"create", "delete", "get", "list", "patch", "update", "watch"}

// ManagerRules returns what Cluster API's controllers may do with those of the definitions that implement its contract: they clone
// templates, set owners, and remove what is left. Upstream's manager has no right to kinds outside of Cluster API's own groups without it.
// All of these definitions must be of one group.
func ManagerRules(definitions []*apiextensionsv1.CustomResourceDefinition) []rbacv1.PolicyRule {
	rule := rbacv1.PolicyRule{Verbs: managerVerbs}
	finalizers := rbacv1.PolicyRule{Verbs: []string{"update"}}
	for _, definition := range definitions {
		if _, found := definition.Labels[contractLabel]; !found {
			continue
		}
		rule.APIGroups = []string{definition.Spec.Group}
		rule.Resources = append(rule.Resources, definition.Spec.Names.Plural)
		finalizers.Resources = append(finalizers.Resources, definition.Spec.Names.Plural+"/finalizers")
	}
	finalizers.APIGroups = rule.APIGroups
	slices.Sort(rule.Resources)
	slices.Sort(finalizers.Resources)
	return []rbacv1.PolicyRule{rule, finalizers}
}

// NodeDriverRule returns what ManagerRules would for the kinds of node drivers, which exist as long as a driver is active.
func NodeDriverRule() rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{NodeDriverGroup}, Resources: []string{"*"}, Verbs: managerVerbs}
}
