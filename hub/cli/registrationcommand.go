package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/identity/tokens"
)

// registrationOptions are the flags that "hub node-command" and "hub import-command" share: both create a registration token and print a
// command that contains it. The token is stored nowhere else.
type registrationOptions struct {
	connection
	ttl      time.Duration
	maxUses  int64
	wait     time.Duration
	insecure bool
	publicCA bool
}

// registrationCommand is what distinguishes the two commands.
type registrationCommand struct {
	// name is the name of the hub's command; names of ClusterRegistrationTokens begin with it.
	name    string
	purpose managementv3.RegistrationPurpose
	// roles are those that a machine may register with.
	roles []managementv3.MachineRole
	// templates reads the commands that the hub has made for the token.
	templates func(*managementv3.ClusterRegistrationTokenStatus) registrationTemplates
}

// registrationTemplates are commands with managementv3.TokenPlaceholder in place of the token. verified may be empty.
type registrationTemplates struct{ verified, insecure, publicCA string }

// maxUsesLimit is the bound of spec.maxUses.
const maxUsesLimit = 1000

// addFlags adds the flags with the default of --ttl. download is what the printed command downloads, host what it runs on.
func (o *registrationOptions) addFlags(flags *pflag.FlagSet, ttl time.Duration, download, host string) {
	o.connection.addFlags(flags)
	flags.DurationVar(&o.ttl, "ttl", ttl, "how long the token in the command is good, in whole minutes from 30m; 0 is for ever")
	flags.Int64Var(&o.maxUses, "max-uses", 0, "how many may use the token in the command; 0 is any number")
	flags.DurationVar(&o.wait, "wait", 30*time.Second, "how long to wait for the hub to make the command")
	flags.BoolVar(&o.insecure, "insecure", false, "a shorter command that downloads the "+download+" without checking whom from, and has the "+
		"token in an argument")
	flags.BoolVar(&o.publicCA, "public-ca", false,
		host+" trusts the gateway's certificate authority already, such as that of your company; the token is in an argument")
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

// printCommand returns a RunE that prints what run returns for the cluster. check verifies the flags that are not shared.
func (o *registrationOptions) printCommand(
	check func() error, run func(ctx context.Context, c client.Client, cluster client.ObjectKey) (string, error),
) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		cluster, err := clusterKey(args[0])
		if err == nil {
			err = check()
		}
		if err == nil {
			err = o.check()
		}
		if err != nil {
			return err
		}
		c, err := o.client()
		if err != nil {
			return err
		}
		command, err := run(cmd.Context(), c, cluster)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintln(cmd.OutOrStdout(), command)
		return err
	}
}

// create creates a registration token for a management Cluster and returns the hub's command with that token. If the hub does not make the
// command in time, the ClusterRegistrationToken is deleted.
func (o *registrationOptions) create(ctx context.Context, c client.Client, management string, kind registrationCommand) (string, error) {
	crt, token, err := o.createToken(ctx, c, management, kind)
	if err != nil {
		return "", err
	}
	template, err := awaitFor(ctx, o.wait, func() (string, error) { return o.template(ctx, c, crt, kind) })
	if err != nil {
		if gone := c.Delete(context.WithoutCancel(ctx), crt); client.IgnoreNotFound(gone) != nil {
			err = errors.Join(err, fmt.Errorf("deleting ClusterRegistrationToken %s: %w", client.ObjectKeyFromObject(crt), gone))
		}
		return "", err
	}
	return strings.ReplaceAll(template, managementv3.TokenPlaceholder, token), nil
}

// createToken creates the ClusterRegistrationToken, which the hub deletes when it has expired, and returns the token, too.
func (o *registrationOptions) createToken(
	ctx context.Context, c client.Client, management string, kind registrationCommand,
) (*managementv3.ClusterRegistrationToken, string, error) {
	token, err := tokens.NewRegistrationToken()
	if err != nil {
		return nil, "", err
	}
	crt := &managementv3.ClusterRegistrationToken{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: management, GenerateName: kind.name + "-", Annotations: map[string]string{managementv3.DeleteExpiredAnnotation: "true"},
		},
		Spec: managementv3.ClusterRegistrationTokenSpec{
			ClusterName: management, Purpose: kind.purpose, Roles: kind.roles, MaxUses: o.maxUses,
			Made: &managementv3.MadeToken{ID: tokens.RegistrationID(token), Hash: tokens.Hash(token)},
		},
	}
	if o.ttl > 0 {
		crt.Spec.TTL = new(int64(o.ttl / time.Minute))
	}
	if err := c.Create(ctx, crt); err != nil {
		return nil, "", explain(fmt.Errorf("making a ClusterRegistrationToken in %s: %w", management, err))
	}
	return crt, token, nil
}

// template reads the command that the flags ask for. Without a verified command, it is the one for a trusted certificate.
func (o *registrationOptions) template(
	ctx context.Context, c client.Reader, crt *managementv3.ClusterRegistrationToken, kind registrationCommand,
) (string, error) {
	key := client.ObjectKeyFromObject(crt)
	if err := c.Get(ctx, key, crt); err != nil {
		return "", explain(fmt.Errorf("reading ClusterRegistrationToken %s: %w", key, err))
	}
	templates := kind.templates(&crt.Status)
	template := templates.verified
	switch {
	case o.insecure:
		template = templates.insecure
	case o.publicCA || template == "":
		template = templates.publicCA
	}
	if template != "" {
		return template, nil
	}
	reason := ""
	if ready := conditions.Get(crt, managementv3.ReadyCondition); ready != nil && ready.Message != "" {
		reason = ": " + ready.Message
	}
	return "", fmt.Errorf("the command of ClusterRegistrationToken %s is %w%s", key, errNotYet, reason)
}

// managementCluster waits for the management Cluster of a Cluster and returns its name.
func (o *registrationOptions) managementCluster(ctx context.Context, c client.Reader, cluster client.ObjectKey) (string, error) {
	return awaitFor(ctx, o.wait, func() (string, error) { return managementCluster(ctx, c, cluster) })
}

// managementCluster returns the name of the management Cluster of a Cluster, or errNotYet.
func managementCluster(ctx context.Context, c client.Reader, key client.ObjectKey) (string, error) {
	cluster := &provisioningv1.Cluster{}
	if err := c.Get(ctx, key, cluster); err != nil {
		if apierrors.IsNotFound(err) {
			return "", fmt.Errorf("there is no Cluster %s", key)
		}
		return "", explain(fmt.Errorf("reading Cluster %s: %w", key, err))
	}
	if !cluster.DeletionTimestamp.IsZero() {
		return "", fmt.Errorf("the Cluster %s is being deleted", key)
	}
	// The annotation is written before there is a namespace for the token, the status afterwards.
	name := cluster.Annotations[rkev1.ManagementClusterNameAnnotation]
	if name == "" || cluster.Status.ClusterName != name {
		return "", fmt.Errorf("the management Cluster of Cluster %s is %w; its conditions say why", key, errNotYet)
	}
	return name, checkOwned(ctx, c, key, name)
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
