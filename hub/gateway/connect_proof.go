package gateway

import (
	"context"
	"crypto/subtle"
	"fmt"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

// A machine's ID and a registration token are both seen by many, and together they must not be enough to get the credentials of a
// machine that exists already. A machine that registers for the first time therefore sends a secret, of which the hub keeps the hash.

// errUnproven answers every registration of a known machine that does not come from that machine.
var errUnproven = refuse(http.StatusUnauthorized,
	"a machine with this id is registered already, and the secret of this one is not that machine's; delete its Machine, or give this machine an id of its own (remove its cattle-id file)")

// proves tells whether a machine that sent hash is the one that an RKEBootstrap is for.
func proves(bootstrap *rkev1.RKEBootstrap, hash string) bool {
	stored := bootstrap.Annotations[rkev1.MachineSecretHashAnnotation]
	return sameHash(stored, hash) && stored != ""
}

func sameHash(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// remember stores the hash of a machine that comes for the first time. Of two that come at once, one is told to come again, and has to
// prove itself then.
func (g *registrar) remember(ctx context.Context, bootstrap *rkev1.RKEBootstrap, hash string) error {
	if hash == "" {
		return nil
	}
	changed := bootstrap.DeepCopy()
	metav1.SetMetaDataAnnotation(&changed.ObjectMeta, rkev1.MachineSecretHashAnnotation, hash)
	patch := client.MergeFromWithOptions(bootstrap, client.MergeFromWithOptimisticLock{})
	if err := g.client.Patch(ctx, changed, patch, fieldOwner); err != nil {
		if client.IgnoreNotFound(err) == nil || isConflict(err) {
			return later(comeAgain, "the hub changed this machine's RKEBootstrap at the same moment")
		}
		return fmt.Errorf("writing the hash of a machine's secret: %w", err)
	}
	return nil
}
