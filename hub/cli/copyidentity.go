package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-dev/drover/hub/gateway/servingcert"
	"github.com/drover-dev/drover/hub/identity/signing"
	"github.com/drover-dev/drover/hub/identity/tokens"
	"github.com/drover-dev/drover/hub/server/settings"
	"github.com/drover-dev/drover/hub/util/objects"
)

// identitySecrets are the Secrets of the system namespace by which machines and agents know a hub.
var identitySecrets = []struct{ name, purpose string }{
	{servingcert.SecretName, "the certificate authority that machines trust"},
	{signing.SecretName, "the key that signs plans"},
	{tokens.SecretName, "the key that signs registration tokens and credentials of agents"},
}

// copyIdentity are the flags of "hub copy-identity".
type copyIdentity struct {
	connection
	to                           string
	systemNamespace, toNamespace string
}

func newCopyIdentity() *cobra.Command {
	o := &copyIdentity{}
	cmd := &cobra.Command{
		Use:   "copy-identity --to-kubeconfig <file>",
		Short: "Copy the identity of a hub to the cluster that it moves to",
		Long: `Copy the identity of a hub to another management cluster, in which no hub has started yet: the certificate authority of its gateway, the key
that signs plans, and the key that signs registration tokens and credentials of agents. A hub that starts there with the same server URL is
the same hub to machines: they connect to it as soon as the host of the URL leads there, without a change on any of them.

Clusters follow with "clusterctl move". If the target has an identity of its own, nothing is copied. To repeat the command is harmless.`,
		Example: "  hub copy-identity --to-kubeconfig management.kubeconfig",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.run(cmd.Context(), cmd.OutOrStdout())
		},
	}
	o.addFlags(cmd.Flags())
	cmd.Flags().StringVar(&o.to, "to-kubeconfig", "", "kubeconfig of the management cluster that the hub moves to")
	cmd.Flags().StringVar(&o.systemNamespace, "system-namespace", settings.DefaultSystemNamespace, "the hub's --system-namespace")
	cmd.Flags().StringVar(&o.toNamespace, "to-system-namespace", "", "that of the hub in the target (default: the same)")
	return cmd
}

func (o *copyIdentity) run(ctx context.Context, out io.Writer) error {
	if o.to == "" {
		return errors.New("--to-kubeconfig is required: the kubeconfig of the management cluster that the hub moves to")
	}
	if o.toNamespace == "" {
		o.toNamespace = o.systemNamespace
	}
	from, err := o.client()
	if err != nil {
		return err
	}
	to, err := (&connection{kubeconfig: o.to}).client()
	if err != nil {
		return fmt.Errorf("--to-kubeconfig: %w", err)
	}
	secrets, err := o.missing(ctx, from, to)
	if err != nil {
		return explain(err)
	}
	if len(secrets) > 0 {
		if err := objects.EnsureNamespace(ctx, to, o.toNamespace); err != nil {
			return explain(fmt.Errorf("the target: %w", err))
		}
	}
	for _, s := range identitySecrets {
		secret := secrets[s.name]
		if secret == nil {
			fmt.Fprintf(out, "Secret %s/%s is there already: %s\n", o.toNamespace, s.name, s.purpose)
			continue
		}
		if err := to.Create(ctx, secret); err != nil {
			return explain(fmt.Errorf("creating Secret %s/%s of the target: %w", o.toNamespace, s.name, err))
		}
		fmt.Fprintf(out, "Secret %s/%s was copied: %s\n", o.toNamespace, s.name, s.purpose)
	}
	return nil
}

// missing returns what has to be created in the target, by name. It fails if one of the Secrets does not exist in the source, or if the
// target has another one.
func (o *copyIdentity) missing(ctx context.Context, from, to client.Reader) (map[string]*corev1.Secret, error) {
	secrets := map[string]*corev1.Secret{}
	var others []string
	for _, s := range identitySecrets {
		source, target := &corev1.Secret{}, &corev1.Secret{}
		err := from.Get(ctx, client.ObjectKey{Namespace: o.systemNamespace, Name: s.name}, source)
		if apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("there is no Secret %s/%s: no hub has started here; name another --data-dir, --kubeconfig or "+
				"--system-namespace", o.systemNamespace, s.name)
		}
		if err != nil {
			return nil, fmt.Errorf("reading Secret %s/%s: %w", o.systemNamespace, s.name, err)
		}
		err = to.Get(ctx, client.ObjectKey{Namespace: o.toNamespace, Name: s.name}, target)
		switch {
		case apierrors.IsNotFound(err):
			secrets[s.name] = &corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{Namespace: o.toNamespace, Name: s.name, Labels: source.Labels, Annotations: source.Annotations},
				Type:       source.Type, Data: source.Data,
			}
		case err != nil:
			return nil, fmt.Errorf("reading Secret %s/%s of the target: %w", o.toNamespace, s.name, err)
		case !sameIdentity(source.Data, target.Data):
			others = append(others, s.name)
		}
	}
	if len(others) > 0 {
		return nil, fmt.Errorf("the target has an identity of its own in the Secrets %s of namespace %s: a hub has started there. If it has no "+
			"machines, scale it to 0 replicas, delete these Secrets, and repeat the command; otherwise its machines would no longer trust it",
			strings.Join(others, ", "), o.toNamespace)
	}
	return secrets, nil
}

// sameIdentity compares what has to be the same. The serving certificate is renewed from time to time, and is for other names elsewhere.
func sameIdentity(a, b map[string][]byte) bool {
	a, b = maps.Clone(a), maps.Clone(b)
	for _, key := range []string{corev1.TLSCertKey, corev1.TLSPrivateKeyKey} {
		delete(a, key)
		delete(b, key)
	}
	return maps.EqualFunc(a, b, bytes.Equal)
}
