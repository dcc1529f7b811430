package server

import (
	"context"
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-dev/drover/hub/api/crds"
	"github.com/drover-dev/drover/hub/util/ssa"
)

// capiRole is the name of the ClusterRole by which Cluster API's controllers, where they run outside of the hub, may handle Drover's kinds.
const capiRole = "drover-capi-manager"

// grantCAPI gives Cluster API's controllers what the provider contract says that they need.
func grantCAPI(ctx context.Context, c client.Client) error {
	definitions, err := crds.Definitions(crds.Options{SkipCAPI: true})
	if err != nil {
		return err
	}
	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: capiRole, Labels: map[string]string{crds.AggregateToManager: "true"}},
		Rules:      append(crds.ManagerRules(definitions), crds.NodeDriverRule()),
	}
	if err := ssa.Apply(ctx, c, client.FieldOwner("drover-hub"), role); err != nil {
		return fmt.Errorf("granting Cluster API the right to Drover's kinds: %w", err)
	}
	return nil
}
