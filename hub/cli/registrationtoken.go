package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	"github.com/drover-dev/drover/hub/identity/tokens"
)

// registrationOptions say what the registration token is good for that a command makes. Its secret is in what the command prints and
// nowhere else.
type registrationOptions struct {
	ttl     time.Duration
	maxUses int64
}

// maxUsesLimit is the bound of spec.maxUses.
const maxUsesLimit = 1000

func (o *registrationOptions) addFlags(flags *pflag.FlagSet, ttl time.Duration) {
	flags.DurationVar(&o.ttl, "ttl", ttl, "how long the token in the command is good, in whole minutes from 30m; 0 is for ever")
	flags.Int64Var(&o.maxUses, "max-uses", 0, "how many may use the token in the command; 0 is any number")
}

func (o *registrationOptions) check() error {
	switch {
	case o.ttl < 0 || o.ttl > 0 && o.ttl < 30*time.Minute || o.ttl%time.Minute != 0:
		return fmt.Errorf("--ttl %s: it must be 0 or whole minutes from 30m", o.ttl)
	case o.maxUses < 0 || o.maxUses > maxUsesLimit:
		return fmt.Errorf("--max-uses %d: it must be from 0 to %d", o.maxUses, maxUsesLimit)
	}
	return nil
}

// make makes a registration token of its own for a management Cluster. name begins the name of its ClusterRegistrationToken, which the hub
// removes when it has expired. roles are those that a machine may register with.
func (o *registrationOptions) make(
	ctx context.Context, c client.Client, management, name string, purpose managementv3.RegistrationPurpose, roles ...managementv3.MachineRole,
) (*managementv3.ClusterRegistrationToken, string, error) {
	token, err := tokens.NewRegistrationToken()
	if err != nil {
		return nil, "", err
	}
	crt := &managementv3.ClusterRegistrationToken{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: management, GenerateName: name + "-", Annotations: map[string]string{managementv3.DeleteExpiredAnnotation: "true"},
		},
		Spec: managementv3.ClusterRegistrationTokenSpec{
			ClusterName: management, Purpose: purpose, Roles: roles, MaxUses: o.maxUses,
			Made: &managementv3.MadeToken{ID: tokens.RegistrationID(token), Hash: tokens.Hash(token)},
		},
	}
	if o.ttl > 0 {
		crt.Spec.TTL = ptr.To(int64(o.ttl / time.Minute))
	}
	if err := c.Create(ctx, crt); err != nil {
		return nil, "", explain(fmt.Errorf("making a ClusterRegistrationToken in %s: %w", management, err))
	}
	return crt, token, nil
}

// errNotYet marks what the hub will have done in a moment.
var errNotYet = errors.New("not there yet")

// awaitFor calls do until it returns something else than errNotYet, or the timeout expires.
func awaitFor[T any](ctx context.Context, limit time.Duration, do func() (T, error)) (T, error) {
	deadline := time.Now().Add(limit)
	for {
		out, err := do()
		if !errors.Is(err, errNotYet) || time.Now().After(deadline) {
			return out, err
		}
		select {
		case <-ctx.Done():
			return out, ctx.Err()
		case <-time.After(200 * time.Millisecond):
		}
	}
}
