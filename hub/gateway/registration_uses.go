package gateway

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	"github.com/drover-dev/drover/hub/tokens"
)

// use counts somebody new who comes with a token whose uses are bounded. Who has used it is written into its Secret before anything is made
// for him, so that no two take the last use, and whoever comes again after the hub was stopped in between is not counted twice. identity is a
// hash, too: it cannot be told who it was.
func (t *registrationTokens) use(ctx context.Context, token *managementv3.ClusterRegistrationToken, identity string) error {
	if token.Spec.MaxUses <= 0 {
		return nil
	}
	user := tokens.Hash(identity)[:16]
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error { return t.useOnce(ctx, token, user) })
	if isConflict(err) {
		return later(comeAgain, "the hub is busy with others who use this registration token")
	}
	return err
}

// useOnce fails with a conflict when somebody else was counted in between.
func (t *registrationTokens) useOnce(ctx context.Context, token *managementv3.ClusterRegistrationToken, user string) error {
	name := types.NamespacedName{Namespace: token.Namespace, Name: managementv3.TokenSecretPrefix + token.Name}
	secret := &corev1.Secret{}
	if err := t.live.Get(ctx, name, secret); err != nil {
		if apierrors.IsNotFound(err) {
			return errUnknownToken
		}
		return fmt.Errorf("reading Secret %s: %w", name, err)
	}
	registration := tokens.DecodeSecret(secret.Data)
	if slices.Contains(registration.UsedBy, user) {
		return nil
	}
	if int64(len(registration.UsedBy)) >= token.Spec.MaxUses {
		return refuse(http.StatusUnauthorized, "the registration token has been used up: spec.maxUses of ClusterRegistrationToken %s/%s is %d; "+
			"make another one", token.Namespace, token.Name, token.Spec.MaxUses)
	}
	changed := secret.DeepCopy()
	registration.UsedBy = append(registration.UsedBy, user)
	changed.Data[managementv3.UsedByKey] = registration.Encode()[managementv3.UsedByKey]
	err := t.client.Patch(ctx, changed, client.MergeFromWithOptions(secret, client.MergeFromWithOptimisticLock{}), fieldOwner)
	if err != nil && !isConflict(err) {
		return fmt.Errorf("counting a use of ClusterRegistrationToken %s/%s: %w", token.Namespace, token.Name, err)
	}
	return err
}
