package server

import (
	"context"
	"fmt"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-dev/drover/hub/api/crds"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/util/ssa"
)

// capiRole is the name of the ClusterRole by which Cluster API's controllers, where they run outside of the hub, may handle Drover's kinds.
const capiRole = "drover-capi-manager"

// aggregateToManager makes a ClusterRole part of the one that Cluster API's manager has. Source: Cluster API's provider contract, RBAC.
const aggregateToManager = "cluster.x-k8s.io/aggregate-to-manager"

// grantCAPI gives Cluster API's controllers what the provider contract says that they need: they clone templates, set owners, and remove
// what is left. Upstream's manager has no right to kinds outside of Cluster API's own groups without it.
func grantCAPI(ctx context.Context, c client.Client) error {
	definitions, err := crds.Definitions(crds.Options{SkipCAPI: true})
	if err != nil {
		return err
	}
	rule := rbacv1.PolicyRule{
		APIGroups: []string{rkev1.GroupVersion.Group},
		Verbs:     []string{"create", "delete", "get", "list", "patch", "update", "watch"},
	}
	finalizers := rbacv1.PolicyRule{APIGroups: rule.APIGroups, Verbs: []string{"update"}}
	for _, definition := range definitions {
		if _, provider := definition.Labels["cluster.x-k8s.io/v1beta2"]; !provider {
			continue
		}
		plural := definition.Spec.Names.Plural
		rule.Resources = append(rule.Resources, plural)
		finalizers.Resources = append(finalizers.Resources, plural+"/finalizers")
	}
	slices.Sort(rule.Resources)
	slices.Sort(finalizers.Resources)
	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: capiRole, Labels: map[string]string{aggregateToManager: "true"}},
		Rules:      []rbacv1.PolicyRule{rule, finalizers},
	}
	if err := ssa.Apply(ctx, c, client.FieldOwner("drover-hub"), role); err != nil {
		return fmt.Errorf("granting Cluster API the right to Drover's kinds: %w", err)
	}
	return nil
}
